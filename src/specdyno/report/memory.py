"""What each arm was expected to take of the device, what its draft costs there, and what the engine says of it.

Estimates come from files and settings before the first boot and are labelled so; only the last column is the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specdyno.plan.schema import BASELINE
from specdyno.records.memory import ArmMemory, deviation
from specdyno.records.schema import StudyRecords
from specdyno.report import spelling
from specdyno.report.tables import DASH, Cell, Table, table
from specdyno.report.untrusted import sanitise

TITLE = "Memory worked out from the files before the first boot, not measured"
UNKNOWN = "not known"
COLUMNS = (
    "arm", "weights", "draft", "KV per token", "state per request", "room for the KV cache", "KV tokens",
    "requests at once", "slots for drafts", "headroom", "fits", "engine reports", "remarks",
)  # fmt: skip


def of_study(records: StudyRecords) -> Table:
    """The table of a study, without rows where nothing was worked out."""
    return of_arms(records.header.memory, reported_tokens(records))


def reported_tokens(records: StudyRecords) -> dict[str, int]:
    """KV tokens as each arm's engine reports them, from its last boot that says so."""
    return {
        boot.arm: boot.identity.kv_cache_tokens
        for boot in records.boots
        if boot.identity is not None and boot.identity.kv_cache_tokens is not None
    }


def of_arms(arms: Sequence[ArmMemory], reported: Mapping[str, int]) -> Table:
    """One row per arm; a draft's cost against the baseline stands below the figure."""
    baseline = next((one for one in arms if one.arm == BASELINE), None)
    return table(TITLE, COLUMNS, [_row(one, baseline, reported.get(one.arm)) for one in arms])


def as_tree(records: StudyRecords) -> list[dict[str, Any]]:
    """The same for other programs: bytes and tokens, null for what is not known."""
    reported = reported_tokens(records)
    return [
        {
            **{name: getattr(one, name) for name in ArmMemory.__dataclass_fields__},
            "reported_kv_tokens": reported.get(one.arm),
        }
        for one in records.header.memory
    ]


def _row(one: ArmMemory, baseline: ArmMemory | None, reported: int | None) -> tuple[object, ...]:
    other = baseline if baseline is not one else None
    return (
        one.arm,
        _size(one.weights_bytes),
        DASH if one.draft_bytes == 0 else _size(one.draft_bytes),
        Cell(
            _count(one.kv_bytes_per_token, "B"),
            _more(one.kv_bytes_per_token, other.kv_bytes_per_token if other else None, "B"),
        ),
        DASH if one.state_bytes == 0 else _size(one.state_bytes),
        Cell(_size(one.budget_bytes), sanitise(one.device)),
        Cell(_count(one.kv_tokens), _share_more(one.kv_tokens, other.kv_tokens if other else None)),
        Cell(*_at_once(one, other)),
        one.lookahead_tokens or DASH,
        _size(one.headroom_bytes),
        {True: "yes", False: "no", None: UNKNOWN}[one.fits],
        Cell(spelling.NOT_MEASURED if reported is None else _count(reported), _apart(one, reported)),
        "; ".join(one.notes) or DASH,
    )


def _size(value: int | None) -> str:
    return UNKNOWN if value is None else spelling.size(value)


def _count(value: int | None, unit: str = "") -> str:
    return UNKNOWN if value is None else f"{spelling.count(value)} {unit}".strip()


def _more(value: int | None, base: int | None, unit: str) -> str:
    if value is None or base is None or value == base:
        return ""
    return f"{'+' if value > base else ''}{spelling.count(value - base)} {unit} for the draft"


def _share_more(value: float | None, base: float | None) -> str:
    return f"{spelling.change(value / base)} for the draft" if value is not None and base and value != base else ""


def _at_once(one: ArmMemory, other: ArmMemory | None) -> tuple[str, str]:
    if one.concurrency is None:
        return UNKNOWN, ""
    length = f"of {one.max_model_len:,} tokens" if one.max_model_len is not None else ""
    cost = ""
    if other is not None and other.concurrency is not None and other.concurrency != one.concurrency:
        cost = f", baseline {spelling.plain(other.concurrency)}"
    return spelling.plain(one.concurrency), length + cost


def _apart(one: ArmMemory, reported: int | None) -> str:
    share = deviation(one, reported)
    return "" if share is None else f"{spelling.change(1 + share)} against the estimate"
