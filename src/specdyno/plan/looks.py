"""How much doubt one comparison at one look may use up, so that all looks together err no more often than allowed.

Owns the levels of sequential t tests at declared numbers of blocks: tabulated for common plans (`level_table`, made by
`lab/make_level_table.py` with `simulate` below), simulated on first use for any other. Every level is rounded towards
the cautious side and never lies below Bonferroni's, which needs no simulation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import special

from specdyno.plan.level_table import ALPHAS, PUBLISHED, TABLE
from specdyno.plan.schema import MeasureName, Objective, Plan, Role

ALPHA = 0.05
"""Allowed error of one objective, two-sided; a promote uses the upper half only."""

MIXTURE_SHARE = 0.8
"""Share of an objective's allowed error that the whole traffic keeps where single classes may be promoted too."""

_RUN_TIME_STUDIES = 400_000
_RUN_TIME_DRAWS = 6_000_000  # studies x looks; a plan of many looks gets fewer studies, and lower levels for it
_SEED = 20_260_801
_CERTAINTY = 3.0  # standard errors by which a simulated level is lowered


def nominal_level(looks: Sequence[int], alpha: float, m: int = 1) -> float:
    """Two-sided level of one comparison at one look.

    Args:
        looks: the declared numbers of blocks, rising.
        alpha: two-sided, for all looks together.
        m: comparisons that share `alpha` (Bonferroni: they may depend on one another in any way).

    Assumes near-normal y_b and stopping at the first look at which mean / (s / sqrt(n)) leaves its bounds either way.
    One look needs no correction.

    >>> nominal_level([4], 0.05), nominal_level([4, 6, 8, 12], 0.05)
    (0.05, 0.0173)
    """
    share = alpha / max(1, m)
    # A single block has no spread, so that nothing can cross there.
    times = tuple(look for look in looks if look > 1)
    if len(times) <= 1:
        return share
    if (published := PUBLISHED.get((times, round(share, 9)))) is not None:
        return published
    return _rounded_down(max(share / len(times), share * _fraction_at(share, _fractions(times))))


def cells(plan: Plan, objective: Objective) -> tuple[str, ...]:
    """Classes that may be promoted apart: declared by class windows at the objective's load.

    A job's own time is a class's property at concurrency 1 only: elsewhere the server serves it among others.
    """
    load = plan.load(objective.load)
    classes = plan.classes_at(load)
    pure = objective.measure is not MeasureName.TIME_PER_JOB or load.concurrency == 1
    declared = objective.scopes and load.class_windows and pure and len(classes) > 1
    return classes if declared else ()


def objective_level(plan: Plan, objective: Objective) -> float:
    """Two-sided level of one candidate's whole traffic at one look; the candidates and, if any, the cells share."""
    candidates = sum(arm.role is Role.CANDIDATE for arm in plan.arms())
    alpha = ALPHA * (MIXTURE_SHARE if cells(plan, objective) else 1.0)
    return nominal_level(plan.experiment.looks, alpha, candidates)


def half_width(blocks: int, level: float) -> float:
    """Half-width of the t interval of a mean over `blocks`, in units of s: `half_width(4, 0.0173)` is 2.40."""
    return float(special.stdtrit(blocks - 1, 1 - level / 2)) / math.sqrt(blocks)


def simulate(looks: Sequence[int], studies: int, *, seed: int, largest: float = 0.06) -> np.ndarray:
    """Smallest two-sided p-value over the looks, of each of `studies` studies without any effect; shape (studies,).

    Values above `largest` are only known to lie above it and stand as 1. Between two looks d blocks add a mean with
    variance 1/d and a chi-square of d - 1 degrees to the sum of squares, so blocks need not be drawn one by one.
    """
    chance = np.random.RandomState(seed)  # the legacy generator: its stream is frozen for good
    mean, squares, smallest = np.zeros(studies), np.zeros(studies), np.ones(studies)
    seen = 0
    for look in looks:
        more = look - seen
        step = chance.standard_normal(studies) / math.sqrt(more) - mean
        squares += step * step * seen * more / look
        if more > 1:
            squares += chance.chisquare(more - 1, studies)
        mean += step * more / look
        seen = look
        if seen < 2:
            continue
        t = np.abs(mean) * np.sqrt(seen * (seen - 1) / squares)
        far = np.flatnonzero(t > special.stdtrit(seen - 1, 1 - largest / 2))
        smallest[far] = np.minimum(smallest[far], 2 * special.stdtr(seen - 1, -t[far]))
    return smallest


def cautious_fractions(smallest: np.ndarray, alphas: Sequence[float]) -> tuple[float, ...]:
    """Fraction level / alpha for each of `alphas`: the order statistic three standard errors below the quantile."""
    studies = len(smallest)
    ranks = [int(a * studies - _CERTAINTY * math.sqrt(a * (1 - a) * studies)) for a in alphas]
    ordered = np.sort(np.partition(smallest, max(ranks))[: max(ranks) + 1])
    return tuple(float(ordered[rank]) / a if rank >= 0 else 0.0 for rank, a in zip(ranks, alphas, strict=True))


@lru_cache(maxsize=64)
def _fractions(looks: tuple[int, ...]) -> tuple[float, ...]:
    if (known := TABLE.get(looks)) is not None:
        return known
    studies = min(_RUN_TIME_STUDIES, _RUN_TIME_DRAWS // len(looks))
    return cautious_fractions(simulate(looks, studies, seed=_SEED), ALPHAS)


def _fraction_at(alpha: float, fractions: Sequence[float]) -> float:
    """Fraction level / alpha between tabulated alphas, straight in log alpha; below the smallest nothing is known."""
    logs = np.log(ALPHAS)
    if not logs[0] <= math.log(alpha) <= logs[-1] + 1e-9:
        return 0.0
    return float(np.interp(math.log(alpha), logs, fractions))


def _rounded_down(value: float) -> float:
    """Three significant digits, never more than `value`."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return round(math.floor(value / step + 1e-9) * step, 12)
