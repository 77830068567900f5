"""Up to which concurrency speculation pays: the crossover of a ladder of closed loops, per class.

y_b(n) is the paired log ratio of the time per job at concurrency n, above 0 where the candidate is better; between two
rungs it is taken as linear in log n. The crossover is where its mean falls through 0, and its interval holds every n
whose t interval over blocks contains 0 (inversion of the pointwise test, as Fieller's for a ratio). Nothing is said
beyond the rungs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from specdyno.plan.schema import Load
from specdyno.statistics.analysis import Contrast, Ladder, Rung, Trend
from specdyno.statistics.intervals import SPREAD_FLOOR, Interval, t_interval

MEASURE = "time_per_job"
LEVEL = 0.95
_STEPS = 32  # between two rungs


def ladders(loads: Sequence[Load], contrasts: Sequence[Contrast]) -> tuple[Ladder, ...]:
    """Every ladder among the plan's loads, for each candidate and class that has a contrast at two rungs or more."""
    found = []
    for load in loads:
        if load.ladder is None:
            continue
        rungs = {rung.name: rung.concurrency or 0 for rung in load.rungs()}
        cells: dict[tuple[str, str | None], list[Rung]] = {}
        for one in contrasts:
            if one.load in rungs and one.measure == MEASURE:
                cells.setdefault((one.candidate, one.class_name), []).append(Rung(rungs[one.load], one))
        for (candidate, class_name), steps in cells.items():
            ordered = tuple(sorted(steps, key=lambda rung: rung.concurrency))
            found.append(_ladder(candidate, load.name, class_name=class_name, rungs=ordered))
    return tuple(found)


def _ladder(candidate: str, name: str, *, class_name: str | None, rungs: tuple[Rung, ...]) -> Ladder:
    means = [_mean(rung) for rung in rungs]
    if len(rungs) < 2 or any(mean is None for mean in means):
        return Ladder(candidate, name, class_name, rungs, Trend.UNDECIDED)
    signs = [mean is not None and mean > 0 for mean in means]
    if all(signs) or not any(signs):
        trend = Trend.PAYS if signs[0] else Trend.LOSES
        low, high = _edge(rungs)
        return Ladder(candidate, name, class_name, rungs, trend, None, low, high)
    falls = [index for index, (here, there) in enumerate(pairwise(signs)) if here and not there]
    if len(falls) != 1 or sum(here != there for here, there in pairwise(signs)) != 1:
        return Ladder(candidate, name, class_name, rungs, Trend.MIXED)
    low, high = _edge(rungs)
    place = _root(rungs, falls[0], [mean for mean in means if mean is not None])
    return Ladder(candidate, name, class_name, rungs, Trend.CROSSES, place, low, high)


def _mean(rung: Rung) -> float | None:
    values = [y for _, y in rung.contrast.by_block]
    return sum(values) / len(values) if len(values) > 1 else None


def _root(rungs: tuple[Rung, ...], at: int, means: list[float]) -> float:
    """Where the line between two rungs, in log concurrency, meets 0."""
    near, deep = math.log(rungs[at].concurrency), math.log(rungs[at + 1].concurrency)
    return math.exp(near + means[at] / (means[at] - means[at + 1]) * (deep - near))


def _edge(rungs: tuple[Rung, ...]) -> tuple[float | None, float | None]:
    """The least and the largest concurrency that cannot be told from a crossover; None: at or beyond the ends.

    Such are the points whose interval holds 0, and both neighbours of a turn that falls between two decided points.
    """
    grid = list(_grid(rungs))
    undecided = [n for n, low, high in grid if low <= 0 <= high]
    turns = [n for here, there in pairwise(grid) if here[1] > 0 > there[2] for n in (here[0], there[0])]
    if not (possible := undecided + turns):
        return None, None
    first, last = grid[0][0], grid[-1][0]
    low = None if first in undecided else min(possible)
    high = None if last in undecided else max(possible)
    return low, high


def _grid(rungs: tuple[Rung, ...]) -> Sequence[tuple[float, float, float]]:
    """(concurrency, low, high) of the mean of y_b, from the first rung to the last."""
    points = []
    for near, deep in pairwise(rungs):
        ours, theirs = dict(near.contrast.by_block), dict(deep.contrast.by_block)
        steps = range(_STEPS if deep is not rungs[-1] else _STEPS + 1)
        for step in steps:
            weight = step / _STEPS
            span = math.log(near.concurrency), math.log(deep.concurrency)
            low, high = _between(ours, theirs, weight)
            points.append((math.exp(span[0] + weight * (span[1] - span[0])), low, high))
    return points


def _between(near: Mapping[int, float], deep: Mapping[int, float], weight: float) -> tuple[float, float]:
    """The t interval over blocks of y between two rungs; the whole line where there are fewer than two blocks."""
    values = [(1 - weight) * near[block] + weight * deep[block] for block in sorted(near.keys() & deep.keys())]
    found = t_interval(values, LEVEL, floor=SPREAD_FLOOR)
    return (found.low, found.high) if isinstance(found, Interval) else (-math.inf, math.inf)
