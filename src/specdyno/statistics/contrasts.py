"""Candidate against baseline, paired by block, and the baseline against itself.

y_b = d log(candidate / baseline) of one block's pair of boots: positive is always better for the candidate. Across
blocks: Student's t about the mean, s not below its floor, exponentiated to a ratio above 1 where better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from specdyno.records.schema import Finding, FindingCode, Severity
from specdyno.statistics.analysis import Contrast
from specdyno.statistics.intervals import (
    SPREAD_FLOOR,
    Estimate,
    Undefined,
    exponentiated,
    spread,
    t_interval,
    t_quantile,
)
from specdyno.statistics.measures import Measure

LEVEL = 0.95
A_A_LEVEL = 0.99


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


def contrast(
    values: tuple[tuple[int, float], ...], *, measure: Measure, cell: tuple[str, str, str | None], decides: bool
) -> Contrast:
    """One contrast from its y_b; `cell` is (candidate, load, class name or None)."""
    ys = [y for _, y in values]
    ratio = ratio_interval(ys, LEVEL) if ys else Undefined("not measured in both arms of any block")
    return Contrast(*cell, measure.name, ratio, values, spread(ys), exploratory=not decides)


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
