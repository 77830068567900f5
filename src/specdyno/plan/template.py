"""What `specdyno init` writes: a plan with every key of the schema, its meaning and its default.

Owns the starting values. Keys and meanings come from `plan.reference`, so that a new key cannot be missing here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from specdyno.plan import reference
from specdyno.plan.schema import NEEDS_DRAFT, EngineKind, Method

WIDTH = 110
_HEAD = """\
# A plan for specdyno. Shares and margins are fractions or percentages, durations carry a unit (20s, 5m, 2h).
# `specdyno check` tells what is wrong with it, how long it takes and the smallest gain it can see.
# What stands after "Default:" may be left out; the rest must be said.
"""
_LENGTHS = {
    Method.NGRAM: [3, 5],
    Method.SUFFIX: [8],
    Method.MTP: [1, 2, 3],
    Method.GEMMA4_MTP: [1, 2, 3],
    Method.DFLASH: [7],
    Method.DSPARK: [7],
    Method.MEDUSA: [3],
}
_POOL = {EngineKind.LLAMACPP: 4}
_USUAL_POOL = 16
_START = ["./start-engine.sh", "{method}", "{draft}", "{draft_tokens}", "{port}"]
_SHARES = {"code": "40%", "chat": "30%", "tools": "20%", "structured": "10%"}


@dataclass(frozen=True, slots=True)
class Suggested:
    """Draft lengths by method that somebody suggests trying, and who: a sentence for the head of the plan."""

    lengths: Mapping[Method, Sequence[int]]
    origin: str


def render(
    engine: EngineKind | str = EngineKind.VLLM,
    target: str | None = None,
    *,
    methods: Sequence[Method | str] = (Method.NGRAM,),
    draft: str | None = None,
    suggested: Suggested | None = None,
) -> str:
    """A commented plan as YAML text that `plan.parse` reads back.

    Args:
        engine: kind of engine.
        target: hub id, folder or file of the target; None leaves a placeholder.
        methods: one candidate each, with draft lengths that are usual for it.
        draft: for the methods that need a draft; None leaves a placeholder.
        suggested: methods and draft lengths from elsewhere, instead of `methods` and the usual lengths.

    Raises:
        ValueError: the engine or a method is unknown.
    """
    kind = EngineKind(engine)
    usual = {Method(method): _LENGTHS.get(Method(method), [1, 3, 5]) for method in methods}
    lengths = usual if suggested is None else suggested.lengths
    plan = {
        "study": f"{kind}-speculation",
        "target": {"model": target or "org/model"},
        "engine": _engine(kind),
        "candidates": [_candidate(method, draft, ks) for method, ks in lengths.items()],
        "workload": {
            "sampling": {"temperature": 0.0},
            "classes": [
                {"name": name, "prompts": f"builtin:{name}", "share": share, "max_tokens": 256}
                for name, share in _SHARES.items()
            ],
        },
        "loads": [
            {"name": "interactive", "concurrency": 1, "window": "20s"},
            {"name": "pool", "concurrency": _POOL.get(kind, _USUAL_POOL), "window": "60s"},
        ],
        "objectives": [
            {"name": "interactive", "load": "interactive", "measure": "time_per_job"},
            {"name": "background pool", "load": "pool", "measure": "jobs_per_s"},
        ],
    }
    said = "".join(f"# {line}\n" for line in textwrap.wrap(suggested.origin, WIDTH)) if suggested else ""
    return _HEAD + said + "\n".join(_mapping("", plan, told=set()))


def _engine(kind: EngineKind) -> dict[str, Any]:
    outside = {"external": {"start": _START, "stop": ["./stop-engine.sh", "{port}"]}}
    return {"kind": str(kind), **(outside if kind is EngineKind.EXTERNAL else {})}


def _candidate(method: Method, draft: str | None, lengths: Sequence[int]) -> dict[str, Any]:
    named = {"draft": draft or "org/draft"} if method in NEEDS_DRAFT else {}
    return {"method": str(method), **named, "draft_tokens": list(lengths)}


def _mapping(path: str, values: dict[str, Any], *, told: set[str]) -> list[str]:
    """Lines of all keys under a generic path: those in `values`, the others with their defaults."""
    lines: list[str] = []
    prefix = f"{path}." if path else ""
    for name in reference.children(path):
        key = reference.keys().get(f"{prefix}{name}") or reference.keys()[f"{prefix}{name}[]"]
        if not path:
            lines.append("")
        lines += _comment(key, told)
        if key.leaf:
            text = _scalar(values[name]) if name in values else key.default
            lines.append(f"{name}: {text}")
        elif key.path.endswith("[]"):
            lines.append(f"{name}:")
            for item in values[name]:
                lines += _item(_mapping(key.path, item, told=told))
        else:
            lines.append(f"{name}:")
            lines += _indented(_mapping(key.path, values.get(name, {}), told=told))
    return lines if path else [*lines, ""]


def _comment(key: reference.Key, told: set[str]) -> list[str]:
    """The meaning of a key, once: not again for each entry of a list."""
    if key.path in told:
        return []
    told.add(key.path)
    default = f" Default: {key.default}" if key.leaf and key.default is not None else ""
    return [f"# {line}" for line in textwrap.wrap(f"{key.meaning}{default}", WIDTH)]


def _scalar(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("...\n").strip()


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" if line else line for line in lines]


def _item(lines: list[str]) -> list[str]:
    """Lines of one list entry: the dash stands at the first key, comments before it stay above."""
    first = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return _indented([*lines[:first], f"- {lines[first]}", *_indented(lines[first + 1 :])])
