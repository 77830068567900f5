"""What a boot is asked: the same in every arm of a block, sized once, each load in its own way of arriving."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdyno.load.agenda import Stock, sized, warm_up_plans, window_plans
from specdyno.load.boot import WarmUp
from specdyno.load.search import SearchPlan
from specdyno.plan import parse
from specdyno.records.schema import ArrivalKind, WindowKind
from specdyno.workload.prompts import Prompt, fingerprint
from specdyno.workload.sessions import ClassSessions, Session, Turn
from specdyno.workload.sources import ClassPrompts
from specdyno.workload.traces import Trace

PLAN = """
study: agenda
seed: 5
target: {model: sim/model}
engine: {kind: simulated}
candidates: [{method: eagle3, draft: d, draft_tokens: [1]}]
workload:
  sampling: {temperature: 0.0}
  classes:
    - {name: code, prompts: p, share: 1, max_tokens: 16}
    - {name: agent, sessions: s, share: 1, max_tokens: 16}
loads:
  - {name: pool, ladder: [1, 3], window: 10s}
  - {name: open, rate: 2, window: 10s}
  - {name: trace, trace: t.csv, window: 10s}
  - {name: most, rates: [1, 4], steps: 2, window: 10s}
  - {name: agents, sessions: 2, window: 100s}
objectives: [{name: o, load: most, measure: largest_rate, service_level: {ttft: 1s}}]
"""


@pytest.fixture
def stock() -> Stock:
    prompts = tuple(
        Prompt(f"code/{n}", "code", None, f"p{n}", None, None, None, 16, fingerprint({"prompt": f"p{n}"}))
        for n in range(300)
    )
    turns = (
        Turn("planning", ({"role": "user", "content": "x"},), pause_s=50.0),  # before the first turn nobody waits
        Turn("reading", ({"role": "user", "content": "y"},), pause_s=6.0),
    )
    sessions = tuple(Session(str(n), None, None, turns) for n in range(40))
    trace = Trace("t.csv", "Azure", tuple(float(n) for n in range(30)), None, None)
    return Stock(
        parse.parse(PLAN), {"code": ClassPrompts(prompts)}, {"agent": ClassSessions(sessions)}, {"trace": trace}
    )


def warmed(stock: Stock, *, done: int = 4, seconds: float = 10.0) -> list[WarmUp]:
    return [WarmUp(part.load, part.concurrency or 0, done, seconds) for part in warm_up_plans(stock, 0)]


def test_every_load_is_warmed_up_closed(stock):
    parts = {part.load: part for part in warm_up_plans(stock, 0)}
    assert {name: part.concurrency for name, part in parts.items()} == {
        "pool@1": 1, "pool@3": 3, "open": 2, "trace": 1, "most": 4, "agents": 2,
    }  # fmt: skip
    assert all(part.kind is WindowKind.WARM_UP and not part.offsets_ns for part in parts.values())
    assert len(parts["agents"].sessions) == 2
    assert parts["agents"].planned == 4
    assert [len(part.jobs) for name, part in parts.items() if name != "agents"] == [1, 3, 2, 1, 4]


def test_windows_come_in_plan_order_each_with_its_way_of_arriving(stock):
    windows = window_plans(stock, 0, sized(stock, warmed(stock)).requests)
    pool_1, _, opened, trace, most, agents = windows
    assert (pool_1.concurrency, pool_1.arrival) == (1, None)
    assert (opened.concurrency, opened.arrival.kind, opened.arrival.rate) == (None, ArrivalKind.OPEN, 2.0)
    assert len(opened.jobs) == len(opened.offsets_ns) == 20
    assert trace.offsets_ns == tuple(n * 10**9 for n in range(10))
    assert (trace.arrival.kind, trace.arrival.rate, trace.arrival.source) == (ArrivalKind.TRACE, 1.0, "t.csv")
    assert isinstance(most, SearchPlan)
    assert [len(step) for step in most.steps] == [20, 40]
    assert most.level.ttft == 1.0
    assert (agents.concurrency, agents.arrival.kind) == (2, ArrivalKind.SESSIONS)
    assert agents.planned == 2 * len(agents.sessions)


def test_a_block_is_the_same_again_and_another_arrives_anew(stock):
    sizing = sized(stock, warmed(stock)).requests
    first, again, other = (window_plans(stock, block, sizing) for block in (0, 0, 1))
    assert first == again
    assert first[2].offsets_ns != other[2].offsets_ns
    assert first[4].window(0, 2.0).offsets_ns != other[4].window(0, 2.0).offsets_ns
    assert first[4].window(0, 2.0).offsets_ns != first[4].window(1, 2.0).offsets_ns


def test_sizes_come_from_the_plan_where_it_says_them_and_from_the_warm_up_elsewhere(stock):
    # Sessions: 2 turns in 10 s * 2 in flight / 4 turns = 5 s each, pauses of 6 s among them: 10 s a session.
    sizing = sized(stock, warmed(stock))
    assert sizing.requests == {"pool@1": 4, "pool@3": 9, "open": 20, "trace": 10, "most": 60, "agents": 20}
    assert sizing.clipped == {}


def test_sessions_without_an_answered_warm_up_get_two_rounds(stock):
    assert sized(stock, warmed(stock, done=0)).requests["agents"] == 4


def test_sizes_that_the_sessions_cannot_feed_are_clipped(stock):
    few = replace(stock, sessions={"agent": ClassSessions(stock.sessions["agent"].sessions[:12])})
    sizing = sized(few, warmed(few))
    assert sizing.clipped == {"agents": (20, 10)}  # 12 sessions, two of them for the warm-up
    assert sizing.requests["open"] == 20
