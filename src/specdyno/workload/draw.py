"""What a boot is asked, in which order: seeded by study and block, equal in every arm of a block.

Owns the promise that no prompt and no session is used twice within a boot, warm-up included, and that every stretch
of a mixed window holds the classes by their shares. Classes of sessions feed loads of sessions, classes of prompts all
others. Pure: no files, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from specdyno.errors import PlanError, Problem
from specdyno.plan.chance import shuffled
from specdyno.plan.schema import Load, Plan, TrafficClass
from specdyno.workload import arrivals
from specdyno.workload.mixture import by_share, interleave
from specdyno.workload.prompts import Prompt
from specdyno.workload.sessions import ClassSessions, Session
from specdyno.workload.sources import ClassPrompts

Pools = Mapping[str, ClassPrompts]
SessionPools = Mapping[str, ClassSessions]

_SESSIONS_TO_WARM_UP = 4  # at most: a session is spent where it was used
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class DrawnSession:
    """A session with what its class adds to it. `id` is unique within a plan."""

    id: str
    class_name: str
    max_tokens: int
    session: Session


@dataclass(frozen=True, slots=True)
class WindowPrompts:
    """What one window is asked, in the order it is sent. `class_name` is None for the mixed window.

    A load of sessions has `sessions` and no prompts. `step` counts the windows of a search, from 0.
    """

    load: str
    class_name: str | None
    prompts: tuple[Prompt, ...]
    sessions: tuple[DrawnSession, ...] = ()
    step: int | None = None


@dataclass(frozen=True, slots=True)
class BlockPrompts:
    """Everything a boot of one block is asked: the warm-up, then for each load its mixed and its class windows.

    `warm_up` holds the prompts of all loads that ask prompts; `warm_up_sessions` the sessions of the others, by load.
    """

    warm_up: tuple[Prompt, ...]
    windows: tuple[WindowPrompts, ...]
    warm_up_sessions: Mapping[str, tuple[DrawnSession, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sizing:
    """Scored requests (or sessions) per mixed window by load; of a search: of all its steps together.

    `clipped` holds (wanted, given) where the classes have too few.
    """

    requests: dict[str, int]
    clipped: dict[str, tuple[int, int]]


def asked_by(plan: Plan, load: Load) -> tuple[TrafficClass, ...]:
    """The classes that a load asks."""
    return _classes(plan, sessions=load.sessions is not None)


def exact_sizes(plan: Plan, traces: Mapping[str, Sequence[float]] | None = None) -> dict[str, int]:
    """Loads whose windows hold a number that is known before any boot: stated, at a rate, of a trace or of a search.

    `traces` are arrival times by load; a trace that is absent counts as empty.
    """
    known = {load.name: arrivals.count_of(load, (traces or {}).get(load.name, ())) for load in plan.measured_loads}
    return {name: count for name, count in known.items() if count is not None}


def warm_up_by_load(plan: Plan) -> dict[str, int]:
    """Unscored requests (or sessions) at the start of a boot, by load: each is warmed up at its own concurrency.

    Enough requests to fill the concurrency once and to hold every class; of sessions as few as show how long one takes.
    """
    return {
        load.name: max(
            min(load.in_flight, _SESSIONS_TO_WARM_UP) if load.sessions is not None else load.in_flight,
            len(asked_by(plan, load)),
        )
        for load in plan.measured_loads
    }


def warm_up_requests(plan: Plan) -> int:
    """Unscored requests at the start of a boot, sessions aside: at least two of each class."""
    by_load = warm_up_by_load(plan)
    asking = [load.name for load in plan.measured_loads if load.sessions is None]
    return max(2 * len(_classes(plan, sessions=False)), sum(by_load[name] for name in asking))


def needs(plan: Plan, sizing: Mapping[str, int]) -> dict[str, int]:
    """Prompts (or sessions) that one boot takes from each class, by name; loads absent from `sizing` take none."""
    totals = dict.fromkeys((part.name for part in plan.workload.classes), 0)
    taken = [_warm_up_counts(plan)]
    for load in plan.measured_loads:
        size = sizing.get(load.name, 0)
        if load.sessions is not None:
            taken.append(counts_by_share(plan, warm_up_by_load(plan)[load.name], sessions=True))
        for part in _parts(load, size):
            counts = counts_by_share(plan, part, sessions=load.sessions is not None)
            taken += [counts, {name: _alone(load, count, size) for name, count in counts.items()}]
    for counts in taken:
        for name, count in counts.items():
            totals[name] += count
    return totals


def warm_up(
    plan: Plan, pools: Pools, block_index: int, *, session_pools: SessionPools | None = None
) -> tuple[Prompt, ...]:
    """The warm-up of every boot of a block: the one that `draw` begins with, whatever the sizing.

    Raises:
        PlanError: a class has too few prompts even for the warm-up.
    """
    return draw(plan, pools, block_index, {}, session_pools=session_pools).warm_up


def draw(
    plan: Plan,
    pools: Pools,
    block_index: int,
    sizing: Mapping[str, int],
    *,
    session_pools: SessionPools | None = None,
) -> BlockPrompts:
    """The prompts and sessions of one block.

    Args:
        plan: the plan; its seed and `block_index` alone decide the order.
        pools: prompts by class name.
        block_index: from 0.
        sizing: scored requests of the mixed window by load; loads that are absent get no window.
        session_pools: sessions by class name, where the plan has such classes.

    Raises:
        PlanError: classes that have fewer prompts or sessions than one boot needs.
    """
    distinct, scripts = _distinct(plan, pools), _scripts(plan, session_pools or {})
    _check_supply(plan, _supply(distinct, scripts), needs(plan, sizing))
    label = f"{plan.seed}/block/{block_index}"
    decks = {name: iter(shuffled(prompts, f"{label}/class/{name}")) for name, prompts in distinct.items()}
    script_decks = {name: iter(shuffled(held, f"{label}/class/{name}")) for name, held in scripts.items()}

    def deal(counts: Mapping[str, int], purpose: str) -> tuple[Prompt, ...]:
        return _dealt(decks, counts, f"{label}/{purpose}")

    def deal_sessions(load: Load, size: int, purpose: str) -> tuple[DrawnSession, ...]:
        counts = counts_by_share(plan, size, sessions=True)
        return _dealt(script_decks, counts, f"{label}/{purpose}/{load.name}")

    first = deal(_warm_up_counts(plan), "warm-up")
    by_load = warm_up_by_load(plan)
    replaying = [load for load in plan.measured_loads if load.sessions is not None]
    first_sessions = {load.name: deal_sessions(load, by_load[load.name], "warm-up") for load in replaying}
    windows: list[WindowPrompts] = []
    for load in plan.measured_loads:
        size = sizing.get(load.name, 0)
        if load.sessions is not None:
            if size:
                windows.append(WindowPrompts(load.name, None, (), deal_sessions(load, size, "load")))
            continue
        for step, part in enumerate(_parts(load, size)):
            counts = counts_by_share(plan, part)
            purpose = f"load/{load.name}" + (f"/{step}" if load.rates else "")
            windows.append(
                WindowPrompts(load.name, None, deal(counts, purpose), step=step if load.rates is not None else None)
            )
            alone = {name: _alone(load, count, size) for name, count in counts.items()}
            windows += [
                WindowPrompts(load.name, name, deal({name: count}, "alone")) for name, count in alone.items() if count
            ]
    return BlockPrompts(first, tuple(windows), first_sessions)


def largest_sizing(
    plan: Plan,
    pools: Pools,
    wanted: Mapping[str, int],
    *,
    exact: Mapping[str, int] | None = None,
    session_pools: SessionPools | None = None,
) -> Sizing:
    """Sizes that the classes can feed within one boot, as near to the wanted ones as fairness allows.

    A load in `exact` (default: `exact_sizes` of the plan) gets exactly that. The others share what is left evenly:
    where it does not suffice, the largest lists are cut to one common length and the shorter ones stay whole, since a
    short list has the least to spare. Loads of sessions share among themselves.

    Raises:
        PlanError: the warm-up, the exact requests and one request for each other load are already too much.
    """
    exact = exact_sizes(plan) if exact is None else exact
    asked = {load.name: max(1, wanted[load.name]) for load in plan.measured_loads if load.name not in exact}
    replaying = {load.name for load in plan.measured_loads if load.sessions is not None}
    supply = _supply(_distinct(plan, pools), _scripts(plan, session_pools or {}))
    limits = dict.fromkeys((False, True), 1)

    def cut() -> dict[str, int]:
        return {
            load.name: exact[load.name] if load.name in exact else min(asked[load.name], limits[load.name in replaying])
            for load in plan.measured_loads
        }

    _check_supply(plan, supply, needs(plan, cut()))
    for kind in limits:
        low, high = 1, max([1, *(size for name, size in asked.items() if (name in replaying) is kind)])
        while low < high:
            limits[kind] = (low + high + 1) // 2
            need = needs(plan, cut())
            if all(need[name] <= supply[name] for name in need):
                low = limits[kind]
            else:
                high = limits[kind] - 1
        limits[kind] = low
    requests = cut()
    clipped = {name: (size, requests[name]) for name, size in asked.items() if requests[name] < size}
    return Sizing(requests, clipped)


def counts_by_share(plan: Plan, size: int, *, sessions: bool = False) -> dict[str, int]:
    """How many of `size` requests each class of prompts (or of sessions) gets; the counts add up to `size`."""
    return by_share({part.name: part.share for part in _classes(plan, sessions=sessions)}, size)


def _classes(plan: Plan, *, sessions: bool) -> tuple[TrafficClass, ...]:
    return tuple(part for part in plan.workload.classes if (part.sessions is not None) is sessions)


def _warm_up_counts(plan: Plan) -> dict[str, int]:
    names = [part.name for part in _classes(plan, sessions=False)]
    rest = counts_by_share(plan, max(0, warm_up_requests(plan) - 2 * len(names)))
    return {name: 2 + rest[name] for name in names}


def _parts(load: Load, size: int) -> tuple[int, ...]:
    """Sizes of a load's mixed windows: one, or one for each step of a search; none where the load is not sized."""
    if not size:
        return ()
    return arrivals.step_sizes(load) if load.rates is not None else (size,)


def _alone(load: Load, count: int, size: int) -> int:
    """Requests of a window of one class: its part of the mixed list, but enough to fill the concurrency twice."""
    return max(count, min(2 * load.in_flight, size)) if load.class_windows and size else 0


def _dealt(decks: Mapping[str, Iterator[_Item]], counts: Mapping[str, int], label: str) -> tuple[_Item, ...]:
    order = interleave({name: counts[name] for name in shuffled(list(counts), label)})
    return tuple(next(decks[name]) for name in order)


def _distinct(plan: Plan, pools: Pools) -> dict[str, Sequence[Prompt]]:
    """Pools by class without prompts that an earlier class of the plan has too."""
    seen: set[str] = set()
    distinct: dict[str, Sequence[Prompt]] = {}
    for part in _classes(plan, sessions=False):
        distinct[part.name] = [prompt for prompt in pools[part.name].prompts if prompt.sha256 not in seen]
        seen.update(prompt.sha256 for prompt in distinct[part.name])
    return distinct


def _scripts(plan: Plan, pools: SessionPools) -> dict[str, Sequence[DrawnSession]]:
    return {
        part.name: [
            DrawnSession(f"{part.name}/{one.id.removeprefix(part.name + '/')}", part.name, part.max_tokens, one)
            for one in pools[part.name].sessions
        ]
        for part in _classes(plan, sessions=True)
    }


def _supply(prompts: Mapping[str, Sequence[Prompt]], sessions: Mapping[str, Sequence[DrawnSession]]) -> dict[str, int]:
    return {name: len(held) for name, held in (*prompts.items(), *sessions.items())}


def _check_supply(plan: Plan, supply: Mapping[str, int], need: Mapping[str, int]) -> None:
    problems = []
    for index, part in enumerate(plan.workload.classes):
        if need[part.name] <= supply[part.name]:
            continue
        held = "sessions" if part.sessions is not None else "prompts of its own"
        lower = "`requests` or `sessions`" if part.sessions is not None else "`requests`, `concurrency`, a rate"
        seen = f'class "{part.name}" has {supply[part.name]} {held} and one boot needs {need[part.name]}'
        remedy = f"Add some, or lower {lower}, the window or the class's share (nothing is sent twice in a boot)"
        problems.append(Problem(f"workload.classes[{index}]", seen, remedy))
    if problems:
        raise PlanError(problems)
