"""What rows repeat is read once; what is found is the same as where every row is read in full."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.workload.log_rows import chat, log

from specdyno.workload.logs import beginnings
from specdyno.workload.logs.beginnings import Beginnings
from specdyno.workload.logs.importing import import_logs
from specdyno.workload.logs.scan import Facts, scan

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"look_{n}",
            "description": f'Looks "{n}" up: {{[ or ]}}.',
            "parameters": {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}], "default": "}],"}}},
        },
    }
    for n in range(5)
]


def talk(number: int, *, turns: int = 6) -> list[tuple[list[Any], Any]]:
    """What each request of an agent asks, and its answer: two conversations share the system's message."""
    history: list[Any] = [
        {"role": "system", "content": 'Say "}]," rarely. ' + "You keep the garden. " * 20},
        {"role": "user", "content": f"Plan bed {number}.\nIt holds [{{}}], ünïcode and {number * 7} stones."},
    ]
    asked = []
    for n in range(turns):
        made = {"id": f"call_{n}", "type": "function", "function": {"name": "look_1", "arguments": f'{{"a":"{n}"}}'}}
        answer = (
            {"role": "assistant", "content": None, "tool_calls": [made]}
            if n % 2
            else {"role": "assistant", "content": f" Step {n} of {number}: dig, then water it well every evening.\n"}
        )
        asked.append((list(history), answer))
        follows = (
            {"role": "tool", "tool_call_id": f"call_{n}", "content": f"frost in {n} days }}],"}
            if n % 2
            else {"role": "user", "content": f"And then, after step {n}?"}
        )
        history += [answer, follows]
    return asked


def litellm(messages: list[Any], answer: Any, n: int) -> list[Any]:
    response = {"choices": [{"message": answer}], "usage": {"completion_tokens": n}}
    return [
        {
            "model": "m", "messages": messages, "call_type": "acompletion", "response": response,
            "model_parameters": {"tools": TOOLS, "temperature": 0.5},
        }
    ]  # fmt: skip


def tools_first(messages: list[Any], answer: Any, n: int) -> list[Any]:
    return [{"tools": TOOLS, "seed": n, "messages": messages, "response": {"choices": [{"message": answer}]}}]


def with_answer(messages: list[Any], answer: Any, n: int) -> list[Any]:
    return [{"messages": [*messages, answer], "conversation_id": f"{n}", "tools": TOOLS}]


def langfuse(messages: list[Any], answer: Any, n: int) -> list[Any]:
    asked = messages if n % 2 else {"messages": messages, "tools": TOOLS}
    return [{"traceId": f"t{n}", "type": "GENERATION", "input": asked, "output": answer}]


def batch_body(messages: list[Any], answer: Any, n: int) -> list[Any]:
    return [{"custom_id": f"r{n}{answer}", "body": {"model": "m", "tools": TOOLS, "messages": messages}}]


def twice(messages: list[Any], answer: Any, n: int) -> list[Any]:
    return [{"metadata": {"messages": messages}, "messages": [*messages[:-1], {"role": "user", "content": f"{n}"}]}]


KINDS = [litellm, tools_first, with_answer, langfuse, batch_body, twice]
WRITTEN: list[Callable[[Any], bytes]] = [orjson.dumps, lambda row: json.dumps(row).encode()]


def rows_of(kind: Callable[[list[Any], Any, int], list[Any]], write: Callable[[Any], bytes]) -> list[bytes]:
    talks = [talk(number) for number in range(4)]
    asked = [pair for turn in zip(*talks, strict=True) for pair in turn]  # interleaved
    return [write(row) for n, (messages, answer) in enumerate(asked) for row in kind(messages, answer, n)]


def facts_of(rows: Sequence[bytes], known: Beginnings | None) -> Facts:
    return scan(b"\n".join(rows), start=0, beginnings=known)


@pytest.fixture(autouse=True)
def _every_row_is_long_enough() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beginnings, "SMALL", 100)
        yield


@pytest.mark.parametrize("write", WRITTEN, ids=["compact", "spaced"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_log_gives_the_same_facts(
    kind: Callable[[list[Any], Any, int], list[Any]], write: Callable[[Any], bytes]
) -> None:
    rows = rows_of(kind, write)
    whole = facts_of(rows, None)
    assert whole.requests == len(rows)
    assert facts_of(rows, Beginnings()) == whole


@pytest.mark.parametrize("write", WRITTEN, ids=["compact", "spaced"])
@pytest.mark.parametrize("kind", [litellm, tools_first, with_answer, langfuse, batch_body])
def test_history_and_tools_are_cut_out(
    kind: Callable[[list[Any], Any, int], list[Any]], write: Callable[[Any], bytes]
) -> None:
    known = Beginnings()
    rows = rows_of(kind, write)
    left = 0
    for row in rows:
        short = known.shortened(row, 0, len(row))
        left += len(short.row if short is not None else row)
    assert left < sum(map(len, rows)) / 3


@given(data=st.data())
def test_a_damaged_row_is_found_the_same_whatever_was_read_before(data: st.DataObject) -> None:
    rows = rows_of(data.draw(st.sampled_from(KINDS)), data.draw(st.sampled_from(WRITTEN)))[:12]
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(rows) - 1))
        row = rows[place]
        begin = data.draw(st.integers(0, len(row)))
        end = min(len(row), begin + data.draw(st.sampled_from([0, 1, 1, 5, 10**6])))
        put = data.draw(
            st.sampled_from(
                [b"", b'"', b"}", b"]", b"{", b",", b"\xff", b"\\", b"}]", b'"messages":[{', b'}],"messages":[{']
            )
        )
        rows[place] = row[:begin] + put + row[end:]
    assert facts_of(rows, Beginnings()) == facts_of(rows, None)


def test_what_is_held_is_bounded_and_forgetting_changes_nothing() -> None:
    rows = rows_of(litellm, orjson.dumps)
    known = Beginnings(most=5000)
    assert facts_of(rows, known) == facts_of(rows, None)
    most = max(len(row) for row in rows)
    for row in rows:
        known.shortened(row, 0, len(row))
        assert known.held < 5000 + 20 * most


def test_a_log_that_repeats_nothing_is_soon_left_in_peace() -> None:
    known = Beginnings()
    rows = [orjson.dumps(chat(f"{n} is what I ask about, and nobody asked that before: {n}" * 9)) for n in range(2000)]
    looked = sum(known.shortened(row, 0, len(row)) is not None for row in rows)
    assert 200 <= looked < 500


def test_an_import_is_the_same_byte_by_byte(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for kind in KINDS for row in rows_of(kind, WRITTEN[KINDS.index(kind) % 2])]
    rows += [b"broken", rows[0][:-40], orjson.dumps(chat())]
    path = log(tmp_path, *[row + b"\n" for row in rows])
    folders = []
    for small in (100, 10**9):
        monkeypatch.setattr(beginnings, "SMALL", small)
        import_logs([path], tmp_path / "out")
        folders.append({file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()})
        (tmp_path / "out").rename(tmp_path / f"out-{small}")
    assert folders[0] == folders[1]
    assert orjson.loads(folders[0]["import.json"])["sessions"]["count"] > 0
