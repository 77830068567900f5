"""Which prompts a boot gets, in which order: seeded by study and block, equal in every arm of a block.

Owns the promise that no prompt is sent twice within a boot, warm-up included, and that every stretch of a mixed
window holds the classes by their shares. Pure: no files, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from specdyno.errors import PlanError, Problem
from specdyno.plan.chance import shuffled
from specdyno.plan.schema import Load, Plan
from specdyno.workload.prompts import Prompt
from specdyno.workload.sources import ClassPrompts

Pools = Mapping[str, ClassPrompts]


@dataclass(frozen=True, slots=True)
class WindowPrompts:
    """The prompts of one window, in the order they are sent. `class_name` is None for the mixed window."""

    load: str
    class_name: str | None
    prompts: tuple[Prompt, ...]


@dataclass(frozen=True, slots=True)
class BlockPrompts:
    """Everything a boot of one block is asked: the warm-up, then for each load its mixed and its class windows."""

    warm_up: tuple[Prompt, ...]
    windows: tuple[WindowPrompts, ...]


@dataclass(frozen=True, slots=True)
class Sizing:
    """Scored requests per mixed window by load; `clipped` holds (wanted, given) where the classes have too few."""

    requests: dict[str, int]
    clipped: dict[str, tuple[int, int]]


def warm_up_by_load(plan: Plan) -> dict[str, int]:
    """Unscored requests at the start of a boot, by load: each load is warmed up at its own concurrency.

    Enough to fill the concurrency once and to hold every class.
    """
    return {load.name: max(load.in_flight, len(plan.workload.classes)) for load in plan.measured_loads}


def warm_up_requests(plan: Plan) -> int:
    """Unscored requests at the start of a boot: at least two of each class."""
    return max(2 * len(plan.workload.classes), sum(warm_up_by_load(plan).values()))


def needs(plan: Plan, sizing: Mapping[str, int]) -> dict[str, int]:
    """Prompts that one boot takes from each class, by class name; loads absent from `sizing` take none."""
    names = [part.name for part in plan.workload.classes]
    totals = _warm_up_counts(plan)
    for load in plan.measured_loads:
        counts = counts_by_share(plan, sizing.get(load.name, 0))
        for name in names:
            totals[name] += counts[name]
            totals[name] += _alone(load, counts[name], sizing.get(load.name, 0))
    return totals


def warm_up(plan: Plan, pools: Pools, block_index: int) -> tuple[Prompt, ...]:
    """The warm-up of every boot of a block: the one that `draw` begins with, whatever the sizing.

    Raises:
        PlanError: a class has too few prompts even for the warm-up.
    """
    return draw(plan, pools, block_index, {}).warm_up


def draw(plan: Plan, pools: Pools, block_index: int, sizing: Mapping[str, int]) -> BlockPrompts:
    """The prompts of one block.

    Args:
        plan: the plan; its seed and `block_index` alone decide the order.
        pools: prompts by class name.
        block_index: from 0.
        sizing: scored requests of the mixed window by load; loads that are absent get no window.

    Raises:
        PlanError: classes that have fewer prompts than one boot needs.
    """
    distinct = _distinct(plan, pools)
    _check_supply(plan, {name: len(prompts) for name, prompts in distinct.items()}, needs(plan, sizing))
    label = f"{plan.seed}/block/{block_index}"
    decks = {name: iter(shuffled(prompts, f"{label}/class/{name}")) for name, prompts in distinct.items()}

    def deal(counts: Mapping[str, int], purpose: str) -> tuple[Prompt, ...]:
        order = interleave({name: counts[name] for name in shuffled(list(counts), f"{label}/{purpose}")})
        return tuple(next(decks[name]) for name in order)

    first = deal(_warm_up_counts(plan), "warm-up")
    windows: list[WindowPrompts] = []
    for load in plan.measured_loads:
        size = sizing.get(load.name, 0)
        if size:
            counts = counts_by_share(plan, size)
            windows.append(WindowPrompts(load.name, None, deal(counts, f"load/{load.name}")))
            alone = {name: _alone(load, count, size) for name, count in counts.items()}
            windows += [
                WindowPrompts(load.name, name, deal({name: count}, "alone")) for name, count in alone.items() if count
            ]
    return BlockPrompts(first, tuple(windows))


def largest_sizing(plan: Plan, pools: Pools, wanted: Mapping[str, int]) -> Sizing:
    """Sizes that the classes can feed within one boot, as near to the wanted ones as fairness allows.

    A load with `requests` gets exactly that. The others share what is left evenly: where it does not suffice, the
    largest lists are cut to one common length and the shorter ones stay whole, since a short list has the least to
    spare.

    Raises:
        PlanError: the warm-up, the exact requests and one request for each other load are already too much.
    """
    exact = {load.name: load.requests for load in plan.measured_loads if load.requests is not None}
    asked = {load.name: max(1, wanted[load.name]) for load in plan.measured_loads if load.name not in exact}
    supply = {name: len(prompts) for name, prompts in _distinct(plan, pools).items()}

    def cut(limit: int) -> dict[str, int]:
        return {load.name: exact.get(load.name) or min(asked[load.name], limit) for load in plan.measured_loads}

    _check_supply(plan, supply, needs(plan, cut(1)))
    low, high = 1, max([1, *asked.values()])
    while low < high:
        middle = (low + high + 1) // 2
        need = needs(plan, cut(middle))
        if all(need[name] <= supply[name] for name in need):
            low = middle
        else:
            high = middle - 1
    requests = cut(low)
    clipped = {name: (size, requests[name]) for name, size in asked.items() if requests[name] < size}
    return Sizing(requests, clipped)


def counts_by_share(plan: Plan, size: int) -> dict[str, int]:
    """How many of `size` requests each class gets: largest remainders, so that the counts add up to `size`."""
    shares = {part.name: part.share for part in plan.workload.classes}
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


def _warm_up_counts(plan: Plan) -> dict[str, int]:
    names = [part.name for part in plan.workload.classes]
    rest = counts_by_share(plan, warm_up_requests(plan) - 2 * len(names))
    return {name: 2 + rest[name] for name in names}


def _alone(load: Load, count: int, size: int) -> int:
    """Requests of a window of one class: its part of the mixed list, but enough to fill the concurrency twice."""
    return max(count, min(2 * load.in_flight, size)) if load.class_windows and size else 0


def _distinct(plan: Plan, pools: Pools) -> dict[str, Sequence[Prompt]]:
    """Pools by class without prompts that an earlier class of the plan has too."""
    seen: set[str] = set()
    distinct: dict[str, Sequence[Prompt]] = {}
    for part in plan.workload.classes:
        distinct[part.name] = [prompt for prompt in pools[part.name].prompts if prompt.sha256 not in seen]
        seen.update(prompt.sha256 for prompt in distinct[part.name])
    return distinct


def _check_supply(plan: Plan, supply: Mapping[str, int], need: Mapping[str, int]) -> None:
    problems = [
        Problem(
            f"workload.classes[{index}]",
            f'class "{part.name}" has {supply[part.name]} prompts of its own and one boot needs {need[part.name]}',
            "Add prompts, or lower `requests`, `concurrency` or the class's share (no prompt is sent twice in a boot)",
        )
        for index, part in enumerate(plan.workload.classes)
        if need[part.name] > supply[part.name]
    ]
    if problems:
        raise PlanError(problems)
