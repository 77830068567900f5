"""One scored window as arrays: its requests, the span of full occupancy, and how much of each job fell into it.

Jobs at the borders of the span count by the share of their text that came inside it, so that a window's throughput
does not depend on where its list happened to start and stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from specdyno.plan.schema import ServiceLevel
from specdyno.records.schema import BootRecord, Outcome, Requests, StudyRecords, WindowKind, WindowRecord
from specdyno.records.spans import scored_span, share_in_span

DONE_CODES = tuple(code for code, outcome in enumerate(Outcome) if outcome.done)


@dataclass(frozen=True)
class WindowView:
    """A window with its requests. `rows` index the study's columns; `share` is each row's part inside the span."""

    record: WindowRecord
    boot: BootRecord
    requests: Requests
    rows: np.ndarray
    span: tuple[int, int] | None
    share: np.ndarray
    level: ServiceLevel | None = None  # of its load's objective

    def column(self, name: str) -> np.ndarray:
        """The window's part of one column of `Requests`."""
        values: np.ndarray = getattr(self.requests, name)[self.rows]
        return values

    @cached_property
    def done(self) -> np.ndarray:
        """True where the request counts as a completed job."""
        return np.isin(self.column("outcome_code"), DONE_CODES)

    @property
    def span_s(self) -> float | None:
        """Seconds of full occupancy; None where there were none."""
        if self.span is None or self.span[1] <= self.span[0]:
            return None
        return (self.span[1] - self.span[0]) / 1e9

    def of_class(self, name: str) -> WindowView:
        """The cut of one class: same window, same span, fewer rows."""
        names = self.requests.class_names
        code = names.index(name) if name in names else -1
        return self.where(self.column("class_code") == code)

    def where(self, keep: np.ndarray) -> WindowView:
        """The rows for which `keep` (bool, shape (N,)) holds: same window, same span."""
        return replace(self, rows=self.rows[keep], share=self.share[keep])


def joined(views: Sequence[WindowView]) -> WindowView:
    """The requests of several windows of one boot as one view; it has no span."""
    first = views[0]
    return replace(first, rows=np.concatenate([view.rows for view in views]), span=None,
                   share=np.concatenate([view.share for view in views]))  # fmt: skip


def view_windows(records: StudyRecords, boots: Sequence[BootRecord]) -> tuple[WindowView, ...]:
    """Every finished mixed or class window of `boots`, in the order of the boots, then of the windows."""
    ids = records.requests.window_id
    order = np.argsort(ids, kind="stable")
    by_boot: dict[int, list[WindowRecord]] = {}
    for window in records.windows:
        if window.kind is not WindowKind.WARM_UP and window.ended_ns is not None:
            by_boot.setdefault(window.boot_id, []).append(window)
    views = []
    for boot in boots:
        for window in by_boot.get(boot.id, []):
            first, last = np.searchsorted(ids[order], [window.id, window.id + 1])
            rows = np.sort(order[first:last])
            views.append(_view(records, boot, window=window, rows=rows))
    return tuple(views)


def _view(records: StudyRecords, boot: BootRecord, *, window: WindowRecord, rows: np.ndarray) -> WindowView:
    requests = records.requests
    sent, ended = requests.sent_ns[rows], requests.ended_ns[rows]
    known = (sent >= 0) & (ended >= sent)
    span = None
    if known.any():
        span = scored_span(
            window,
            intended_ns=requests.intended_ns[rows][known],
            sent_ns=sent[known],
            ended_ns=ended[known],
            session=None if requests.session_code is None else requests.session_code[rows][known],
        )
    share = np.zeros(len(rows))
    if span is not None:
        share = _shares(records, window.id, rows=rows, span=span)
    return WindowView(window, boot, requests, rows, span, share)


def _shares(records: StudyRecords, window_id: int, *, rows: np.ndarray, span: tuple[int, int]) -> np.ndarray:
    """Each row's share inside `span`: by its chunks where they were kept, else by the time of its text."""
    requests, (start, end) = records.requests, span
    sent, ended = requests.sent_ns[rows], requests.ended_ns[rows]
    known = (sent >= 0) & (ended >= sent)
    share = np.where(known & (sent >= start) & (ended <= end), 1.0, 0.0)
    for place in np.flatnonzero(known & (share < 1.0) & (ended > start) & (sent < end)):
        row = rows[place]
        chunks = records.border_chunks.get((window_id, int(requests.index[row])))
        if chunks is not None:
            stamps, sizes = (np.asarray(part) for part in chunks)
            share[place] = share_in_span(stamps, sizes, ended_ns=int(ended[place]), span=span)
        else:
            share[place] = _share_by_time(int(requests.first_text_ns[row]), int(requests.last_text_ns[row]), span=span)
    return share


def _share_by_time(first_ns: int, last_ns: int, *, span: tuple[int, int]) -> float:
    """Text taken as flowing evenly from the first to the last stamp."""
    start, end = span
    if first_ns < 0 or last_ns <= first_ns:
        return 1.0 if start < max(first_ns, last_ns) <= end else 0.0
    return max(0.0, min(last_ns, end) - max(first_ns, start)) / (last_ns - first_ns)
