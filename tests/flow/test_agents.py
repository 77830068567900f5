"""Agent sessions replayed turn by turn, through the command line on the simulated engine."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flow.arriving import measured, objective, study, windows, workload
from tests.flow.command_line import engine, specdyno, verdict

from specdyno.records.schema import ArrivalKind, FindingCode, WindowKind

pytestmark = pytest.mark.timeout(600)  # whole studies on a slow, busy machine

TOOL = {
    "type": "function",
    "function": {"name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
}


def session(number: int) -> dict[str, Any]:
    calls = [{"id": "r0", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}]
    return {
        "id": f"s{number}",
        "system": "You repair programs.",
        "tools": [TOOL],
        "turns": [
            {
                "phase": "planning",
                "messages": [{"role": "user", "content": f"Find the fault number {number}."}],
                "recorded": {"role": "assistant", "content": None, "tool_calls": calls},
            },
            {
                "phase": "reading",
                "messages": [{"role": "tool", "tool_call_id": "r0", "content": f"line {number} of the file"}],
                "pause_s": 0.02,
                "recorded": {"role": "assistant", "content": "It is in line one."},
            },
            {"phase": "acknowledgement", "messages": [{"role": "user", "content": "Thank you."}], "pause_s": 0.01},
        ],
    }


def agents(folder: Path, *, tool_calls: float = 1.0, **load: Any) -> Path:
    (folder / "agents.jsonl").write_text("".join(json.dumps(session(n)) + "\n" for n in range(24)))
    return study(
        folder,
        [{"name": "agents", "sessions": 3, "window": "2s", **load}],
        objectives=[objective("agents", "sessions_per_h")],
        engine=engine(truth={"tool_calls": tool_calls}),
        workload=workload([{"name": "agent", "sessions": "./agents.jsonl", "share": 1, "max_tokens": 64}]),
    )


def test_sessions_are_replayed_turn_by_turn_with_so_many_in_flight(tmp_path: Path) -> None:
    found = measured(agents(tmp_path, requests=9), tmp_path)
    requests = found.requests
    assert requests.session_code is not None
    assert requests.turn is not None
    assert requests.phase_code is not None
    assert set(requests.phases) == {"planning", "reading", "acknowledgement"}
    for _, window, at in windows(found, "agents"):
        assert window.arrival is not None
        assert (window.arrival.kind, window.concurrency, window.planned, len(at)) == (ArrivalKind.SESSIONS, 3, 27, 27)
        mine = requests.session_code[at]
        assert set(Counter(mine.tolist()).values()) == {3}
        for code in set(mine.tolist()):
            turns = at[mine == code]
            order = np.argsort(requests.sent_ns[turns])
            assert requests.turn[turns[order]].tolist() == [0, 1, 2]
            ends, starts = requests.ended_ns[turns[order]][:-1], requests.sent_ns[turns[order]][1:]
            assert (starts - ends >= [20_000_000, 10_000_000]).all()
        warm = {window.boot_id: window for window in found.windows if window.kind is WindowKind.WARM_UP}
        used = requests.session_code[requests.window_id == warm[window.boot_id].id]
        assert not set(used.tolist()) & set(mine.tolist())
    findings = {one["code"] for one in verdict(tmp_path / "study")["findings"]}
    assert FindingCode.PROMPTS_DIFFER not in findings
    assert FindingCode.HISTORY_SUPPLIED not in findings or requests.supplied is not None


def test_where_the_engine_calls_no_tool_the_recorded_call_stands_in_and_is_said(tmp_path: Path) -> None:
    found = measured(agents(tmp_path, tool_calls=0.0, requests=6), tmp_path)
    assert found.requests.supplied is not None
    assert found.requests.turn is not None
    for _, _, at in windows(found, "agents"):
        by_turn = {
            turn: set(found.requests.supplied[at][found.requests.turn[at] == turn].tolist()) for turn in (0, 1, 2)
        }
        assert by_turn == {0: {-1}, 1: {1}, 2: {0}}
    (one, *_) = [f for f in verdict(tmp_path / "study")["findings"] if f["code"] == FindingCode.HISTORY_SUPPLIED]
    assert one["severity"] == "note"
    assert one["detail"] == "in 6 of 12 later turns"


def test_windows_of_sessions_are_sized_from_the_warm_up_and_never_use_one_twice(tmp_path: Path) -> None:
    found = measured(agents(tmp_path), tmp_path)
    size = found.header.sizing["agents"]
    assert 6 <= size <= 24 - 3
    assert {window.planned for _, window, _ in windows(found, "agents")} == {3 * size}


def test_too_few_sessions_are_refused_with_the_number_needed(tmp_path: Path) -> None:
    ended = specdyno("check", agents(tmp_path, requests=50))
    assert ended.code == 2
    assert 'class "agent" has 24 sessions and one boot needs 53' in ended.text
