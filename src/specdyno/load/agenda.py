"""What a boot will be asked and when: the warm-up, the size of every window, its prompts and its intended times.

Pure: a function of plan, stock and block, so that every arm of a block gets the same agenda.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specdyno.load.boot import WarmUp
from specdyno.load.search import SearchPlan
from specdyno.load.window import Job, WindowPlan
from specdyno.plan.schema import Load, Plan
from specdyno.records.schema import Arrival, ArrivalKind, WindowKind
from specdyno.workload import arrivals, draw
from specdyno.workload.draw import Sizing, WindowPrompts
from specdyno.workload.sessions import ClassSessions
from specdyno.workload.sources import ClassPrompts
from specdyno.workload.traces import Trace


@dataclass(frozen=True, slots=True)
class Stock:
    """A plan with everything it may send: prompts and sessions by class, arrival times by load."""

    plan: Plan
    pools: Mapping[str, ClassPrompts]
    sessions: Mapping[str, ClassSessions] = field(default_factory=dict)
    traces: Mapping[str, Trace] = field(default_factory=dict)

    @property
    def times_s(self) -> dict[str, tuple[float, ...]]:
        return {name: trace.times_s for name, trace in self.traces.items()}

    @property
    def exact(self) -> dict[str, int]:
        """Sizes that are known before any boot, by load."""
        return draw.exact_sizes(self.plan, self.times_s)

    @property
    def with_tools(self) -> frozenset[str]:
        """Classes of which a request offers tools that the model may call."""
        prompts = {
            name
            for name, pool in self.pools.items()
            if any(prompt.tools and prompt.tool_choice != "none" for prompt in pool.prompts)
        }
        talks = {name for name, pool in self.sessions.items() if any(session.tools for session in pool.sessions)}
        return frozenset(prompts | talks)

    def drawn(self, block: int, sizing: Mapping[str, int]) -> draw.BlockPrompts:
        """PlanError where a class has too little."""
        return draw.draw(self.plan, self.pools, block, sizing, session_pools=self.sessions)


def warm_up_plans(stock: Stock, block: int) -> list[WindowPlan]:
    """A warm-up of each load, closed at its own concurrency, all classes mixed: it also shows how fast each runs."""
    drawn = stock.drawn(block, {})
    jobs = [Job(prompt) for prompt in drawn.warm_up]
    counts = draw.warm_up_by_load(stock.plan)
    asking = [load.name for load in stock.plan.measured_loads if load.sessions is None]
    plans = []
    for load in stock.plan.measured_loads:
        if load.sessions is not None:
            held = drawn.warm_up_sessions[load.name]
            in_flight = min(load.in_flight, len(held))
            arrival = Arrival(ArrivalKind.SESSIONS)
            plans.append(WindowPlan(load.name, WindowKind.WARM_UP, None, in_flight, sessions=held, arrival=arrival))
            continue
        taken = counts[load.name] if load.name != asking[-1] else len(jobs)
        part, jobs = jobs[:taken], jobs[taken:]
        plans.append(WindowPlan(load.name, WindowKind.WARM_UP, None, load.in_flight, tuple(part)))
    return plans


def window_plans(stock: Stock, block: int, sizing: Mapping[str, int]) -> list[WindowPlan | SearchPlan]:
    """Every scored window of a boot in the order of the plan's loads; a search is one part of it."""
    plans: list[WindowPlan | SearchPlan] = []
    windows = stock.drawn(block, sizing).windows
    for load in stock.plan.measured_loads:
        mine = [window for window in windows if window.load == load.name]
        if load.rates is not None and mine:
            steps = tuple(tuple(Job(prompt) for prompt in window.prompts) for window in mine)
            level = stock.plan.service_level(load.name)
            plans.append(SearchPlan(load, level, steps, _label(stock.plan, block, load)))
        else:
            plans += [_window_plan(stock, block, load=load, window=window) for window in mine]
    return plans


def sized(stock: Stock, seen: Sequence[WarmUp]) -> Sizing:
    """How many requests (sessions) each window has: known before, or sized from the first warm-up's speed."""
    exact = stock.exact
    wanted = {load.name: exact.get(load.name) or _size(stock, load, seen=seen) for load in stock.plan.measured_loads}
    return draw.largest_sizing(stock.plan, stock.pools, wanted, exact=exact, session_pools=stock.sessions)


def _window_plan(stock: Stock, block: int, *, load: Load, window: WindowPrompts) -> WindowPlan:
    kind = WindowKind.MIXED if window.class_name is None else WindowKind.CLASS
    jobs = tuple(Job(prompt) for prompt in window.prompts)
    if load.sessions is not None:
        arrival = Arrival(ArrivalKind.SESSIONS)
        return WindowPlan(load.name, kind, None, load.sessions, sessions=window.sessions, arrival=arrival)
    if load.closed:
        return WindowPlan(load.name, kind, window.class_name, load.concurrency, jobs)
    trace = stock.times_s.get(load.name, ())
    offsets = arrivals.offsets(load, len(jobs), label=_label(stock.plan, block, load), trace=trace)
    return WindowPlan(load.name, kind, None, None, jobs, offsets, arrival=_arrival(stock, load, offsets))


def _arrival(stock: Stock, load: Load, offsets: Sequence[int]) -> Arrival:
    if load.trace is not None:
        span_s = offsets[-1] / 1e9 if offsets else 0.0
        rate = load.rate or ((len(offsets) - 1) / span_s if span_s > 0 else None)
        return Arrival(ArrivalKind.TRACE, rate=rate, source=stock.traces[load.name].source)
    return Arrival(
        ArrivalKind.OPEN, rate=arrivals.mean_rate(load), burstiness=load.burstiness, ramp_from=load.ramp_from
    )


def _label(plan: Plan, block: int, load: Load) -> str:
    """The same in every arm of a block."""
    return f"{plan.seed}/block/{block}/arrivals/{load.name}"


def _size(stock: Stock, load: Load, *, seen: Sequence[WarmUp]) -> int:
    """Requests that fill the window at the warm-up's rate; at least three rounds of the concurrency."""
    warm_up = next((one for one in seen if one.load == load.name), None)
    rate = warm_up.done / warm_up.seconds if warm_up and warm_up.seconds > 0 else 0.0
    if load.sessions is not None:
        return _sessions_to_fill(stock, load, warm_up=warm_up)
    return max(3 * load.in_flight, 2 * len(stock.pools), round(rate * load.window))


def _sessions_to_fill(stock: Stock, load: Load, *, warm_up: WarmUp | None) -> int:
    """A session lasts as long as its turns take at the warm-up's speed, and its pauses; at least two rounds."""
    held = [session for pool in stock.sessions.values() for session in pool.sessions]
    least = max(2 * load.in_flight, 2 * len(stock.sessions))
    if warm_up is None or not warm_up.done or not held:
        return least
    turns = sum(len(session.turns) for session in held) / len(held)
    pace = stock.plan.workload.sessions.pace
    pauses_s = pace * sum(turn.pause_s for session in held for turn in session.turns[1:]) / len(held)
    # The warm-up's time holds its pauses: what is left of each loop's time belongs to the turns.
    turn_s = max(1e-6, warm_up.seconds * warm_up.concurrency / warm_up.done - pauses_s / max(1.0, turns))
    return max(least, round(load.window * load.in_flight / (turns * turn_s + pauses_s)))
