"""The rule of `statistics.md` written a second time, over whole arrays of studies, to count errors by the hundred
thousand. Knows nothing of the verdict's code but its levels; a test holds the two against each other study by study.

Shapes: N studies, n blocks, m candidates, C classes. y is a log ratio, positive is better.
"""

import math

import numpy as np
from scipy import stats

FLOOR = 0.002
HOLD, PROMOTE, REJECT, SCOPED = 0, 1, 2, 3


def bounds(ys, level):
    """Lower and upper bound of the mean over the blocks (axis 1)."""
    n = ys.shape[1]
    half = stats.t.ppf(1 - level / 2, n - 1) * np.maximum(ys.std(axis=1, ddof=1), FLOOR) / math.sqrt(n)
    return ys.mean(axis=1) - half, ys.mean(axis=1) + half


def decide(ys, *, looks, level, threshold):
    """(decisions, look of the decision or 0) of shape (N, m), from y of shape (N, n, m); the primary gate alone."""
    found = np.zeros((ys.shape[0], ys.shape[2]), int)
    when = np.zeros_like(found)
    for look in (look for look in looks if look <= ys.shape[1]):
        low, high = bounds(ys[:, :look], level)
        for decision, crossed in ((PROMOTE, low > threshold), (REJECT, high < threshold)):
            new = crossed & (found == HOLD)
            found[new], when[new] = decision, look
    return found, when


def crossed_cells(cells, *, looks, level_of, threshold):
    """Cells (N, m, C) that Holm's procedure lets cross at any look, from y of (N, n, m, C)."""
    studies, _, m, classes = cells.shape
    crossed = np.zeros((studies, m, classes), bool)
    for look in looks:
        for _ in range(classes):
            left = classes - crossed.sum(axis=2)
            new = np.zeros_like(crossed)
            for count in range(1, classes + 1):
                low, _ = bounds(cells[:, :look], level_of(count))
                new |= (low > threshold) & ~crossed & (left == count)[:, :, None]
            if not new.any():
                break
            crossed |= new
    return crossed
