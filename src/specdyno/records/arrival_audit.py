"""Doubts about how requests arrived: a late client, a queue that grew, histories that were not the engine's own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specdyno.records.queueing import LATE_NS, LATE_SHARE_DOUBT, Queueing, Saturation, queueing
from specdyno.records.schema import ArrivalKind, FindingCode, Requests, Severity, WindowKind, WindowRecord
from specdyno.records.timings import Timings

Doubt = tuple[FindingCode, Severity, str]


def arrival_doubts(window: WindowRecord, requests: Requests, rows: np.ndarray) -> Iterator[Doubt]:
    """What stands against one window; nothing where it is a closed loop."""
    if window.arrival is None or window.arrival.kind is ArrivalKind.CLOSED:
        return
    if window.arrival.kind is ArrivalKind.SESSIONS:
        yield from _history_doubts(requests, rows)
        return
    seen = queueing(Timings.of_columns(requests, rows), window.arrival)
    if seen.client_too_slow:
        yield FindingCode.CLIENT_AT_CEILING, Severity.FORBIDS, _late(seen)
    elif seen.late_share > LATE_SHARE_DOUBT:
        yield FindingCode.CLIENT_AT_CEILING, Severity.DOUBT, _late(seen)
    elif seen.saturated is Saturation.YES and window.kind is not WindowKind.PROBE:  # a search goes there on purpose
        yield FindingCode.SATURATED, Severity.DOUBT, _queue(seen)


def _late(seen: Queueing) -> str:
    return (
        f"sent {_shown(seen.sent_per_s)} of {_shown(seen.offered_per_s)} requests/s; {seen.late_share:.1%} of the "
        f"sends came more than {LATE_NS / 1e6:.0f} ms late, 95 % at most {seen.late_p95_ns / 1e6:.0f} ms"
    )


def _queue(seen: Queueing) -> str:
    rates = f"{_shown(seen.offered_per_s)} requests/s offered and {_shown(seen.achieved_per_s)} done"
    if seen.growth is None:  # requests stayed longer than a quarter of the window: it has no steady part
        return f"{rates}; each request stayed longer than those before it"
    return f"{rates}; the number in flight rose by {_shown(seen.growth)} around a mean of {_shown(seen.in_flight)}"


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def _history_doubts(requests: Requests, rows: np.ndarray) -> Iterator[Doubt]:
    if requests.supplied is None:
        return
    supplied = requests.supplied[rows]
    turns = supplied >= 0
    if (supplied > 0).any():
        detail = f"in {int((supplied > 0).sum())} of {int(turns.sum())} later turns"
        yield FindingCode.HISTORY_SUPPLIED, Severity.NOTE, detail
