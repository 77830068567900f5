"""Which arms are booted in which order: pure, seeded, balanced.

Owns the order of arms within blocks. Each run of as many blocks as there are arms is a Williams square (E. J.
Williams, "Experimental designs balanced for the estimation of residual effects of treatments", 1949): every arm
stands in every position once, and, for an even number of arms, follows every other arm exactly once. For an odd
number a second, mirrored square completes the balance of neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdyno.plan.chance import shuffled
from specdyno.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class Block:
    """One boot of every arm, in this order."""

    index: int
    order: tuple[str, ...]


def schedule(plan: Plan) -> tuple[Block, ...]:
    """Every block up to the last look. Depends on the seed, the names of the arms and the last look only."""
    names = [arm.name for arm in plan.arms()]
    size = len(names)
    orders: list[tuple[str, ...]] = []
    for cycle in range(-(-plan.experiment.looks[-1] // size)):
        # A mirrored square balances neighbours only if it renames the arms as its partner did.
        partner = cycle // 2 if size % 2 else cycle
        renamed = shuffled(names, f"{plan.seed}/arms/{partner}")
        rows = shuffled(_williams(size), f"{plan.seed}/rows/{cycle}")
        mirrored = size % 2 == 1 and cycle % 2 == 1
        orders += [tuple(renamed[arm] for arm in (reversed(row) if mirrored else row)) for row in rows]
    return tuple(Block(index, order) for index, order in enumerate(orders[: plan.experiment.looks[-1]]))


def _williams(size: int) -> list[list[int]]:
    """A cyclic Latin square whose first row zigzags (0, 1, size-1, 2, size-2, ...), so that all steps differ."""
    first = [(position + 1) // 2 if position % 2 else -(position // 2) % size for position in range(size)]
    return [[(arm + shift) % size for arm in first] for shift in range(size)]
