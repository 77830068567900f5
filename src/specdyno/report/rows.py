"""A study as flat tables of raw and estimated values, for other programs.

Requests, windows, acceptance, contrasts, phases of sessions and open windows, raw and
estimated. Rows come in batches, so that
millions of requests never stand in memory as Python objects. None means not measured. Names of per-request acceptance
are AIPerf's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from specdyno.records.schema import ArrivalKind, Outcome, Requests, StudyRecords
from specdyno.statistics.analysis import Analysis
from specdyno.statistics.intervals import AT_LEAST, Estimate, Interval

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
    return (
        requests(records),
        windows(records),
        acceptance(analysis),
        contrasts(analysis),
        phases(analysis),
        arrivals(analysis),
    )


def requests(records: StudyRecords) -> Rows:
    """Every request that was sent, scored or not. Stamps are nanoseconds of the measuring host's monotonic clock."""
    positions = records.requests.spec_reached.shape[1] if records.requests.spec_reached.ndim == 2 else 0
    columns = (
        *(("window_id", "int"), *_PLACE, ("load", "text"), ("kind", "text"), ("index", "int"), ("class_name", "text")),
        *(("prompt_id", "text"), ("session", "text"), ("turn", "int"), ("phase", "text"), ("outcome", "text")),
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
    prompts, sessions, turns, phases = (
        _codes(codes, part) for codes in (of.prompt_code, of.session_code, of.turn, of.phase_code)
    )
    stamps = [_integers(getattr(of, name)[part]) for name in _STAMPS]
    counts = [_floats(getattr(of, name)[part]) for name in _COUNTS]
    reached = [_floats(column) for column in of.spec_reached[part].T]
    columns: list[list[Any]] = [*stamps, *counts, *reached]
    for row, window in enumerate(windows):
        yield (
            *(window, *places.get(window, (*_NOWHERE, None, None)), int(of.index[part][row])),
            of.class_names[int(of.class_code[part][row])],
            _named(of.prompt_ids, prompts[row]),
            _named(of.sessions, sessions[row]),
            turns[row],
            _named(of.phases, phases[row]),
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
        *(("arrival", "text"), ("offered_per_s", "float")),
    )
    found = []
    for one in records.windows:
        boot = boots.get(one.boot_id)
        of = (boot.block, boot.arm, boot.attempt, boot.position, boot.status.value) if boot else (None,) * 5
        head = (one.id, one.boot_id, *of, one.load, one.kind.value, one.class_name, one.concurrency, one.planned)
        meant = (one.arrival.kind.value, one.arrival.rate) if one.arrival else (ArrivalKind.CLOSED.value, None)
        found.append((*head, one.started_ns, one.ended_ns, one.client_lag_max_ns, one.host_busy, *meant))
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


def phases(analysis: Analysis) -> Rows:
    """Agent sessions: one row per arm, load and phase, then per turn (from 0); seconds and fractions."""
    columns = (
        *(("arm", "text"), ("load", "text"), ("phase", "text"), ("turn", "int"), ("boots", "int")),
        *(("requests", "int"), ("completed", "int"), ("output_tokens", "float"), ("ttft_s", "float")),
        *(("tpot_s", "float"), ("e2e_s", "float"), ("cached_share", "float"), ("drafted_steps", "float")),
        *(("mean_accepted_length", "float"), *((f"mean_accepted_length_{name}", kind) for name, kind in _ESTIMATE)),
        *(("acceptance_rate", "float"), *((f"acceptance_rate_{name}", kind) for name, kind in _ESTIMATE)),
        *(("level", "float"), ("method", "text"), ("reason", "text")),
    )
    found: list[tuple[object, ...]] = []
    for one in analysis.phases:
        length = one.mean_accepted_length
        how = (length.level, length.method, None) if isinstance(length, Interval) else (None, None, length.reason)
        head = (one.arm, one.load, one.phase, one.turn, one.boots, one.requests, one.done, one.output_tokens)
        speed = (one.ttft_s, one.tpot_s, one.e2e_s, one.cached_share, one.drafted_steps)
        found.append((*head, *speed, *_bounded(length), *_bounded(one.rate), *how))
    return Rows("phases", columns, iter([found]))


def arrivals(analysis: Analysis) -> Rows:
    """Every window of an open loop, the steps of searches included; requests per second, seconds and fractions."""
    columns = (
        *(("arm", "text"), ("load", "text"), ("block", "int"), ("search", "bool"), ("planned_per_s", "float")),
        *(("offered_per_s", "float"), ("sent_per_s", "float"), ("achieved_per_s", "float"), ("late_p95_s", "float")),
        *(("in_flight", "float"), ("saturated", "text"), ("attained", "float"), ("carried", "bool")),
    )
    found = [tuple(getattr(one, name) for name, _ in columns) for one in analysis.open_windows]
    return Rows("arrivals", columns, iter([found]))


def _bounded(value: Estimate | None) -> tuple[float | None, float | None, float | None]:
    """Estimate, low and high; where only one side is known, that side alone."""
    if not isinstance(value, Interval):
        return None, None, None
    if value.bound:
        return (None, value.low, None) if value.bound == AT_LEAST else (None, None, value.high)
    return value.estimate, value.low, value.high


def _named(names: tuple[str, ...], code: int | None) -> str | None:
    return names[code] if code is not None and 0 <= code < len(names) else None


def _codes(codes: np.ndarray | None, part: slice) -> list[int | None]:
    """None for the codes of rows that have none, and throughout where no row has one."""
    return _integers(codes[part]) if codes is not None else [None] * BATCH


def _integers(column: np.ndarray) -> list[int | None]:
    return [None if value < 0 else value for value in column.tolist()]


def _floats(column: np.ndarray) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in column.tolist()]
