"""What a server said, whatever way its bytes were cut and its fields were named."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdyno.load.stream import outcome, read_stream, read_whole
from specdyno.records.schema import Outcome

DONE = b"data: [DONE]\n\n"
# An issue-tracker classic: several tokens in a delta, a renamed field, no blank lines between the events.
RENAMED = rb"""data: {"choices":[{"delta":{"reasoning":"a b c"}}]}
data: {"choices":[{"delta":{"reasoning_content":"d \"e\" f"}}]}
data: {"choices":[{"delta":{"content":""},"finish_reason":null}]}
data: {"choices":[{"delta":{"content":"</think><tool_call>"}}]}
data: {"choices":[],"usage":{"completion_tokens":17}}
data: [DONE]
"""


def event(delta: dict | None = None, *, finish: str | None = None, **root) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + orjson.dumps({"choices": choices, **root}) + b"\n\n"


WHOLE = b"".join(
    [
        event({"role": "assistant", "content": ""}),
        b": a comment\n\n",
        event({"reasoning": "Ünder "}),
        event({"content": 'two tokens, "quoted"\n'}),
        event({"tool_calls": [{"index": 0, "id": "c0", "function": {"name": "f", "arguments": '{"a"'}}]}),
        event({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
        b'event: odd\nid: 7\ndata: {"choices":\ndata: [{"delta": {"content": "split"}}]}\n\n',
        event({}, finish="tool_calls"),
        event(usage={"completion_tokens": 9, "prompt_tokens": 4}),
        DONE,
    ]
)


def cut(data: bytes, places: list[int]) -> list[tuple[int, bytes]]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [(stamp, data[a:b]) for stamp, (a, b) in enumerate(pairwise(edges)) if a < b]


def facts(answer) -> dict:
    return {key: value for key, value in asdict(answer).items() if key != "chunk_ns"}


def test_a_renamed_field_and_fat_deltas_give_three_chunks_and_the_tokens_of_the_usage():
    reads = [(100 + number, line + b"\n") for number, line in enumerate(RENAMED.splitlines())]
    answer = read_stream(reads)
    assert answer.usage == {"completion_tokens": 17}
    assert answer.chunk_ns == [100, 101, 103]
    assert answer.reasoning == 'a b cd "e" f'
    assert answer.text == "</think><tool_call>"
    assert answer.chunk_chars == [5, 7, 19]
    assert answer.ended
    assert not answer.error


@given(st.lists(st.integers(0, 10_000), max_size=30), st.booleans())
def test_any_cut_of_the_bytes_gives_the_same_answer_with_stamps_that_rise(places, crlf):
    data = WHOLE.replace(b"\n", b"\r\n") if crlf else WHOLE
    answer = read_stream(cut(data, places))
    assert facts(answer) == facts(read_stream([(1, WHOLE)]))
    assert answer.chunk_ns == sorted(answer.chunk_ns)


def test_a_whole_answer_is_assembled():
    answer = read_stream([(5, WHOLE)])
    assert answer.text == 'two tokens, "quoted"\nsplit'
    assert answer.reasoning == "Ünder "
    assert answer.tool_calls == [{"id": "c0", "name": "f", "arguments": '{"a": 1}'}]
    assert answer.finish_reason == "tool_calls"
    assert len(answer.chunk_ns) == 5
    assert outcome(answer) is Outcome.FINISHED


def test_one_byte_per_read_stamps_an_event_when_its_data_is_complete():
    first, second = event({"content": "a"}), event({"content": "b"})
    reads = [(place, bytes([byte])) for place, byte in enumerate(first + second)]
    assert read_stream(reads).chunk_ns == [len(first) - 2, len(first) + len(second) - 2]


def test_the_role_and_empty_pieces_are_no_chunks():
    answer = read_stream(
        [(1, event({"role": "assistant"})), (2, event({"content": ""})), (3, event({"content": None}))]
    )
    assert answer.chunk_ns == []
    assert answer.text == ""


def test_the_same_thought_under_both_names_counts_once():
    answer = read_stream([(1, event({"reasoning": "abc", "reasoning_content": "abc"}))])
    assert answer.reasoning == "abc"
    assert answer.chunk_chars == [3]


def test_tool_calls_are_told_apart_by_their_index():
    calls = [
        {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{"}},
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": [1]}}},
        {"index": 1, "function": {"arguments": "}"}},
    ]
    answer = read_stream([(stamp, event({"tool_calls": [call]})) for stamp, call in enumerate(calls)])
    assert answer.tool_calls == [
        {"id": "a", "name": "f", "arguments": '{"x":[1]}'},
        {"id": "b", "name": "g", "arguments": "{}"},
    ]


def test_plain_completions_carry_their_text_in_the_choice():
    answer = read_stream([(1, b'data: {"choices":[{"text":"ab","finish_reason":"length"}]}\n\n' + DONE)])
    assert (answer.text, outcome(answer)) == ("ab", Outcome.CUT_AT_LIMIT)


@pytest.mark.parametrize("error", [{"message": "out of memory", "code": 500}, "out of memory"])
def test_an_error_within_the_stream_breaks_it(error):
    answer = read_stream([(1, event({"content": "a"})), (2, event(error=error)), (3, DONE)])
    assert answer.error == "out of memory"
    assert outcome(answer) is Outcome.BROKEN_STREAM
    assert answer.text == "a"


@pytest.mark.parametrize(
    ("tail", "ending"),
    [
        (DONE, Outcome.FINISHED),
        (event(usage={"completion_tokens": 1}), Outcome.FINISHED),
        (b"", Outcome.BROKEN_STREAM),
        (b'data: {"usage": {"compl', Outcome.BROKEN_STREAM),
    ],
)
def test_an_answer_is_whole_only_with_its_last_event(tail, ending):
    assert outcome(read_stream([(1, event({"content": "a"}, finish="stop") + tail)])) is ending


@pytest.mark.parametrize("reason", ["abort", "error", None])
def test_an_engine_that_gives_up_has_not_finished(reason):
    assert outcome(read_stream([(1, event({"content": "a"}, finish=reason) + DONE)])) is Outcome.BROKEN_STREAM


def test_the_last_usage_counts():
    reads = [(1, event({"content": "a"}, usage={"completion_tokens": 1})), (2, event(usage={"completion_tokens": 2}))]
    assert read_stream(reads).usage == {"completion_tokens": 2}


def test_a_plain_json_answer_is_one_chunk():
    body = {
        "choices": [{"message": {"content": "hello", "reasoning": "hm"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 2},
    }
    answer = read_whole(orjson.dumps(body), 9)
    assert (answer.text, answer.reasoning, answer.chunk_ns, answer.chunk_chars) == ("hello", "hm", [9], [7])
    assert outcome(answer) is Outcome.FINISHED


@pytest.mark.parametrize("body", [b"", b"<html>busy</html>", b"[]", b'"text"', b"7", b"null", b"\xff", b'{"a": 1}'])
def test_what_is_no_answer_is_a_broken_one(body):
    assert outcome(read_whole(body, 1)) is Outcome.BROKEN_STREAM


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "message", "content", "tool_calls", "function", "index", "usage", "text"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(json_values, max_size=4))
def test_no_shape_of_json_raises(values):
    data = b"".join(b"data: " + orjson.dumps(value) + b"\n\n" for value in values)
    outcome(read_stream([(1, data)]))
    for value in values:
        outcome(read_whole(orjson.dumps(value), 1))


@given(st.binary(max_size=200))
def test_no_bytes_raise(data):
    outcome(read_stream([(1, data)]))
