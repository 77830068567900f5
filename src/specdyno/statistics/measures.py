"""The registry of measures: one place for name, unit, direction, definition and the smallest count.

Every value is a ratio of sums over one window, or a quantile of its requests; never a mean of per-request ratios. A
window where a measure cannot be formed gives None. Direction: +1 higher is better, -1 lower is better, 0 neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from specdyno.statistics.service import goodput
from specdyno.statistics.windows import WindowView


class Scope(StrEnum):
    """What a measure's value is a property of."""

    SPAN = "span"  # throughput over the span of full occupancy
    REQUESTS = "requests"  # all completed requests of the window


@dataclass(frozen=True, slots=True)
class Measure:
    """`of` gives the value of a window (or of one class's cut of it), None where it cannot be formed."""

    name: str
    unit: str
    direction: int
    definition: str
    scope: Scope
    smallest_count: int  # scored requests of an arm over all blocks, below which it is undefined
    of: Callable[[WindowView], float | None]

    @property
    def sign(self) -> int:
        """Factor that makes a log ratio positive where the candidate is better; neutral measures keep theirs."""
        return -1 if self.direction < 0 else 1


def _ratio(numerator: float, denominator: float) -> float | None:
    if not (math.isfinite(numerator) and math.isfinite(denominator)) or denominator <= 0:
        return None
    return numerator / denominator


def _output_tokens_per_s(view: WindowView) -> float | None:
    if view.span_s is None or not view.done.any():
        return None
    tokens = view.column("tokens")[view.done]  # one unknown count makes the sum unknown, not smaller
    return _ratio(float(np.sum(tokens * view.share[view.done])), view.span_s)


def _jobs_per_s(view: WindowView) -> float | None:
    if view.span_s is None:
        return None
    return _ratio(float(np.sum(view.share[view.done])), view.span_s)


def _time_per_job(view: WindowView) -> float | None:
    if view.record.arrival is not None:  # open loop or sessions: what a job took, queueing included
        return _e2e(view)
    jobs_per_s = _jobs_per_s(view)
    return _ratio(view.record.concurrency or 0, jobs_per_s) if jobs_per_s else None


def _tpot(view: WindowView) -> float | None:
    tokens, first, last = (view.column(name) for name in ("tokens", "first_text_ns", "last_text_ns"))
    with np.errstate(invalid="ignore"):
        keep = view.done & (tokens >= 2) & (first >= 0) & (last > first)
    return _ratio(float(np.sum(last[keep] - first[keep])) / 1e9, float(np.sum(tokens[keep] - 1)))


def _mean_wait(view: WindowView, until: str) -> float | None:
    end, start = view.column(until), view.column("intended_ns")
    keep = view.done & (end >= start) & (start >= 0)
    return _ratio(float(np.sum(end[keep] - start[keep])) / 1e9, int(keep.sum()))


def _ttft(view: WindowView) -> float | None:
    return _mean_wait(view, "first_text_ns")


def _e2e(view: WindowView) -> float | None:
    return _mean_wait(view, "ended_ns")


def _stalls_s(view: WindowView) -> np.ndarray:
    gaps = view.column("longest_gap_ns")
    kept: np.ndarray = gaps[view.done & (gaps >= 0)] / 1e9
    return kept


def _stall(view: WindowView) -> float | None:
    stalls = _stalls_s(view)
    return _ratio(float(np.sum(stalls)), len(stalls))


def _quantile(values: np.ndarray, at: float) -> float | None:
    return float(np.quantile(values, at)) if len(values) else None


def _waits_s(view: WindowView, until: str) -> np.ndarray:
    end, start = view.column(until), view.column("intended_ns")
    kept: np.ndarray = (end - start)[view.done & (end >= start) & (start >= 0)] / 1e9
    return kept


def _quantile_of_wait(until: str, at: float) -> Callable[[WindowView], float | None]:
    return lambda view: _quantile(_waits_s(view, until), at)


def _quantile_of_stall(at: float) -> Callable[[WindowView], float | None]:
    return lambda view: _quantile(_stalls_s(view), at)


def _output_tokens_per_job(view: WindowView) -> float | None:
    tokens = view.column("tokens")[view.done]
    return _ratio(float(np.sum(tokens)), len(tokens))


def _failed_share(view: WindowView) -> float | None:
    return _ratio(float(np.sum(~view.done)), len(view.rows))


def _sessions_per_h(view: WindowView) -> float | None:
    """Sessions none of whose turns failed, by the share of their time that lay inside the span."""
    codes = view.requests.session_code
    if codes is None or view.span is None or view.span_s is None:
        return None
    held = view.column("session_code") >= 0
    if not held.any():
        return None
    ids, place = np.unique(view.column("session_code")[held], return_inverse=True)
    whole = np.ones(len(ids), dtype=bool)
    np.logical_and.at(whole, place, view.done[held])
    starts, ends = np.full(len(ids), np.iinfo(np.int64).max), np.zeros(len(ids), np.int64)
    np.minimum.at(starts, place, view.column("sent_ns")[held])
    np.maximum.at(ends, place, view.column("ended_ns")[held])
    inside = np.clip(ends, *view.span) - np.clip(starts, *view.span)
    shares = inside[whole] / np.maximum(1, ends[whole] - starts[whole])
    return _ratio(float(np.sum(shares)) * 3600.0, view.span_s)


LARGEST_RATE = "largest_rate"
OUTPUT_TOKENS_PER_JOB = "output_tokens_per_job"
THROUGHPUT = frozenset({"output_tokens_per_s", "jobs_per_s", "goodput", "sessions_per_h"})
"""Primaries beside which the time per token is guarded: many slow jobs at once may make them look good."""


def _of_one_window_alone(_view: WindowView) -> None:
    """A search takes several windows of a boot: see `service.largest_rate`."""


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure(
            "output_tokens_per_s", "tokens/s", 1,
            "output tokens of completed jobs inside the span of full occupancy / the span",
            Scope.SPAN, 1, _output_tokens_per_s,
        ),
        Measure(
            "jobs_per_s", "jobs/s", 1,
            "completed jobs inside the span of full occupancy / the span; at its borders by the share of their text",
            Scope.SPAN, 1, _jobs_per_s,
        ),
        Measure(
            "time_per_job", "s", -1,
            "concurrency x span of full occupancy / completed jobs inside it; for one class, in an open loop and in "
            "sessions: sum of times from intended send to last byte / completed jobs",
            Scope.SPAN, 1, _time_per_job,
        ),
        Measure(
            "goodput", "jobs/s", 1,
            "completed jobs inside the span that met every limit of the service level / the span",
            Scope.SPAN, 1, goodput,
        ),
        Measure(
            "sessions_per_h", "sessions/h", 1,
            "sessions without a failed turn, by the share of their time inside the span of full occupancy / the span",
            Scope.SPAN, 1, _sessions_per_h,
        ),
        Measure(
            LARGEST_RATE, "jobs/s", 1,
            "largest offered rate that meets the service level in the stated share of requests; between two rates of "
            "the search by attainment, on log rate",
            Scope.REQUESTS, 1, _of_one_window_alone,
        ),
        Measure(
            "tpot", "s", -1,
            "sum of (last text - first text) / sum of (output tokens - 1), over completed jobs with two tokens or more",
            Scope.REQUESTS, 1, _tpot,
        ),
        Measure("ttft", "s", -1, "mean time from intended send to first text", Scope.REQUESTS, 1, _ttft),
        Measure("e2e", "s", -1, "mean time from intended send to last byte", Scope.REQUESTS, 1, _e2e),
        Measure("stall", "s", -1, "mean of each job's longest gap between chunks", Scope.REQUESTS, 1, _stall),
        *(
            Measure(
                f"{name}_p{percent}", "s", -1, f"{percent}th percentile over jobs of the {words}",
                Scope.REQUESTS, least, made(percent / 100),
            )
            for name, words, made in (
                ("ttft", "time from intended send to first text", partial(_quantile_of_wait, "first_text_ns")),
                ("e2e", "time from intended send to last byte", partial(_quantile_of_wait, "ended_ns")),
                ("stall", "longest gap between chunks", _quantile_of_stall),
            )
            for percent, least in ((95, 200), (99, 1000))
        ),
        Measure(
            OUTPUT_TOKENS_PER_JOB, "tokens", 0, "output tokens / completed jobs",
            Scope.REQUESTS, 1, _output_tokens_per_job,
        ),
        Measure(
            "failed_share", "share", -1, "requests that failed or timed out / requests sent",
            Scope.REQUESTS, 1, _failed_share,
        ),
    )
}  # fmt: skip

CLASS_CUT: dict[str, Callable[[WindowView], float | None]] = {
    "time_per_job": _e2e,
    "tpot": _tpot,
    "ttft": _ttft,
    "stall": _stall,
    "output_tokens_per_job": _output_tokens_per_job,
    "failed_share": _failed_share,
}
"""What one class's cut of a mixed window can say: a server batches classes together, so no throughput."""

CLASS_WINDOW: tuple[str, ...] = ("output_tokens_per_s", "jobs_per_s")
"""What a window of one class alone adds."""
