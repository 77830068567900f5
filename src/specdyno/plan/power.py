"""What a plan can show: the chance of a promote for a true gain, by simulated studies that look as the verdict looks.

Pure and seeded: the same looks, level and gaps give the same chances on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

STUDIES = 20_000
_SEED = 20_260_802


@dataclass(frozen=True, slots=True)
class Power:
    """Of studies with this truth: the share that promotes and that rejects, and the blocks they take on average."""

    promote: float
    reject: float
    blocks: float


def power(looks: Sequence[int], level: float, gaps: Sequence[float]) -> Power:
    """Chances of one candidate.

    Args:
        looks: the declared numbers of blocks.
        level: two-sided, of one comparison at one look.
        gaps: true value minus threshold in units of s (the spread of y_b), the primary first, then each guard. All
            must lie above their threshold at one look to promote; the primary's upper bound below it rejects.

    Assumes near-normal y_b, the guards independent of the primary (they share boots, so the truth lies between this
    and the weakest gate alone).

    >>> round(power([4, 6, 8, 12], 0.0173, [1.0]).promote, 2)
    0.77
    """
    times = tuple(look for look in looks if look > 1)
    if not times:
        return Power(0.0, 0.0, float(looks[-1]))
    critical = [float(special.stdtrit(n - 1, 1 - level / 2)) / math.sqrt(n) for n in times]
    paths = [_paths(times, _SEED + place) for place in range(len(gaps))]
    open_, promoted, rejected = np.ones(STUDIES, bool), 0, 0
    blocks = np.full(STUDIES, float(times[-1]))
    for place, n in enumerate(times):
        met = np.ones(STUDIES, bool)
        for gap, (means, spreads) in zip(gaps, paths, strict=True):
            met &= means[place] + gap > critical[place] * spreads[place]
        means, spreads = paths[0]
        missed = means[place] + gaps[0] < -critical[place] * spreads[place]
        promoted += int((open_ & met).sum())
        rejected += int((open_ & missed).sum())
        blocks[open_ & (met | missed)] = n
        open_ &= ~(met | missed)
    return Power(promoted / STUDIES, rejected / STUDIES, float(blocks.mean()))


@lru_cache(maxsize=32)
def _paths(looks: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of standard normal y_b at each look; two arrays of shape (looks, STUDIES)."""
    chance = np.random.RandomState(seed)  # the legacy generator: its stream is frozen for good
    mean, squares, seen = np.zeros(STUDIES), np.zeros(STUDIES), 0
    means, spreads = [], []
    for look in looks:
        more = look - seen
        step = chance.standard_normal(STUDIES) / math.sqrt(more) - mean
        squares = squares + step * step * seen * more / look
        if more > 1:
            squares = squares + chance.chisquare(more - 1, STUDIES)
        mean = mean + step * more / look
        seen = look
        means.append(mean)
        spreads.append(np.sqrt(squares / (look - 1)))
    return np.array(means), np.array(spreads)
