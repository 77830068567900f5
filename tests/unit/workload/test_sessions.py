"""Session files: each usable row becomes a session, each other one a reason with its line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from specdyno.errors import PlanError
from specdyno.plan.schema import Plan
from specdyno.workload.rows import UnusableRow
from specdyno.workload.sessions import (
    ClassSessions,
    Session,
    collect_sessions,
    load_session_pools,
    load_sessions,
    read_sessions,
)

Row = dict[str, Any]


def user(text: str = "go on") -> Row:
    return {"role": "user", "content": text}


def result(call_id: str, text: str = "ok") -> Row:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def said(*ids: str, text: str = "well", arguments: Any = "{}") -> Row:
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": arguments}} for one in ids]
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def turn(*messages: Row, recorded: Row | None = None, **more: Any) -> Row:
    return {"phase": "planning", "messages": list(messages), "recorded": recorded or said(), **more}


def session(*turns: Row, **more: Any) -> Row:
    return {"id": "s1", "system": "be brief", "turns": list(turns), **more}


def lines(*rows: Any) -> bytes:
    return b"\n".join(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows)


def only(row: Any) -> Session:
    found = read_sessions(lines(row))
    assert found.skipped == ()
    return found.sessions[0]


def why(row: Any) -> str:
    found = read_sessions(lines(row, session(turn(user()), id="good")))
    assert [one.id for one in found.sessions] == ["good"]
    assert [line for line, _ in found.skipped] == [1]
    return found.skipped[0][1]


def test_a_row_becomes_a_session_with_its_turns() -> None:
    row = session(
        turn(user("fix it"), recorded=said("c1")),
        turn(result("c1"), pause_s=2, phase="reading"),
        tools=[{"type": "function", "function": {"name": "look"}}],
    )
    found = only(row)
    assert (found.id, found.system, len(found.turns)) == ("s1", "be brief", 2)
    assert [one["function"]["name"] for one in found.tools or ()] == ["look"]
    assert [(one.phase, one.pause_s) for one in found.turns] == [("planning", 0.0), ("reading", 2.0)]
    assert found.turns[0].recorded == row["turns"][0]["recorded"]
    assert found.turns[1].messages == (result("c1"),)


def test_what_a_session_may_leave_out() -> None:
    found = only({"turns": [{"messages": [user()]}, {"messages": [user("more")]}]})
    assert (found.id, found.system, found.tools) == ("1", None, None)
    assert [(one.phase, one.pause_s, one.recorded) for one in found.turns] == [("turn", 0.0, None)] * 2


def test_results_are_put_in_the_order_of_their_calls_and_before_what_the_user_adds() -> None:
    row = session(turn(user(), recorded=said("a", "b")), turn(result("b"), result("a"), user("and?")))
    assert [one.get("tool_call_id") for one in only(row).turns[1].messages] == ["a", "b", None]


CALLED = turn(user(), recorded=said("c1"))


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([turn(result("c1"))], "did not record"),
        ([CALLED, turn(user())], "lacks the result of the call 'c1'"),
        ([CALLED, turn(result("c2"))], "lacks the result of the call 'c1'"),
        ([CALLED, turn(result("c1"), result("c9"))], "did not record \\('c9'\\)"),
        ([CALLED, turn(result("c1"), result("c1"))], "two results of the same call"),
        ([CALLED, turn(user(), result("c1"))], "after a message of the user"),
        ([CALLED, turn({"role": "tool", "content": "x"}, result("c1"))], "did not record"),
        ([turn(user(), {"role": "assistant", "content": "hm"})], "answers stand in `recorded`"),
        ([turn({"role": "system", "content": "be good"}, user())], "it stands in `system`"),
        ([turn({"content": "who am I"})], "a message of nobody"),
        ([turn(user(), recorded={"role": "user", "content": "me again"})], "`turns\\[0\\].recorded.role`"),
        ([turn(user(), recorded=said("c1", "c1"))], "the same id twice"),
        ([turn(user(), recorded=said("c1", arguments={"a": 1}))], "not the JSON text of an object"),
        ([turn(user(), recorded=said("c1", arguments='{"a": '))], "not the JSON text of an object"),
        ([turn(user(), recorded=said("", arguments="{}"))], "lacks its id"),
    ],
)
def test_an_order_that_no_server_takes_is_refused_by_row(turns: list[Row], reason: str) -> None:
    assert re.search(reason, why(session(*turns)))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"{", "is no JSON"),
        ([1], "is no JSON object"),
        (session(), "`turns` is not a list with at least one entry"),
        (session(turn()), "`turns[0].messages` is not a list of messages"),
        (session("hello"), "`turns[0]` is no object"),
        (session(turn(user(""))), "`messages[1].content` is empty"),
        (session(turn(user()), system=["x"]), "`system` is no text"),
        (session(turn(user()), tools=["look"]), "`tools[0]`"),
        (session(turn(user(), pause_s=-1)), "`turns[0].pause_s`"),
        (session(turn(user(), pause_s=True)), "`turns[0].pause_s`"),
        (session(turn(user(), pause_s=86_400)), "`turns[0].pause_s`"),
        (session(turn(user(), phase="x" * 41)), "`turns[0].phase`"),
    ],
)
def test_a_row_that_is_no_session_says_why(row: Any, reason: str) -> None:
    assert reason in why(row)


def test_rows_are_kept_dropped_or_refused_and_nothing_else() -> None:
    first = session(turn(user("a")))
    data = lines(first, b"", {**first, "id": "copy"}, {**session(turn(user("b")))}, b"no", session(turn(user("c"))))
    found = read_sessions(b"\xef\xbb\xbf" + data)
    assert [one.id for one in found.sessions] == ["s1", "s1@4", "s1@6"]
    assert (found.duplicates, [line for line, _ in found.skipped]) == (1, [5])


def test_a_json_list_is_read_like_lines() -> None:
    rows = [session(turn(user("a"))), {"turns": 1}, session(turn(user("b")), id="s2")]
    found = read_sessions(json.dumps(rows, indent=1).encode())
    assert [one.id for one in found.sessions] == ["s1", "s2"]
    assert [number for number, _ in found.skipped] == [2]


def test_rows_of_another_source_are_collected_with_their_own_reasons() -> None:
    rows = [(7, session(turn(user()))), (9, UnusableRow("needs a tool that is not there"))]
    found = collect_sessions(rows)
    assert (len(found.sessions), found.skipped) == (1, ((9, "needs a tool that is not there"),))


def test_a_row_that_is_nested_without_end_is_refused() -> None:
    deep: Any = "x"
    for _ in range(400):
        deep = {"a": deep}
    content = [{"type": "text", "text": deep}]
    found = collect_sessions([(1, session(turn({"role": "user", "content": content})))])
    assert found.skipped == ((1, "is nested too deeply"),)


def plan(*sources: str) -> Plan:
    classes = [
        {"name": f"c{n}", "sessions": one, "share": 1 / len(sources), "max_tokens": 8} for n, one in enumerate(sources)
    ]
    return Plan.model_validate(
        {
            "study": "s",
            "target": {"model": "m"},
            "engine": {"kind": "simulated"},
            "candidates": [{"method": "ngram", "draft_tokens": [2]}],
            "workload": {"sampling": {"temperature": 0.0}, "classes": classes},
            "loads": [{"name": "agents", "sessions": 1, "window": "5s"}],
            "objectives": [{"name": "o", "load": "agents", "measure": "sessions_per_h"}],
        }
    )


def test_the_pools_of_a_plan_are_built_in_or_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_bytes(lines(session(turn(user()))))
    pools = load_session_pools(plan("builtin:agent", "mine.jsonl"), tmp_path)
    assert (len(pools["c0"].sessions) >= 30, len(pools["c1"].sessions)) == (True, 1)


def test_all_missing_sources_are_named_at_once_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(lines({"turns": []}))
    with pytest.raises(PlanError) as raised:
        load_session_pools(plan("builtin:agnt", "none.jsonl", "bad.jsonl", "."), tmp_path)
    seen = {problem.place: str(problem) for problem in raised.value.problems}
    assert list(seen) == [f"workload.classes[{n}].sessions" for n in range(4)]
    assert "Did you mean builtin:agent?" in seen["workload.classes[0].sessions"]
    assert "there is no file none.jsonl" in seen["workload.classes[1].sessions"]
    assert "no usable session: line 1 `turns` is not a list" in seen["workload.classes[2].sessions"]
    assert "cannot be read" in seen["workload.classes[3].sessions"]


def test_one_source_is_loaded_by_name(tmp_path: Path) -> None:
    assert isinstance(load_sessions("builtin:agent", tmp_path), ClassSessions)
