"""From rows to columns: every request of a study as arrays, and the counts by position that acceptance is made of.

Owns `position_counts` (pure) and the one query that `judge` reads its requests with. Text and chunk stamps lie in
another table, so that a million requests are read without touching them; only of failed ones it takes what went wrong.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from specdyno.records.encoding import Floats, Int64s, read_chunks, read_counts, read_text
from specdyno.records.schema import Outcome, Requests, SpecSteps, WindowKind, WindowRecord
from specdyno.records.spans import in_flight_at_border, scored_span

POSITION_LIMIT = 128  # longest draft a plan may ask for; a longer vector is no acceptance record but damage

_BATCH = 20_000
_STAMPS = (
    "window_id",
    "list_index",
    "intended_ns",
    "sent_ns",
    "first_text_ns",
    "last_text_ns",
    "last_byte_ns",
    "longest_gap_ns",
    "chunks",
    "turn",
    "supplied",
)
_NUMBERS = ("completion_tokens", "prompt_tokens", "cached_tokens", "spec_steps", "spec_drafted", "spec_accepted")
_ERROR_CHARS = 500
_NAMES = ("class_name", "prompt_id", "session", "phase", "spec_source", "outcome", "status", "error", "spec_counts")
_DONE = ", ".join(f"'{outcome.value}'" for outcome in Outcome if outcome.done)
# Of failed requests only: the table of answers is not touched for the others.
_ERROR = f"""CASE WHEN outcome NOT IN ({_DONE}) THEN (
        SELECT nullif(substr(error, 1, {_ERROR_CHARS}), '') FROM answer WHERE request_id = request.id) END"""  # noqa: S608 - constants
_QUERY = f"""
    SELECT {", ".join(f"ifnull({name}, -1)" for name in _STAMPS)},
        {", ".join(_ERROR if name == "error" else name for name in (*_NUMBERS, *_NAMES))}
    FROM request ORDER BY window_id, list_index
"""  # noqa: S608 - the names are the constants above


def position_counts(spec: SpecSteps) -> tuple[Floats, Floats] | None:
    """Steps of one request that reached position i, and steps that were at risk there; None where not reported.

    Both have shape (K,), i from 0. n_i: steps that accepted at least i+1 tokens. d_i: steps that proposed at least i+1
    tokens and had accepted at least i; so c_(i+1) = n_i / d_i (Kaplan-Meier). From per-step lists both are exact. A
    histogram gives n_i always, and d_i only where every drafted step proposed exactly K (`num_draft_tokens == K *
    num_spec_steps`); else d_i is NaN.
    """
    accepted, drafted = spec.per_step_accepted, spec.per_step_drafted
    if accepted is not None and drafted is not None and _steps_agree(accepted, drafted):
        return _counts_from_steps(np.array(accepted, np.int64), np.array(drafted, np.int64), spec.num_spec_tokens or 0)
    histogram = spec.acceptance_histogram
    if histogram is None and accepted is not None and _within_limit(accepted):
        histogram = tuple(np.bincount(np.array(accepted, np.int64)).tolist())
    if histogram is None or not 1 <= len(histogram) <= POSITION_LIMIT + 1 or min(histogram) < 0:
        return None
    return _counts_from_histogram(np.array(histogram, np.float64), spec)


def _within_limit(counts: Sequence[int]) -> bool:
    return all(0 <= count <= POSITION_LIMIT for count in counts)


def _steps_agree(accepted: Sequence[int], drafted: Sequence[int]) -> bool:
    return (
        len(accepted) == len(drafted)
        and _within_limit(drafted)
        and all(0 <= a <= d for a, d in zip(accepted, drafted, strict=True))
    )


def _counts_from_steps(accepted: Int64s, drafted: Int64s, k: int) -> tuple[Floats, Floats] | None:
    positions = max(min(k, POSITION_LIMIT), int(drafted.max(initial=0)))
    if positions == 0:
        return None
    i = np.arange(positions)[:, np.newaxis]
    reached = (accepted > i).sum(axis=1)
    at_risk = ((drafted > i) & (accepted >= i)).sum(axis=1)
    return reached.astype(np.float64), at_risk.astype(np.float64)


def _counts_from_histogram(histogram: Floats, spec: SpecSteps) -> tuple[Floats, Floats] | None:
    k, steps = spec.num_spec_tokens, spec.num_spec_steps
    longest = int(np.flatnonzero(histogram).max(initial=0))
    positions = max(len(histogram) - 1, min(k or 0, POSITION_LIMIT))
    if positions == 0:
        return None
    at_least = np.zeros(positions + 1)
    at_least[: len(histogram)] = np.cumsum(histogram[::-1])[::-1]
    reached, at_risk = at_least[1:], np.full(positions, np.nan)
    every_step_drafted_k = (
        k is not None
        and steps is not None
        and longest <= k <= positions
        and spec.num_draft_tokens == k * steps
        and at_least[0] == steps
    )
    if every_step_drafted_k:
        at_risk = np.where(np.arange(positions) < (k or 0), at_least[:-1], 0.0)
    return reached, at_risk


def read_columns(connection: sqlite3.Connection) -> Requests:
    """All requests of a study, ordered by window and place in its list. ValueError or KeyError where a row is damaged.

    Holds one batch of rows at a time; names become codes in order of first use.
    """
    count, widest = connection.execute("SELECT count(*), ifnull(max(length(spec_counts)), 0) FROM request").fetchone()
    positions = widest // 8
    stamps = np.empty((len(_STAMPS), count), np.int64)
    numbers = np.empty((len(_NUMBERS), count), np.float64)
    reached, at_risk = np.empty((count, positions)), np.empty((count, positions))
    classes, prompts, outcomes = np.empty(count, np.int16), np.empty(count, np.int64), np.empty(count, np.int8)
    sessions, phases = np.empty(count, np.int64), np.empty(count, np.int16)
    class_codes: dict[str | bytes, int] = {}
    prompt_codes: dict[str | bytes, int] = {}
    session_codes: dict[str | bytes, int] = {}
    phase_codes: dict[str | bytes, int] = {}
    errors = np.empty(count, np.int64)
    error_codes: dict[str | bytes, int] = {}
    sources: dict[str | bytes, None] = {}
    outcome_codes = {outcome.value: code for code, outcome in enumerate(Outcome)}
    for rows, columns in _batches(connection):
        for row, column in zip(stamps, columns, strict=False):
            row[rows] = column
        for row, column in zip(numbers, columns[len(_STAMPS) :], strict=False):
            row[rows] = np.array(column, np.float64)  # None becomes NaN
        class_names, prompt_ids, session_ids, phase_names, spec_sources, outcome_names, *told, blobs = columns[
            -len(_NAMES) :
        ]
        classes[rows] = _codes(class_names, class_codes)
        prompts[rows] = _codes(prompt_ids, prompt_codes)
        sessions[rows] = _codes(session_ids, session_codes)
        phases[rows] = _codes(phase_names, phase_codes)
        sources.update(dict.fromkeys(source for source in spec_sources if source is not None))
        errors[rows] = _codes(map(_told, *told), error_codes)
        outcomes[rows] = [outcome_codes[name] for name in outcome_names]
        reached[rows], at_risk[rows] = read_counts(blobs, positions)
    window_id, index, intended, sent, first_text, last_text, ended, longest_gap, chunks, turn, supplied = stamps
    tokens, prompt_tokens, cached_tokens, spec_steps, spec_drafted, spec_accepted = numbers
    return Requests(
        window_id=window_id,
        index=index,
        class_code=classes,
        outcome_code=outcomes,
        intended_ns=intended,
        sent_ns=sent,
        first_text_ns=first_text,
        last_text_ns=last_text,
        ended_ns=ended,
        longest_gap_ns=longest_gap,
        chunks=chunks,
        tokens=tokens,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        spec_steps=spec_steps,
        spec_drafted=spec_drafted,
        spec_accepted=spec_accepted,
        class_names=tuple(read_text(name) for name in class_codes),
        spec_reached=reached,
        spec_at_risk=at_risk,
        spec_source=tuple(read_text(source) for source in sources),
        prompt_ids=tuple(read_text(prompt) for prompt in prompt_codes),
        prompt_code=prompts,
        sessions=tuple(read_text(session) for session in session_codes),
        session_code=sessions,
        turn=turn,
        phases=tuple(read_text(phase) for phase in phase_codes),
        phase_code=phases,
        supplied=supplied,
        errors=tuple(str(error) for error in error_codes),
        error_code=errors,
    )


def _told(status: int | None, error: str | bytes | None) -> str | None:
    """What a request was told that went wrong, with the status of an HTTP error before it."""
    if error is None:
        return None
    text = read_text(error) if isinstance(error, str) else error.decode(errors="replace")
    return text if status in (None, 200) else f"HTTP {status}: {text}"


def _batches(connection: sqlite3.Connection) -> Iterator[tuple[slice, list[tuple[Any, ...]]]]:
    """The rows of the query by batch: where they stand, and one tuple per selected column."""
    cursor = connection.execute(_QUERY)
    start = 0
    while batch := cursor.fetchmany(_BATCH):
        yield slice(start, start + len(batch)), list(zip(*batch, strict=True))
        start += len(batch)


def _codes(names: Iterable[str | bytes | None], codes: dict[str | bytes, int]) -> list[int]:
    """Codes in order of first use; -1 where there is no name."""
    return [-1 if name is None else codes.setdefault(name, len(codes)) for name in names]


def read_border_chunks(
    connection: sqlite3.Connection, windows: Iterable[WindowRecord], requests: Requests
) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
    """Chunk stamps and sizes of the requests in flight at a border of the span of each whole, scored window.

    Keyed by (window id, index in its list); both arrays are empty where a request carried no text.
    """
    chunks: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
    for window in windows:
        if window.kind is WindowKind.WARM_UP or window.ended_ns is None:
            continue
        first, last = np.searchsorted(requests.window_id, [window.id, window.id + 1])
        sent, ended = requests.sent_ns[first:last], requests.ended_ns[first:last]
        span = scored_span(
            window,
            intended_ns=requests.intended_ns[first:last],
            sent_ns=sent,
            ended_ns=ended,
            session=None if requests.session_code is None else requests.session_code[first:last],
        )
        if span is None:
            continue
        for index in requests.index[first:last][in_flight_at_border(sent, ended, span)].tolist():
            (blob,) = connection.execute(
                "SELECT chunk_stamps FROM answer WHERE request_id = "
                "(SELECT id FROM request WHERE window_id = ? AND list_index = ?)",
                (window.id, index),
            ).fetchone()
            chunks[window.id, index] = read_chunks(blob)
    return chunks
