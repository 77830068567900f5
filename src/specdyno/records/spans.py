"""When a closed loop was full, and how much of a job fell into that span.

Pure. Owns the span over which a window's rates are taken (`statistics` divides by its length): ramp and drain, in
which fewer requests are in flight than the load asks for, lie outside. A chunk is not a token: a job's tokens are
spread over its chunks by the characters each chunk carried.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdyno.records.schema import ArrivalKind, WindowRecord

Int64s = npt.NDArray[np.int64]

_NEVER = np.iinfo(np.int64).max


def scored_span(
    window: WindowRecord, *, intended_ns: Int64s, sent_ns: Int64s, ended_ns: Int64s, session: Int64s | None = None
) -> tuple[int, int] | None:
    """The stretch of a window that is scored, or None if it has none. All arrays have one entry per request.

    Closed loop: full occupancy. Sessions: full occupancy of sessions, each from its first send to its last end, pauses
    included. Open loop and traces: from the first intended send to the last, while the load was offered.
    """
    kind = window.arrival.kind if window.arrival is not None else ArrivalKind.CLOSED
    if kind is ArrivalKind.CLOSED:
        return None if window.concurrency is None else full_occupancy(sent_ns, ended_ns, window.concurrency)
    known = (sent_ns >= 0) & (ended_ns >= sent_ns)
    if not known.any():
        return None
    if kind is not ArrivalKind.SESSIONS:
        first, last = int(intended_ns[known].min()), int(intended_ns[known].max())
        return (first, last) if last > first else None
    if session is None or window.concurrency is None:
        return None
    ids, place = np.unique(session[known], return_inverse=True)
    starts, ends = np.full(len(ids), np.iinfo(np.int64).max), np.zeros(len(ids), np.int64)
    np.minimum.at(starts, place, sent_ns[known])
    np.maximum.at(ends, place, ended_ns[known])
    return full_occupancy(starts, ends, window.concurrency)


def full_occupancy(sent_ns: Int64s, ended_ns: Int64s, concurrency: int) -> tuple[int, int] | None:
    """The span of one window in which `concurrency` requests were in flight, or None if there was none.

    From the send that first brings the number in flight to `concurrency` until the first end that no send follows: of N
    requests, N - `concurrency` are sent because another ended, so it is the end after that many. (Not the first end
    after the last send: requests of one batch end together, and some of them before that send.) Between an end and the
    next send of the same loop one request is missing for a moment; that does not end the span. At concurrency 1: from
    the first send to the last end.

    `sent_ns` and `ended_ns` have shape (N,), in any order; an end of -1 is unknown and never comes.

    >>> full_occupancy(np.array([0, 1, 10]), np.array([9, 20, 30]), 2)
    (1, 20)
    """
    if len(sent_ns) < concurrency or concurrency < 1:
        return None
    sent = np.sort(sent_ns)
    known = np.sort(ended_ns[ended_ns >= 0])
    if len(known) == 0:
        return None
    if concurrency == 1:
        start, end = int(sent[0]), int(known[-1])
        return (start, end) if end > start else None
    # An end at the very stamp of a send is the one that made room for it.
    in_flight = np.arange(1, len(sent) + 1) - np.searchsorted(known, sent, side="right")
    full = np.flatnonzero(in_flight >= concurrency)
    refills = len(sent) - concurrency
    if len(full) == 0 or len(known) <= refills or known[refills] <= sent[full[0]]:
        return None
    return int(sent[full[0]]), int(known[refills])


def in_flight_at_border(sent_ns: Int64s, ended_ns: Int64s, span: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Which requests were in flight at the start or the end of `span`, the borders themselves included."""
    ended = np.where(ended_ns >= 0, ended_ns, _NEVER)
    start, end = span
    at_start = (sent_ns <= start) & (ended >= start)
    at_end = (sent_ns <= end) & (ended >= end)
    return at_start | at_end


def share_in_span(chunk_ns: Int64s, chunk_chars: Int64s, *, ended_ns: int, span: tuple[int, int]) -> float:
    """The share, 0 to 1, of one job's tokens that arrived inside `span`, by the characters of its chunks.

    A chunk belongs to the span if it arrived after the start and not after the end. A job without text in chunks
    counts whole, by where it ended; with an unknown end (-1) it counts nothing.

    >>> share_in_span(np.array([5, 15, 25]), np.array([2, 4, 2]), ended_ns=25, span=(0, 20))
    0.75
    """
    start, end = span
    total = int(chunk_chars.sum())
    if total <= 0:
        return 1.0 if start < ended_ns <= end else 0.0
    inside = (chunk_ns > start) & (chunk_ns <= end)
    return float(chunk_chars[inside].sum() / total)
