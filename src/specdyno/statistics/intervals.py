"""Estimates with their uncertainty: an interval, or undefined with the reason.

A bare float cannot reach a gate. Every interval prints its level, its method and the number of units behind it. The
quantiles come from `scipy.special`, which loads in a tenth of the time of `scipy.stats`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

SPREAD_FLOOR = 0.002
"""Smallest standard deviation of a log ratio that is believed: what repeats within one boot differ by."""


AT_LEAST, AT_MOST = "at least", "at most"


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate between `low` and `high` at a two-sided `level`, from `count` independent units.

    With a `bound` only one side is known: `AT_LEAST` that the truth is not below `low`, `AT_MOST` that it is not above
    `high`; `estimate` and the other side then describe the bounds themselves.
    """

    estimate: float
    low: float
    high: float
    level: float  # e.g. 0.95
    method: str  # "t over blocks", "bootstrap over requests, within one boot", ...
    count: int
    bound: str = ""


@dataclass(frozen=True, slots=True)
class Undefined:
    """No number: too little data, or none. `reason` is a short phrase for people."""

    reason: str
    count: int = 0


Estimate = Interval | Undefined


def spread(values: Sequence[float]) -> float | None:
    """Standard deviation with n - 1; None below two values. No floor.

    >>> spread([1.0, 3.0])
    1.4142135623730951
    """
    return float(np.std(np.asarray(values, dtype=float), ddof=1)) if len(values) > 1 else None


def t_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t: `t_quantile(0.975, 3)` is 3.182."""
    return float(special.stdtrit(degrees, probability))


def t_interval(values: Sequence[float], level: float, *, floor: float = 0.0, method: str = "t over blocks") -> Estimate:
    """Mean of independent, near-normal values between mean -+ t s / sqrt(n).

    Args:
        values: one per independent unit, on the scale where they are near-normal (log ratios, logits).
        level: two-sided, e.g. 0.95.
        floor: s below it is replaced by it, so that a few lucky repeats cannot claim certainty.
        method: printed with the interval.

    >>> t_interval([0.1, 0.2, 0.3, 0.4], 0.95).low
    0.04457...
    """
    if len(values) == 0:
        return Undefined("not measured")
    if len(values) == 1:
        return Undefined("one block: no spread between boots", 1)
    mean = math.fsum(values) / len(values)
    s = max(spread(values) or 0.0, floor)
    half = t_quantile(0.5 + level / 2, len(values) - 1) * s / math.sqrt(len(values))
    if not (math.isfinite(mean) and math.isfinite(half)):
        return Undefined("not a finite number", len(values))
    return Interval(mean, mean - half, mean + half, level, method, len(values))


def exponentiated(estimate: Estimate) -> Estimate:
    """From the scale of logs to that of ratios."""
    if isinstance(estimate, Undefined):
        return estimate
    with np.errstate(over="ignore"):  # what overflows is caught below
        parts = [float(np.exp(part)) for part in (estimate.estimate, estimate.low, estimate.high)]
    if not all(math.isfinite(part) for part in parts):
        return Undefined("not a finite number", estimate.count)
    return replace(estimate, estimate=parts[0], low=parts[1], high=parts[2])


def spread_interval(s: float, count: int, level: float) -> tuple[float, float]:
    """Where the true standard deviation lies, from `s` of `count` near-normal values (chi-square)."""
    degrees = count - 1
    tail = (1 - level) / 2
    return (
        s * math.sqrt(degrees / float(special.chdtri(degrees, tail))),
        s * math.sqrt(degrees / float(special.chdtri(degrees, 1 - tail))),
    )


def wilson(successes: float, count: float, level: float, *, method: str = "Wilson") -> Estimate:
    """Score interval of a share (Wilson 1927): `wilson(5, 10, 0.95)` is 0.237 to 0.763."""
    if count <= 0:
        return Undefined("none counted")
    z = float(special.ndtri(0.5 + level / 2))
    share = successes / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(max(0.0, share * (1 - share) / count + z * z / (4 * count * count)))
    low, high = max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))
    return Interval(share, low, high, level, method, int(count))


def clopper_pearson(successes: int, count: int, level: float) -> Estimate:
    """Exact interval of a share (Clopper and Pearson 1934): 0 of 10 lies below 0.3085 at 95 %."""
    if count <= 0:
        return Undefined("none counted")
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else float(special.betaincinv(successes, count - successes + 1, tail))
    high = 1.0 if successes == count else float(special.betaincinv(successes + 1, count - successes, 1 - tail))
    return Interval(successes / count, low, high, level, "Clopper-Pearson over requests", count)


def difference_of_shares(candidate: tuple[int, int], baseline: tuple[int, int], level: float) -> Estimate:
    """Candidate's share minus baseline's by Newcombe's hybrid of Wilson intervals (1998, method 10).

    Args:
        candidate: (successes, count).
        baseline: (successes, count).
        level: two-sided.

    >>> difference_of_shares((56, 70), (48, 80), 0.95).low
    0.0524...
    """
    first, second = wilson(*candidate, level), wilson(*baseline, level)
    if isinstance(first, Undefined) or isinstance(second, Undefined):
        return Undefined("none counted")
    difference = first.estimate - second.estimate
    low = difference - math.hypot(first.estimate - first.low, second.high - second.estimate)
    high = difference + math.hypot(first.high - first.estimate, second.estimate - second.low)
    count = candidate[1] + baseline[1]
    return Interval(difference, low, high, level, "Newcombe over requests", count)
