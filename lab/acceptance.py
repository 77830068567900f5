"""Acceptance of the repository's drafts as it was recorded, and the interval that a new measurement must meet.

A record holds, for each prompt of a fixed list, the drafted steps and how many of them accepted at least 1, 2, ... K
tokens. Steps of one answer resemble each other, so prompts are the replicates, not steps.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from specdyno.records.schema import RequestRecord

RECORDED = Path(__file__).with_name("drafts") / "acceptance.json"
LEVEL = 0.999  # of each position: some twenty positions are checked at every run
_RULE_OF_THREE = 3.0  # steps: where none was accepted, up to 3/n is within 95 %


@dataclass(frozen=True, slots=True)
class Curve:
    """Counts by prompt. Shapes: `steps` (P,), `reached` (P, K): steps that accepted at least i+1 tokens."""

    prompts: tuple[str, ...]
    steps: np.ndarray
    reached: np.ndarray

    @property
    def draft_tokens(self) -> int:
        return self.reached.shape[1]

    @property
    def joint(self) -> np.ndarray:
        """q_i, shape (K,): a ratio of sums over the prompts."""
        return self.reached.sum(axis=0) / self.steps.sum()

    def interval(self, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
        """Low and high of each q_i, shape (K,) each: t over prompts of the linearised ratio.

        The variance of a ratio of cluster totals (Cochran, Sampling Techniques, 3rd ed., section 6.3), at least as wide
        as three steps, so that a position that accepted next to nothing has an interval too.
        """
        count, total = len(self.steps), self.steps.sum()
        residuals = self.reached - self.joint * self.steps[:, None]
        error = np.sqrt(count / (count - 1) * (residuals**2).sum(axis=0)) / total
        half = np.maximum(stats.t.ppf((1 + level) / 2, count - 1) * error, _RULE_OF_THREE / total)
        return np.maximum(self.joint - half, 0.0), np.minimum(self.joint + half, 1.0)


def curve_of(rows: Iterable[RequestRecord], draft_tokens: int) -> Curve:
    """The counts of answers that carry their ordered steps; an answer without a drafted step counts none."""
    prompts, steps, reached = [], [], []
    for row in rows:
        if row.spec is None or row.spec.per_step_accepted is None:
            raise ValueError(f"{row.prompt_id}: the engine reported no ordered steps")
        accepted = np.asarray(row.spec.per_step_accepted)
        prompts.append(row.prompt_id)
        steps.append(row.spec.num_spec_steps)
        reached.append([int((accepted >= depth).sum()) for depth in range(1, draft_tokens + 1)])
    return Curve(tuple(prompts), np.array(steps), np.array(reached).reshape(len(prompts), draft_tokens))


def outside(measured: Curve, recorded: Curve) -> list[str]:
    """The positions whose measured acceptance lies outside the recorded interval, in words."""
    low, high = recorded.interval()
    return [
        f"position {place + 1}: {seen:.3f}, recorded {was:.3f} ({a:.3f} to {b:.3f})"
        for place, (seen, was, a, b) in enumerate(zip(measured.joint, recorded.joint, low, high, strict=True))
        if not a <= seen <= b
    ]


def to_entry(curve: Curve, **facts: Any) -> dict[str, Any]:
    """A record as it is written: the facts of its measuring, the curve for people, the counts for checks."""
    low, high = curve.interval()
    return {
        **facts,
        "draft_tokens": curve.draft_tokens,
        "drafted_steps": int(curve.steps.sum()),
        "accepted_by_position": curve.reached.sum(axis=0).tolist(),
        "joint": [round(float(one), 4) for one in curve.joint],
        "interval": [[round(float(a), 4), round(float(b), 4)] for a, b in zip(low, high, strict=True)],
        "by_prompt": {
            name: [int(steps), *map(int, counts)]
            for name, steps, counts in zip(curve.prompts, curve.steps, curve.reached, strict=True)
        },
    }


def from_entry(entry: dict[str, Any]) -> Curve:
    counts = np.array(list(entry["by_prompt"].values()))
    return Curve(tuple(entry["by_prompt"]), counts[:, 0], counts[:, 1:])


def read(path: Path = RECORDED) -> dict[str, dict[str, Any]]:
    """Entries by arm, as `kind/arm`."""
    return json.loads(path.read_text(encoding="utf-8"))["arms"]


def prompts_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write(entries: dict[str, dict[str, Any]], path: Path = RECORDED) -> None:
    """All entries; numbers that belong together stand on one line."""
    text = json.dumps({"arms": dict(sorted(entries.items()))}, indent=1)
    text = re.sub(
        r"\[[\d\s.,]+\]", lambda numbers: " ".join(numbers[0].split()).replace("[ ", "[").replace(" ]", "]"), text
    )
    path.write_text(text + "\n", encoding="utf-8")
