"""Shares into whole numbers and an order: how the classes of a mixed window are counted and laid out. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction


def by_share(shares: Mapping[str, float], size: int) -> dict[str, int]:
    """Whole counts near `size` times each share over their sum, by largest remainders: they add up to `size`.

    >>> by_share({"a": 0.5, "b": 0.3, "c": 0.2}, 7)
    {'a': 4, 'b': 2, 'c': 1}
    """
    total = sum(shares.values())
    exact = {name: size * share / total for name, share in shares.items()}
    counts = {name: math.floor(value + 1e-9) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: counts[name] - exact[name])
    for name in by_remainder[: size - sum(counts.values())]:
        counts[name] += 1
    return counts


def interleave(counts: Mapping[str, int]) -> list[str]:
    """Names, each as often as its count, so that any first n hold less than one too many or too few of each.

    R. Tijdeman, "The chairman assignment problem" (1980): among the classes that are far enough behind, the one that
    must be served soonest. All in whole numbers, so that no rounding can change an order.

    >>> interleave({"a": 2, "b": 1})
    ['a', 'b', 'a']
    """
    present = {name: count for name, count in counts.items() if count}
    total, edge = sum(present.values()), max(1, 2 * len(present) - 2)
    served = dict.fromkeys(present, 0)
    order: list[str] = []
    for position in range(1, total + 1):
        # Everything is scaled by edge * total: `behind` is edge * total times Tijdeman's sigma.
        behind = {name: edge * (position * count - served[name] * total) for name, count in present.items()}
        ready = [name for name in present if behind[name] >= total or len(present) == 1]
        # Compares (1 - 1/edge - sigma) / share without dividing by the scale.
        name = min(ready, key=lambda one: Fraction((edge - 1) * total - behind[one], present[one]))
        served[name] += 1
        order.append(name)
    return order
