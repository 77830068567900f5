"""Sessions go turn by turn: what the engine said stands in the history, and what it did not say is counted."""

from __future__ import annotations

import asyncio
import time

import orjson
import pytest
from tests.unit.load.scripted_server import USAGE, head, whole

from specdyno.load.agents import Talk, run_sessions
from specdyno.load.window import Hooks
from specdyno.plan.schema import History, Sessions
from specdyno.records.schema import Outcome, RequestRecord
from specdyno.workload.draw import DrawnSession
from specdyno.workload.sessions import Session, Turn

TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}


def call(number: int, arguments: str = '{"path": "a"}') -> dict:
    return {"id": f"rec{number}", "type": "function", "function": {"name": "read", "arguments": arguments}}


def recorded(*calls: dict, content: str | None = None) -> dict:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {})}


ASK = Turn("planning", ({"role": "user", "content": "fix it"},), recorded=recorded(call(0), call(1)))
RESULTS = Turn(
    "reading",
    tuple({"role": "tool", "tool_call_id": f"rec{n}", "content": f"file {n}"} for n in range(2)),
    pause_s=0.2,
    recorded=recorded(content="done"),
)
THANKS = Turn("acknowledgement", ({"role": "user", "content": "thanks"},))


def drawn(name: str = "agent/1", turns: tuple[Turn, ...] = (ASK, RESULTS, THANKS)) -> DrawnSession:
    return DrawnSession(name, "agent", 32, Session(name, (TOOL,), "you are an agent", turns))


def said(*calls: tuple[str | None, str], text: str = "") -> RequestRecord:
    made = tuple({"id": own, "name": "read", "arguments": arguments} for own, arguments in calls)
    return RequestRecord(
        0, "p", "0", "agent", 0, 0, Outcome.FINISHED, text=text, reasoning="hm", tool_calls=made, turn=0
    )


def history(answer: RequestRecord, *, turn: Turn = RESULTS, manner: History = History.ENGINE, asked: Turn = ASK):
    talk = Talk("you are an agent", history=manner)
    assert talk.ask(asked) is None
    talk.answer(answer, asked)
    supplied = talk.ask(turn)
    return talk.messages, supplied


GOOD = '{"path": "b"}'


def test_the_engines_calls_are_answered_by_the_scripts_results_in_order():
    messages, supplied = history(said(("c1", GOOD), ("c2", GOOD), text="let me see"))
    assert supplied == 0
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "tool"]
    assert messages[2]["content"] == "let me see"
    assert [one["id"] for one in messages[2]["tool_calls"]] == ["c1", "c2"]
    assert messages[2]["tool_calls"][0]["function"] == {"name": "read", "arguments": GOOD}
    assert [message["tool_call_id"] for message in messages[3:]] == ["c1", "c2"]
    assert "hm" not in str(messages)


@pytest.mark.parametrize(
    ("answer", "ids", "supplied"),
    [
        (said(text="no idea"), ["rec0", "rec1"], 2),
        (said(("c1", GOOD)), ["c1", "rec1"], 1),
        (said(("c1", GOOD), ("c2", '{"path": ')), ["c1", "rec1"], 1),  # cut off: servers refuse such a history
        (said(("c1", GOOD), ("c2", GOOD), ("c3", GOOD)), ["c1", "c2"], 0),
        (said((None, GOOD), (None, GOOD)), ["call_0_0", "call_0_1"], 0),
    ],
)
def test_where_a_call_is_missing_the_recorded_one_stands_in_and_is_counted(answer, ids, supplied):
    messages, counted = history(answer)
    assert counted == supplied
    assert [one["id"] for one in messages[2]["tool_calls"]] == ids
    assert [message["tool_call_id"] for message in messages[3:]] == ids


def test_a_call_that_the_script_does_not_answer_is_left_out():
    asked = Turn("planning", ({"role": "user", "content": "hello"},), recorded=recorded(content="hi"))
    messages, supplied = history(said(("c1", GOOD), text="look:"), turn=THANKS, asked=asked)
    assert (messages[2], supplied) == ({"role": "assistant", "content": "look:"}, 0)
    messages, supplied = history(said(("c1", GOOD)), turn=THANKS, asked=asked)
    assert (messages[2], supplied) == ({"role": "assistant", "content": "hi"}, 1)


def test_recorded_answers_stand_in_the_history_where_the_plan_says_so():
    messages, supplied = history(said(("c1", GOOD), text="other"), manner=History.RECORDED)
    assert supplied is None
    assert messages[2] == recorded(call(0), call(1))
    assert [message["tool_call_id"] for message in messages[3:]] == ["rec0", "rec1"]


def test_the_script_itself_is_never_changed():
    history(said(("c1", GOOD), ("c2", GOOD)))
    assert [message["tool_call_id"] for message in RESULTS.messages] == ["rec0", "rec1"]


def calling(*ids: str) -> bytes:
    calls = [
        {"index": n, "id": own, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for n, own in enumerate(ids)
    ]
    chunk = orjson.dumps({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]})
    return b'data: %s\n\ndata: {"choices":[],"usage":%s}\n\ndata: [DONE]\n\n' % (chunk, USAGE)


async def agent_server(one) -> None:
    if one.body["messages"][-1]["content"] == "fix it":
        await one.send(head() + calling("e0", "e1"))
    else:
        await whole(one)


async def test_rows_say_session_turn_and_phase_and_the_next_turn_holds_the_answers(scripted, place):
    scripted.script = agent_server
    kept = []
    run = await run_sessions(place(), [drawn()], concurrency=1, manner=Sessions(), hooks=Hooks(kept.extend))
    assert (run.rows, run.done) == (3, 3)
    assert [(row.index, row.session, row.turn, row.phase, row.supplied) for row in kept] == [
        (0, "agent/1", 0, "planning", None),
        (1, "agent/1", 1, "reading", 0),
        (2, "agent/1", 2, "acknowledgement", 0),
    ]
    assert [row.prompt_id for row in kept] == ["agent/1/0", "agent/1/1", "agent/1/2"]
    assert len({row.prompt_sha256 for row in kept}) == 3
    last = scripted.bodies[2]["messages"]
    assert [one["id"] for one in last[2]["tool_calls"]] == ["e0", "e1"]
    assert last[5] == {"role": "assistant", "content": "hello"}
    assert scripted.bodies[2]["tools"] == [TOOL]


async def test_pauses_lie_between_turns_and_in_no_latency(scripted, place):
    scripted.script = agent_server
    kept = []
    manner = Sessions(pace=2.0)
    began = time.monotonic()
    await run_sessions(place(), [drawn()], concurrency=1, manner=manner, hooks=Hooks(kept.extend))
    assert time.monotonic() - began >= 0.4
    assert kept[1].sent_ns - kept[0].last_byte_ns >= 400_000_000
    assert all(row.intended_ns == row.sent_ns for row in kept)


async def test_so_many_sessions_are_in_flight_and_each_place_is_kept(scripted, place):
    async def slow(one) -> None:
        await asyncio.sleep(0.03)
        await agent_server(one)

    scripted.script = slow
    kept = []
    sessions = [drawn(f"agent/{n}") for n in range(5)]
    await run_sessions(place(), sessions, concurrency=2, manner=Sessions(pace=0.0), hooks=Hooks(kept.extend))
    assert scripted.most_in_flight == 2
    assert sorted(row.index for row in kept) == list(range(15))
    assert {row.index: (row.session, row.turn) for row in kept} == {n: (f"agent/{n // 3}", n % 3) for n in range(15)}


async def test_a_session_ends_at_its_first_failed_turn_and_the_others_go_on(scripted, place):
    async def refuse_second(one) -> None:
        if len(one.body["messages"]) > 2 and "first" in one.body["messages"][0]["content"]:
            await one.send(head("400 Bad Request", "application/json") + b'{"error": "role order"}')
        else:
            await agent_server(one)

    scripted.script = refuse_second
    kept = []
    first = DrawnSession("agent/a", "agent", 32, Session("a", (TOOL,), "first", (ASK, RESULTS, THANKS)))
    run = await run_sessions(
        place(), [first, drawn("agent/b")], concurrency=1, manner=Sessions(pace=0.0), hooks=Hooks(kept.extend)
    )
    assert [(row.index, row.outcome) for row in kept] == [
        (0, Outcome.FINISHED), (1, Outcome.HTTP_ERROR), (3, Outcome.FINISHED), (4, Outcome.FINISHED),
        (5, Outcome.FINISHED),
    ]  # fmt: skip
    assert run.failures == {Outcome.HTTP_ERROR: 1}


async def test_an_error_of_the_storage_ends_the_sessions(place):
    def keep(_rows) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await run_sessions(place(), [drawn()] * 9, concurrency=2, manner=Sessions(), hooks=Hooks(keep))


async def test_a_dead_engine_ends_the_sessions(scripted, place):
    scripted.script = agent_server
    kept = []
    hooks = Hooks(kept.extend, engine_alive=lambda: len(kept) < 2)
    sessions = [drawn(f"agent/{n}") for n in range(9)]
    run = await run_sessions(place(), sessions, concurrency=1, manner=Sessions(pace=0.0), hooks=hooks)
    assert run.aborted
    assert len(kept) == 2
