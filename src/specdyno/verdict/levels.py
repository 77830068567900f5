"""How much doubt one comparison at one look may use up, so that a whole objective errs in at most 2.5 %."""

from __future__ import annotations

from collections.abc import Sequence

ALPHA = 0.05
"""Two-sided; a promote uses the upper half only."""

EQUIVALENCE_ALPHA = 0.10
"""Two one-sided tests at 95 % each: the estimate's 90 % interval must lie within the margins."""


def nominal_level(looks: Sequence[int], alpha: float, m: int) -> float:
    """Two-sided alpha' of one comparison at one look: Bonferroni over candidates and declared looks.

    Args:
        looks: the declared numbers of blocks.
        alpha: two-sided, for the objective as a whole.
        m: candidates declared when confirmation starts; dropping one does not shrink it.

    The chance that any of m candidates is promoted wrongly at any look is at most alpha / 2, whatever the dependence
    between candidates (shared baseline) and looks (shared blocks). Exact for one look and one candidate, else cautious.

    >>> nominal_level([4], 0.05, 1)
    0.05
    """
    return alpha / (max(1, m) * max(1, len(looks)))
