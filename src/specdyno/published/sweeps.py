"""The published cells, typed and filtered.

One data file so far: 400 cells of a draft of a public post by vLLM and AMD of 2026-08-20, measured on MI300X and
MI355X. It states no concurrency, no repeats and no spread, so a cell is one number of unknown precision: it may order a
sweep and can decide nothing. Throughputs are output tokens per second; acceptance by position is joint (survival).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from specdyno.errors import PlanError
from specdyno.plan.schema import Method

FILE = "vllm_amd_2026_08_20.csv"
LABEL = "Published by others: a test plan, never evidence."
PROVENANCE = (
    "Cells of the draft of a public post by vLLM and AMD, 2026-08-20, on MI300X and MI355X. "
    "No concurrency, no repeats and no spread are reported."
)
_METHODS = {
    "Gemma 4 MTP": Method.GEMMA4_MTP,
    "Native MTP": Method.MTP,
    "EAGLE-3": Method.EAGLE3,
    "DFlash": Method.DFLASH,
    "DSpark": Method.DSPARK,
}
# Longest draft that the public checkpoints of the kind were trained for, by their own configuration.
TRAINED: dict[Method, tuple[int, str]] = {
    Method.DFLASH: (15, "block_size 16 of the z-lab drafts (their b16 names), anchor included"),
    Method.DSPARK: (7, "block_size 7 of deepseek-ai/dspark_qwen3_8b_block7 and its kin"),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One published measurement: a target, a way to draft, a prompt set, a draft length."""

    target: str
    method: Method
    prompts: str  # name of the prompt set
    draft_tokens: int
    baseline_tokens_per_s: float
    tokens_per_s: float
    speed_up: float  # as published, two decimals
    mean_accepted_length: float
    acceptance_rate: float  # accepted / drafted tokens, a fraction
    joint: tuple[float, ...]  # acceptance by position, fractions

    @property
    def beyond_trained(self) -> str:
        """Why this length lies beyond what the public drafts were trained for; empty where it does not."""
        limit, source = TRAINED.get(self.method, (self.draft_tokens, ""))
        return (
            f"beyond the {limit} draft tokens that it was trained for ({source})" if self.draft_tokens > limit else ""
        )


@cache
def cells() -> tuple[Cell, ...]:
    """All cells in the order of the file."""
    text = files("specdyno.published").joinpath(FILE).read_text(encoding="utf-8")
    return tuple(_cell(row) for row in csv.DictReader(text.splitlines()))


def _cell(row: dict[str, str]) -> Cell:
    return Cell(
        target=row["target"],
        method=_METHODS[row["method"]],
        prompts=row["bench"],
        draft_tokens=int(row["N"]),
        baseline_tokens_per_s=float(row["base"]),
        tokens_per_s=float(row["tput"]),
        speed_up=float(row["speedup"]),
        mean_accepted_length=float(row["MAL"]),
        acceptance_rate=float(row["AR"]) / 100.0,
        joint=tuple(float(value) for value in row["acc"].split()),
    )


def select(*, target: str | None = None, method: Method | None = None, prompts: str | None = None) -> tuple[Cell, ...]:
    """Cells whose target and prompt set contain the given text, whatever its case. PlanError where there is none."""
    found = tuple(
        cell
        for cell in cells()
        if (target is None or target.lower() in cell.target.lower())
        and (method is None or cell.method is method)
        and (prompts is None or prompts.lower() in cell.prompts.lower())
    )
    if found:
        return found
    asked = ", ".join(f'{name} "{value}"' for name, value in
                      (("target", target), ("method", method), ("prompts", prompts)) if value)  # fmt: skip
    raise PlanError(
        f"no published cell has {asked}. Targets: {', '.join(names(cell.target for cell in cells()))}; "
        f"methods: {', '.join(names(str(cell.method) for cell in cells()))}; "
        f"prompt sets: {', '.join(names(cell.prompts for cell in cells()))}"
    )


def names(values: Iterable[str]) -> tuple[str, ...]:
    """Distinct values in order of first appearance."""
    return tuple(dict.fromkeys(values))


def sweeps(found: Iterable[Cell]) -> dict[tuple[str, Method, str], tuple[Cell, ...]]:
    """Cells by (target, method, prompt set), rising draft length."""
    groups: dict[tuple[str, Method, str], list[Cell]] = {}
    for cell in found:
        groups.setdefault((cell.target, cell.method, cell.prompts), []).append(cell)
    return {key: tuple(sorted(group, key=lambda cell: cell.draft_tokens)) for key, group in groups.items()}
