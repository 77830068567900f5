"""Requests become sessions: by ids, by shared beginnings, each ended once, in bounded room."""

from __future__ import annotations

from pathlib import Path

import orjson
from tests.unit.workload.log_rows import account_of, chat, talk

from specdyno.workload.logs.chains import Chain, Chains
from specdyno.workload.logs.scan import scan
from specdyno.workload.sessions import load_sessions


def test_sessions_are_rebuilt_from_shared_beginnings_though_interleaved(tmp_path: Path) -> None:
    pairs = zip(talk(3, topic="bridges"), talk(3, topic="ferries"), strict=True)
    found = account_of(tmp_path, *[row for pair in pairs for row in pair], chat())
    assert (found["sessions"]["count"], found["sessions"]["requests"], found["sessions"]["kept"]) == (2, 6, 2)
    first, second = load_sessions("sessions.jsonl", tmp_path / "out").sessions
    assert [turn.messages[0]["content"] for turn in first.turns] == [f"Question {n} about bridges?" for n in range(3)]
    assert [turn.pause_s for turn in first.turns] == [0.0, 50.0, 50.0]
    assert second.turns[2].recorded is not None
    assert "ferries" in second.turns[2].recorded["content"]


def test_an_id_links_requests_whose_history_was_changed_and_parts_those_that_look_alike(tmp_path: Path) -> None:
    rows = [dict(row, session_id="a") for row in talk(2, topic="bridges")]
    rows[1]["messages"][1]["content"] += " (shortened)"
    other = dict(talk(2, topic="bridges")[1], session_id="b")
    found = account_of(tmp_path, rows[0], other, rows[1])
    assert (found["sessions"]["count"], found["sessions"]["requests"]) == (1, 2)


def test_a_talk_that_cannot_be_replayed_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = talk(2, topic="bridges")
    rows[1]["messages"].insert(2, {"role": "system", "content": "Be brief."})
    found = account_of(tmp_path, *[dict(row, session_id="a") for row in rows])
    assert found["sessions"]["kept"] == 0
    assert found["sessions"]["left_out"] == {"has messages in an order or a shape that cannot be replayed": 1}
    assert not (tmp_path / "out" / "sessions.jsonl").exists()


def test_a_session_is_ended_once_though_each_of_its_requests_has_an_id_of_its_own() -> None:
    closed: list[Chain] = []
    chains = Chains(closed.append, most=4)
    talks = [talk(5, topic=f"bridge {n}") for n in range(6)]
    rows = [
        {"traceId": f"{n}-{m}", "type": "GENERATION", "input": row["messages"], "output": row["response"]}
        for n, rows in enumerate(talks)
        for m, row in enumerate(rows)
    ]
    chains.add(0, scan(b"\n".join(map(orjson.dumps, rows)), start=0))
    chains.close()
    assert [chain.requests for chain in closed] == [5] * 6


def test_a_million_requests_of_one_user_need_no_more_room_than_open_sessions(tmp_path: Path) -> None:
    closed: list[Chain] = []
    chains = Chains(closed.append, most=10)
    rows = [orjson.dumps(chat(f"question {n}?", user="one", session_id="u")) for n in range(300)]
    rows += [orjson.dumps(row) for row in talk(2, topic="bridges")]
    chains.add(0, scan(b"\n".join(rows), start=0))
    assert len(closed) >= 280
    chains.close()
    assert sorted(chain.requests for chain in closed)[-2:] == [1, 2]
    assert sum(chain.requests for chain in closed) == 302
    assert len({id(chain) for chain in closed}) == len(closed)
