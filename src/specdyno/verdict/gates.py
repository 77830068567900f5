"""One condition each: met, missed or undecided, with the interval it rests on.

All ratios are above 1 where the candidate is better. A gate is met where its bound lies beyond the threshold, missed
where the other bound does; between the two it is undecided, which holds. What was not measured is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scipy import special

from specdyno.statistics.contrasts import bounded_interval, ratio_interval
from specdyno.statistics.intervals import (
    AT_LEAST,
    AT_MOST,
    SPREAD_FLOOR,
    Estimate,
    Interval,
    Undefined,
    difference_of_shares,
    spread,
)
from specdyno.verdict.levels import EQUIVALENCE_ALPHA
from specdyno.verdict.schema import Gate, GateStatus

PRIMARY, TPOT, OUTPUT_LENGTH, FAILED_REQUESTS = "primary", "tpot", "output_length", "failed_requests"


@dataclass(frozen=True, slots=True)
class Checked:
    """A gate with the p-value of being missed, which Holm's procedure needs, and the y_b it rests on."""

    gate: Gate
    p_missed: float
    ys: tuple[float, ...] = ()


def check_ratio(name: str, measure: str, ys: Sequence[float] | Undefined, *, threshold: float, alpha: float) -> Checked:
    """Met where the ratio is shown to be above `threshold`, missed where it is shown to be below.

    Args:
        name: of the gate.
        measure: key of the measures' registry.
        ys: y_b of the look's blocks, positive is better; Undefined where a block lacks one.
        threshold: a ratio, e.g. 1.05 for a minimum gain of 5 %, 1 / 1.05 for a guard of 5 %.
        alpha: two-sided.
    """
    ratio = ys if isinstance(ys, Undefined) else ratio_interval(ys, 1 - alpha)
    status = GateStatus.UNDECIDED
    if isinstance(ratio, Interval):
        if ratio.low > threshold:
            status = GateStatus.MET
        elif ratio.high < threshold:
            status = GateStatus.MISSED
    gate = Gate(name, measure, status, ratio, threshold, alpha)
    if isinstance(ys, Undefined):
        return Checked(gate, 1.0)
    return Checked(gate, _p_below(ys, math.log(threshold)), tuple(ys))


def check_bounds(  # noqa: PLR0913 - a gate, and what is known of its y_b
    name: str,
    measure: str,
    sides: Sequence[tuple[float | None, float | None]],
    ys: Sequence[float] | Undefined,
    *,
    threshold: float,
    alpha: float,
) -> Checked:
    """As `check_ratio`, from what y_b lie between: met and missed each need their own side.

    `ys` are the estimates between them, where every block has one. It carries no y_b on: what more blocks would show
    cannot be told from bounds, which more blocks do not narrow.
    """
    ratio = bounded_interval(sides, () if isinstance(ys, Undefined) else ys, 1 - alpha)
    status = GateStatus.UNDECIDED
    if isinstance(ratio, Interval):
        if ratio.bound != AT_MOST and ratio.low > threshold:
            status = GateStatus.MET
        elif ratio.bound != AT_LEAST and ratio.high < threshold:
            status = GateStatus.MISSED
    return Checked(Gate(name, measure, status, ratio, threshold, alpha), 1.0)


def check_equivalence(
    name: str, measure: str, ys: Sequence[float] | Undefined, *, margin: float, alpha: float
) -> Checked:
    """Met where the ratio is shown to lie within 1 / (1 + margin) and 1 + margin, by two one-sided tests at 95 %.

    Missed where it is shown to lie outside, at `alpha` (two-sided over both sides). `threshold` holds 1 + margin.
    """
    limit = math.log1p(margin)
    ratio = ys if isinstance(ys, Undefined) else ratio_interval(ys, 1 - EQUIVALENCE_ALPHA)
    p_missed = 1.0
    status = GateStatus.UNDECIDED
    if not isinstance(ys, Undefined) and isinstance(ratio, Interval):
        p_missed = min(1.0, 2 * min(_p_below(ys, -limit), _p_below([-y for y in ys], -limit)))
        if -limit < math.log(ratio.low) and math.log(ratio.high) < limit:
            status = GateStatus.MET
        elif p_missed < alpha / 2:
            status = GateStatus.MISSED
    gate = Gate(name, measure, status, ratio, 1 + margin, EQUIVALENCE_ALPHA)
    return Checked(gate, p_missed, () if isinstance(ys, Undefined) else tuple(ys))


def check_failures(candidate: tuple[int, int], baseline: tuple[int, int], *, margin: float, alpha: float) -> Checked:
    """Met where the share of failed requests rose by no more than `margin`; `ratio` is the difference of shares.

    Args:
        candidate: (failed, sent) over the look's blocks.
        baseline: (failed, sent).
        margin: a share, e.g. 0.005.
        alpha: two-sided.

    A candidate of which no request failed meets the gate at any count: to exclude half a percentage point by the bound
    alone takes some thousand requests, and then no interactive load could ever be promoted. The interval is shown.
    """
    estimate: Estimate = difference_of_shares(candidate, baseline, 1 - alpha)
    status, p_missed = GateStatus.UNDECIDED, 1.0
    if isinstance(estimate, Interval):
        if candidate[0] == 0 or estimate.high < margin:
            status = GateStatus.MET
        elif estimate.low > margin:
            status = GateStatus.MISSED
        p_missed = _p_more_failures(candidate, baseline, margin)
    return Checked(Gate(FAILED_REQUESTS, "failed_share", status, estimate, margin, alpha), p_missed)


def settle_guards(guards: Sequence[Checked], *, alpha: float) -> tuple[Checked, ...]:
    """Guards with `missed` decided by Holm's procedure over all of them at alpha / 2; `met` needs no correction."""
    order = sorted(range(len(guards)), key=lambda place: (guards[place].p_missed, place))
    missed: set[int] = set()
    for rank, place in enumerate(order):
        if guards[place].p_missed > alpha / 2 / (len(guards) - rank):
            break
        missed.add(place)
    settled = []
    for place, tested in enumerate(guards):
        status = GateStatus.MISSED if place in missed else tested.gate.status
        if place not in missed and status is GateStatus.MISSED:
            status = GateStatus.UNDECIDED
        settled.append(replace(tested, gate=replace(tested.gate, status=status)))
    return tuple(settled)


def _p_below(ys: Sequence[float], threshold: float) -> float:
    """p-value of "the mean is at least `threshold`" against "it is below"; 1 below two values."""
    s = spread(ys)
    if s is None or not math.isfinite(s):
        return 1.0
    t = (math.fsum(ys) / len(ys) - threshold) / (max(s, SPREAD_FLOOR) / math.sqrt(len(ys)))
    return float(special.stdtr(len(ys) - 1, t))


def _p_more_failures(candidate: tuple[int, int], baseline: tuple[int, int], margin: float) -> float:
    """The smallest one-sided level at which Newcombe's lower bound exceeds the margin, by bisection."""
    low, high = 1e-9, 0.5
    if not _exceeds(candidate, baseline, margin, tail=high):
        return 1.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _exceeds(candidate, baseline, margin, tail=middle) else (middle, high)
    return high


def _exceeds(candidate: tuple[int, int], baseline: tuple[int, int], margin: float, *, tail: float) -> bool:
    estimate = difference_of_shares(candidate, baseline, 1 - 2 * tail)
    return isinstance(estimate, Interval) and estimate.low > margin
