"""Which draft lengths a published sweep suggests trying first."""

from __future__ import annotations

from collections.abc import Sequence

from specdyno.plan.schema import Method
from specdyno.published.sweeps import Cell, sweeps

NEAR_BEST = 0.05
MOST = 4


def suggested(found: Sequence[Cell]) -> dict[Method, tuple[int, ...]]:
    """By method: the shortest length and those near the best of any prompt set, none beyond the trained length.

    Near: within 5 % of that sweep's best. At most four a method, those near the best of the most sets; the shortest
    stays, since the cost of a step is read from both ends of a sweep.
    """
    votes: dict[Method, dict[int, int]] = {}
    for (_, method, _), sweep in sweeps(found).items():
        trained = [cell for cell in sweep if not cell.beyond_trained]
        best = max((cell.speed_up for cell in trained), default=0.0)
        counted = votes.setdefault(method, {})
        for place, cell in enumerate(trained):
            near = cell.speed_up >= best * (1 - NEAR_BEST)
            if near or place == 0:
                counted[cell.draft_tokens] = counted.get(cell.draft_tokens, 0) + near
    return {method: _most_voted(counted) for method, counted in votes.items() if counted}


def _most_voted(counted: dict[int, int]) -> tuple[int, ...]:
    shortest = min(counted)
    others = sorted((k for k in counted if k != shortest), key=lambda k: (-counted[k], k))
    return tuple(sorted([shortest, *others[: MOST - 1]]))
