"""A study as flat tables of raw and estimated values, for other programs: requests, windows, acceptance, contrasts.

Rows come in batches, so that millions of requests never stand in memory as Python objects. None means not measured.
Names of per-request acceptance are AIPerf's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from specdyno.records.schema import Outcome, Requests, StudyRecords
from specdyno.statistics.analysis import Analysis
from specdyno.statistics.intervals import Estimate, Interval

BATCH = 20_000
_PLACE = (("block", "int"), ("arm", "text"), ("attempt", "int"))
_STAMPS = ("intended_ns", "sent_ns", "first_text_ns", "last_text_ns", "ended_ns", "longest_gap_ns", "chunks")
_COUNTS = {
    "tokens": "completion_tokens",
    "prompt_tokens": "prompt_tokens",
    "cached_tokens": "cached_tokens",
    "spec_steps": "num_spec_steps",
    "spec_drafted": "num_draft_tokens",
    "spec_accepted": "num_accepted_draft_tokens",
}
_ESTIMATE = (("low", "float"), ("high", "float"))
_NOWHERE: tuple[None, None, None] = (None, None, None)


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns with their kind ("int", "float", "text", "bool") and the rows in batches."""

    name: str
    columns: tuple[tuple[str, str], ...]
    batches: Iterator[list[tuple[Any, ...]]]


def all_of(records: StudyRecords, analysis: Analysis) -> tuple[Rows, ...]:
    return requests(records), windows(records), acceptance(analysis), contrasts(analysis)


def requests(records: StudyRecords) -> Rows:
    """Every request that was sent, scored or not. Stamps are nanoseconds of the measuring host's monotonic clock."""
    positions = records.requests.spec_reached.shape[1] if records.requests.spec_reached.ndim == 2 else 0
    columns = (
        *(("window_id", "int"), *_PLACE, ("load", "text"), ("kind", "text"), ("index", "int"), ("class_name", "text")),
        *(("prompt_id", "text"), ("outcome", "text")),
        *((name, "int") for name in _STAMPS),
        *((name, "float") for name in _COUNTS.values()),
        *((f"accepted_at_least_{place + 1}", "float") for place in range(positions)),
    )
    return Rows("requests", columns, _request_batches(records))


def _request_batches(records: StudyRecords) -> Iterator[list[tuple[Any, ...]]]:
    boots = {boot.id: (boot.block, boot.arm, boot.attempt) for boot in records.boots}
    places = {
        window.id: (*boots.get(window.boot_id, _NOWHERE), window.load, window.kind.value) for window in records.windows
    }
    for start in range(0, len(records.requests), BATCH):
        yield list(_request_rows(records.requests, slice(start, start + BATCH), places))


def _request_rows(of: Requests, part: slice, places: dict[int, tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    outcomes = [outcome.value for outcome in Outcome]
    windows = of.window_id[part].tolist()
    prompts: list[int | None] = [None] * len(windows)
    if of.prompt_code is not None:
        prompts = of.prompt_code[part].tolist()
    stamps = [_integers(getattr(of, name)[part]) for name in _STAMPS]
    counts = [_floats(getattr(of, name)[part]) for name in _COUNTS]
    reached = [_floats(column) for column in of.spec_reached[part].T]
    columns: list[list[Any]] = [*stamps, *counts, *reached]
    for row, window in enumerate(windows):
        yield (
            *(window, *places.get(window, (*_NOWHERE, None, None)), int(of.index[part][row])),
            of.class_names[int(of.class_code[part][row])],
            _named(of.prompt_ids, prompts[row]),
            outcomes[int(of.outcome_code[part][row])],
            *(column[row] for column in columns),
        )


def windows(records: StudyRecords) -> Rows:
    """Every window, with the boot it belongs to."""
    boots = {boot.id: boot for boot in records.boots}
    columns = (
        *(("window_id", "int"), ("boot_id", "int"), *_PLACE, ("position", "int"), ("boot_status", "text")),
        *(("load", "text"), ("kind", "text"), ("class_name", "text"), ("concurrency", "int"), ("planned", "int")),
        *(("started_ns", "int"), ("ended_ns", "int"), ("client_lag_max_ns", "int"), ("host_busy", "float")),
    )
    found = []
    for one in records.windows:
        boot = boots.get(one.boot_id)
        of = (boot.block, boot.arm, boot.attempt, boot.position, boot.status.value) if boot else (None,) * 5
        head = (one.id, one.boot_id, *of, one.load, one.kind.value, one.class_name, one.concurrency, one.planned)
        found.append((*head, one.started_ns, one.ended_ns, one.client_lag_max_ns, one.host_busy))
    return Rows("windows", columns, iter([found]))


def acceptance(analysis: Analysis) -> Rows:
    """One row per arm, load, class and position; fractions."""
    columns = (
        *(("arm", "text"), ("load", "text"), ("class_name", "text"), ("source", "text"), ("num_spec_tokens", "int")),
        *(("position", "int"), ("joint", "float"), *((f"joint_{name}", kind) for name, kind in _ESTIMATE)),
        *(("conditional", "float"), *((f"conditional_{name}", kind) for name, kind in _ESTIMATE)),
        *(("level", "float"), ("method", "text"), ("boots", "int"), ("requests", "int")),
        *(("acceptance_rate", "float"), ("mean_accepted_length", "float"), ("coverage", "float")),
        *(("tokens_per_step", "float"), ("corrected", "float")),
        *((f"corrected_{name}", kind) for name, kind in _ESTIMATE),
    )
    found = []
    for one in analysis.curves:
        facts = (one.rate, one.mean_accepted_length, one.coverage, one.tokens_per_step)
        for place, joint in enumerate(one.joint):
            conditional = one.conditional[place] if place < len(one.conditional) else None
            head = (one.arm, one.load, one.class_name, one.source, one.draft_tokens, place + 1)
            how = (joint.level, joint.method) if isinstance(joint, Interval) else (None, None)
            means = (_bounded(fact)[0] for fact in facts)
            counts = (*how, one.boots, one.requests, *means)
            corrected = one.survival[place] if place < len(one.survival) else None
            found.append((*head, *_bounded(joint), *_bounded(conditional), *counts, *_bounded(corrected)))
    return Rows("acceptance", columns, iter([found]))


def contrasts(analysis: Analysis) -> Rows:
    """Candidate against baseline per load, class and measure; `ratio` above 1 is better for the candidate."""
    columns = (
        *(("candidate", "text"), ("load", "text"), ("class_name", "text"), ("measure", "text"), ("ratio", "float")),
        *(*((f"ratio_{name}", kind) for name, kind in _ESTIMATE), ("level", "float"), ("method", "text")),
        *(("count", "int"), ("reason", "text"), ("spread", "float"), ("exploratory", "bool")),
    )
    found: list[tuple[object, ...]] = []
    for one in analysis.contrasts:
        ratio = one.ratio
        how: tuple[object, ...]
        if isinstance(ratio, Interval):
            how = (ratio.level, ratio.method, ratio.count, None)
        else:
            how = (None, None, ratio.count, ratio.reason)
        head = (one.candidate, one.load, one.class_name, one.measure)
        found.append((*head, *_bounded(ratio), *how, one.spread, one.exploratory))
    return Rows("contrasts", columns, iter([found]))


def _bounded(value: Estimate | None) -> tuple[float | None, float | None, float | None]:
    return (value.estimate, value.low, value.high) if isinstance(value, Interval) else (None, None, None)


def _named(names: tuple[str, ...], code: int | None) -> str | None:
    return names[code] if code is not None and 0 <= code < len(names) else None


def _integers(column: np.ndarray) -> list[int | None]:
    return [None if value < 0 else value for value in column.tolist()]


def _floats(column: np.ndarray) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in column.tolist()]
