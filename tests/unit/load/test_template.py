"""Which events have a template, where their text goes, and which streams are given up."""

from __future__ import annotations

import orjson
import pytest

from specdyno.load import template
from specdyno.load.chunks import Reads
from specdyno.load.stream import Assembly
from specdyno.load.template import Template, place_of, take_apart


def around(event: bytes) -> tuple[bytes, bytes]:
    head, _, tail = event.partition(b"%s")
    return b"data: " + head, tail + b"\n\n"


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (b'{"id":"a-1","created":5,"choices":[{"delta":{"content":"%s"}}]}', "text"),
        (b'{"choices":[{"text":"%s"}]}', "text"),
        (b'{"choices":[{"delta":{"reasoning":"%s"}}]}', "reasoning"),
    ],
)
def test_the_text_goes_where_parsing_would_put_it(event, field):
    place, assembly = place_of(*around(event)), Assembly()
    assert place is not None
    place(assembly, ["a", "b"])
    assert getattr(assembly.finish(), field) == "ab"


def test_arguments_go_to_the_call_of_their_index():
    head, tail = around(b'{"choices":[{"delta":{"tool_calls":[{"index":3,"function":{"arguments":"%s"}}]}}]}')
    place, assembly = place_of(head, tail), Assembly()
    assert place is not None
    place(assembly, ['{"a"', ":1}"])
    assert assembly.calls == {3: {"id": None, "name": "", "arguments": '{"a":1}'}}


@pytest.mark.parametrize(
    "event",
    [
        b'{"choices":[{"delta":{"content":"%s"},"finish_reason":"stop"}]}',
        b'{"choices":[{"delta":{"content":"%s"}}],"usage":{"completion_tokens":1}}',
        b'{"choices":[{"delta":{"content":"%s"}},{"delta":{"content":"b"}}]}',
        b'{"choices":[{"delta":{"reasoning_content":"%s","reasoning":"b"}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"arguments":"%s"}}]}}]}',
        b'{"error":"%s"}',
        b'{"choices":[{"delta":{"content":"%s"}}],"metrics":{"speculative_decoding":{"num_spec_steps":2}}}',
        b'{"choices":[{"delta":{"content":"a%s"}}]}',
        b'{"created":012,"choices":[{"delta":{"content":"%s"}}]}',
        b'{"choices":\ndata: [{"delta":{"content":"%s"}}]}',
    ],
)
def test_an_event_with_any_other_effect_has_no_template(event):
    assert place_of(*around(event)) is None


@pytest.mark.parametrize("length", [*range(1, 40), *range(248, 260), 1_900])
def test_a_chunk_begins_with_its_own_size(length):
    text = b"x" * length
    chunk = b"%x\r\n" % (5 + length) + b"head:" + text + b"\r\n"
    found = Template(b"head:", b"\n", lambda *_: None, chunked=True)
    found.tail = b"\r\n"
    assert found.texts(chunk, 0) == ([text], [len(chunk)])
    assert found.texts(b"1" + chunk, 0) == ([], [])


def test_a_stream_whose_events_all_differ_is_tried_a_few_times_only(monkeypatch):
    tried = []
    monkeypatch.setattr(template, "place_of", lambda *ends: tried.append(ends))
    event = b"data: " + orjson.dumps({"choices": [{"delta": {"content": "a"}}]}) + b"\n\n"
    answer = take_apart(Reads.of((n, event) for n in range(50)), chunked=False).answer
    assert answer.text == "a" * 50
    assert len(tried) == 8
