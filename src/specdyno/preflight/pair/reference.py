"""The tables of `docs/methods.md`: methods by engine, and every rule with where it was read. Made from the data."""

from __future__ import annotations

from specdyno.plan.methods import Method
from specdyno.preflight.memory import assess
from specdyno.preflight.pair.rules import RULES
from specdyno.preflight.pair.support import NAMES, TABLE, Support

_SHOWN = ("vllm", "llamacpp", "sglang", "trtllm")


def methods() -> str:
    """One row per method: what each engine calls it, and its draft lengths."""
    rows = [f"| method | {' | '.join(NAMES[engine] for engine in _SHOWN)} |", "|---" * (len(_SHOWN) + 1) + "|"]
    rows += [f"| `{method}` | {' | '.join(_cell(TABLE[engine][method]) for engine in _SHOWN)} |" for method in Method]
    return "\n".join(rows) + "\n"


def _cell(one: Support) -> str:
    if one.supported is None:
        return f"not known: {one.note}"
    if not one.supported:
        return f"no{f'; {one.note}' if one.note else ''}"
    runner = f"; runner {one.runner}" if one.runner else ""
    note = f"; {one.note}" if one.note else ""
    return f"{one.name}; K: {one.lengths}{runner}{note}"


def rules() -> str:
    """One row per rule: its name, as `preflight.accept` takes it, and where it was read for which engine."""
    rows = ["| rule | read in |", "|---|---|"]
    for rule in RULES:
        sources = dict.fromkeys(source for source in rule.sources.values() if source)
        rows.append(f"| `{rule.name}` | {'; '.join(sources) or 'the table above, per method'} |")
    rows += [f"| `{name}` | [memory](memory.md) |" for name in sorted(assess.NAMES)]
    return "\n".join(rows) + "\n"
