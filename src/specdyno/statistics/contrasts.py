"""Candidate against baseline, paired by block, and the baseline against itself.

y_b = d log(candidate / baseline) of one block's pair of boots: positive is always better for the candidate. Across
blocks: Student's t about the mean, s not below its floor, exponentiated to a ratio above 1 where better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from specdyno.records.schema import Finding, FindingCode, Severity
from specdyno.statistics.analysis import Bound, Contrast, Level
from specdyno.statistics.intervals import (
    AT_LEAST,
    AT_MOST,
    SPREAD_FLOOR,
    Estimate,
    Interval,
    Undefined,
    exponentiated,
    spread,
    t_interval,
    t_quantile,
)
from specdyno.statistics.measures import Measure

LEVEL = 0.95
A_A_LEVEL = 0.99
BOUNDED = "t over blocks, on logs, of what each lies between"


def log_ratios(
    candidate: Mapping[int, float], baseline: Mapping[int, float], *, sign: int
) -> tuple[tuple[int, float], ...]:
    """y_b of every block where both values are positive and finite.

    >>> log_ratios({0: 2.0}, {0: 1.0, 1: 1.0}, sign=1)
    ((0, 0.6931471805599453),)
    """
    pairs = ((block, candidate[block], baseline[block]) for block in sorted(candidate.keys() & baseline.keys()))
    return tuple(
        (block, sign * (math.log(theirs) - math.log(ours)))
        for block, theirs, ours in pairs
        if 0 < theirs < math.inf and 0 < ours < math.inf
    )


def ratio_interval(values: Sequence[float], level: float) -> Estimate:
    """The exponential of the mean of y_b with its t interval; s below 0.2 % is taken as 0.2 %."""
    return exponentiated(t_interval(values, level, floor=SPREAD_FLOOR, method="t over blocks, on logs"))


def bounds_of_log_ratios(candidate: Level, baseline: Level) -> tuple[Bound, ...]:
    """What y_b lies between where the arms' values do; for measures of which more is better.

    Doubt is added up: y_b is not below log(least candidate / greatest baseline), nor above the reverse. A side that is
    not known of one arm is not known of y_b.
    """
    mine, theirs = ({block: (low, high) for block, low, high in level.bounds} for level in (candidate, baseline))
    return tuple(
        (block, _log_ratio(mine[block][0], theirs[block][1]), _log_ratio(mine[block][1], theirs[block][0]))
        for block in sorted(mine.keys() & theirs.keys())
    )


def _log_ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or under is None else math.log(over) - math.log(under)


def bounded_interval(sides: Sequence[tuple[float | None, float | None]], ys: Sequence[float], level: float) -> Estimate:
    """The ratio from what y_b lie between, each as (not below, not above); `ys` are the estimates, where all have one.

    The mean of what the y_b are not below is itself not above their mean, so that the lower limit of its t interval is
    one of the ratio too; likewise above. A limit needs every block: where one says nothing of a side, it stays open.
    """
    lows = [low for low, _ in sides if low is not None]
    highs = [high for _, high in sides if high is not None]
    open_low, open_high = len(sides) - len(lows), len(sides) - len(highs)
    if open_low and open_high:
        nothing = sum(low is None and high is None for low, high in sides)
        says = f"say nothing in {nothing}" if nothing else "point both ways"
        return Undefined(f"edges beyond the rates searched {says} of {len(sides)} blocks", len(sides))
    least, most = (ratio_interval(values, level) if values else None for values in (lows, highs))
    if open_low or open_high:
        found = most if open_low else least
        bound = AT_MOST if open_low else AT_LEAST
        return replace(found, bound=bound, method=BOUNDED) if isinstance(found, Interval) else _nothing(found)
    if not isinstance(least, Interval) or not isinstance(most, Interval):
        return _nothing(least)
    middle = math.sqrt(least.estimate * most.estimate)
    estimate = math.exp(math.fsum(ys) / len(ys)) if len(ys) == len(sides) else middle
    return Interval(min(max(estimate, least.low), most.high), least.low, most.high, level, BOUNDED, len(sides))


def _nothing(found: Estimate | None) -> Undefined:
    return found if isinstance(found, Undefined) else Undefined("not measured")


def contrast(
    values: tuple[tuple[int, float], ...],
    bounds: tuple[Bound, ...] = (),
    *,
    measure: Measure,
    cell: tuple[str, str, str | None],
    decides: bool,
) -> Contrast:
    """One contrast from its y_b and, of a search, what each lies between.

    `cell` is (candidate, load, class name or None).
    """
    ys = [y for _, y in values]
    ratio: Estimate = Undefined("not measured in both arms of any block")
    if bounds:
        ratio = bounded_interval([(low, high) for _, low, high in bounds], ys, LEVEL)
    elif ys:
        ratio = ratio_interval(ys, LEVEL)
    return Contrast(*cell, measure.name, ratio, values, spread(ys), exploratory=not decides, bounds=bounds)


def a_a_finding(again: Contrast, others: Sequence[Contrast]) -> Finding | None:
    """Doubt where the baseline differs from itself by more than boots do.

    The mean of n pairs of baseline boots is predicted to lie within -+ t s / sqrt(n) of zero at 99 %, with s pooled
    from the candidates' y_b of the same load and measure and not below its floor. Fewer than two blocks give no s.
    """
    ys = [y for _, y in again.by_block]
    spreads = [(contrast.spread, len(contrast.by_block) - 1) for contrast in others if contrast.spread is not None]
    degrees = sum(n for _, n in spreads)
    if not ys or degrees == 0:
        return None
    pooled = math.sqrt(sum(s * s * n for s, n in spreads if s is not None) / degrees)
    limit = t_quantile(0.5 + A_A_LEVEL / 2, degrees) * max(pooled, SPREAD_FLOOR) / math.sqrt(len(ys))
    mean = float(np.mean(ys))
    if abs(mean) <= limit:
        return None
    detail = (
        f"the baseline differs from itself by {math.expm1(mean):+.1%} in {again.measure}; boots explain {limit:.1%}"
    )
    return Finding(FindingCode.A_A_BEYOND_SPREAD, Severity.FORBIDS, again.load, detail, load=again.load)
