"""A stream read by its template says what it says when every event is parsed: same facts, same stamps, same faults."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import accumulate, pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from specdyno.load import template
from specdyno.load.chunks import Reads, unchunked
from specdyno.load.stream import read_stream
from specdyno.load.template import take_apart

TEXTS = st.one_of(
    st.sampled_from([" the", "\n", '"', "\\", 'say "hi"', "é", "😀", "", " ", "\\n", '","', "\t", "]", "\u2028", "\0"]),
    st.text(max_size=6),
)
# Pieces as bytes between two quotes: most are strings, some are none, and some would be strings only beside others.
ODD = st.sampled_from(
    [b"a\\", b',"b', b'a","b', b"\\ud83d", b"\\ude00", b"\xff", b"a\nb", b"\\x", b'"', b"\\\\", b'\\"']
)
PIECES = st.one_of(
    TEXTS.map(lambda text: json.dumps(text)[1:-1].encode()),
    TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False)[1:-1].encode(errors="replace")),
    st.one_of(TEXTS.map(lambda text: json.dumps(text)[1:-1].encode()), ODD),
)
SHAPES = (
    b'{"id":"cmpl-1","created":17,"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}',
    b'{"choices":[{"delta":{"reasoning_content":"%s"}}]}',
    b'{"choices": [{"delta": {"content": null, "reasoning": "%s"}}]}',
    b'{"choices":[{"delta":{"reasoning_content":"%s","reasoning":"always"}}]}',
    b'{"choices":[{"text":"%s","logprobs":null}]}',
    b'{"choices":[{"delta":{"tool_calls":[{"index":2,"function":{"arguments":"%s"}}]}}]}',
    b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"%s"}}]}}]}',
    b'{"choices":[{"delta":{"content":"%s"}},{"delta":{"content":"other"}}]}',
    b'{"choices":[{"delta":{"content":"%s"},"finish_reason":"stop"}]}',
    b'{"choices":[{"delta":{"content":"%s","content":"last"}}]}',
    b'{"choices":[{"delta":{"content":"%s"},"logprobs":{"content":[{"token":"x","logprob":-0.1}]}}]}',
    b'{"choices":[{"delta":{"content":"%s"}}],"usage":{"completion_tokens":3}}',
    b'{"choices":[{"delta":{"content":"%s"}}],"timings":{"draft_n":4,"draft_n_accepted":2,"predicted_n":9}}',
    b'{"choices":[{"delta":{"content":"%s"}}],"metrics":{"speculative_decoding":{"num_spec_steps":2}}}',
    b'{"error":{"message":"%s"}}',
    b'{"choices":[{"delta":{"role":"assistant","content":""}}],"text":"%s"}',
    b'{"choices":[{"delta":{"%s":"content"}}]}',
    b'{"created":012,"choices":[{"delta":{"content":"%s"}}]}',
    b'{"choices":[{"delta":{"content":"%s"}',
    b"%s",
)
ENDS = st.sampled_from([b"\n\n"] * 8 + [b"\r\n\r\n", b"\n", b"\n: ping\n\n", b"\nid: 7\n\n", b"\n\n\n", b""])
STARTS = st.sampled_from(
    [b"data: "] * 8 + [b"data:", b"event: message\ndata: ", b": data: ", b'data: {"a":\ndata: ', b""]
)
REST = st.sampled_from(
    [
        b'data: {"choices":[{"delta":{},"finish_reason":"length"}]}\n\n',
        b'data: {"choices":[],"usage":{"completion_tokens":5,"prompt_tokens":2}}\n\n',
        b'data: {"choices":[],"metrics":{"speculative_decoding":{"num_spec_steps":2,"num_draft_tokens":4}}}\n\n',
        b'data: {"choices":\ndata: [{"delta": {"content": "split"}}]}\n\n',
        b"data: [DONE]\n\n",
        b"data: nonsense\n\n",
        b'data: {"error":"out of memory"}\n\n',
        b": comment\n\n",
    ]
)


@st.composite
def runs(draw) -> list[bytes]:
    """Events of one shape, as engines send them."""
    shape, start, end = draw(st.sampled_from(SHAPES)), draw(STARTS), draw(ENDS)
    pieces = draw(st.lists(PIECES, min_size=1, max_size=12))
    return [start + shape.replace(b"%s", piece) + end for piece in pieces]


@st.composite
def streams(draw) -> tuple[list[bytes], bool]:
    """Parts of a body, and whether each is an HTTP chunk."""
    parts = [part for run in draw(st.lists(st.one_of(runs(), REST.map(lambda one: [one])), max_size=6)) for part in run]
    chunked = draw(st.booleans())
    if not chunked:
        return parts, False
    size = draw(st.sampled_from([b"%x", b"%x", b"%x", b"%X", b"0%x", b"%x;name=value"]))
    framed = [size % len(part) + b"\r\n" + part + b"\r\n" for part in parts if part]
    last = draw(st.sampled_from([b"0\r\n\r\n", b"0\r\n\r\n", b"", b"zz\r\n", b"0\r\n\r\nmore"]))
    return [*framed, last], True


@st.composite
def cut_streams(draw) -> tuple[list[tuple[int, bytes]], bool]:
    """As reads: mostly a part in each, sometimes several, sometimes cut anywhere, sometimes ending too early."""
    parts, chunked = draw(streams())
    edges = set(accumulate(map(len, parts))) | {0}
    whole = max(edges)
    edges -= set(draw(st.lists(st.sampled_from(sorted(edges)), max_size=8))) - {0, whole}
    edges |= {place % (whole + 1) for place in draw(st.lists(st.integers(0, 5_000), max_size=4))}
    if draw(st.integers(0, 9)) == 0:
        edges = {edge for edge in edges if edge <= draw(st.integers(0, whole))} | {0}
    data = b"".join(parts)
    return [(100 + 7 * n, data[a:b]) for n, (a, b) in enumerate(pairwise(sorted(edges)))], chunked


def parsed(reads: list[tuple[int, bytes]], *, chunked: bool) -> tuple:
    body, problem = unchunked(reads) if chunked else (Reads.of(reads), "")
    return asdict(read_stream(body)), problem, body.first_ns, body.last_ns


def taken(reads: list[tuple[int, bytes]], *, chunked: bool) -> tuple:
    found = take_apart(Reads.of(reads), chunked=chunked)
    return asdict(found.answer), found.problem, found.first_ns, found.last_ns


SPLIT = b'data: {"choices":\ndata: [{"delta": {"content": "split"}}]}\n\n'


@given(cut_streams())
@example(([(1, SPLIT), (2, SPLIT[:-1]), (3, b"\n")], False))
@example(
    ([(n, b'data: {"choices":[{"text":"%s"}]}\n\n' % t) for n, t in enumerate([b"x", b"a\\", b',"b', b"y"])], False)
)
def test_a_stream_is_read_the_same_with_its_template_as_event_by_event(stream):
    reads, chunked = stream
    assert taken(reads, chunked=chunked) == parsed(reads, chunked=chunked)


@given(st.lists(st.one_of(TEXTS, st.just("  ")), min_size=3, max_size=40), st.booleans(), st.sampled_from(SHAPES[:3]))
def test_plain_streams_are_not_parsed_event_by_event(texts, chunked, shape):
    texts = ["first", "second", *texts]
    events = [b"data: " + shape.replace(b"%s", json.dumps(text)[1:-1].encode()) + b"\n\n" for text in texts]
    reads = [(n, b"%x\r\n%s\r\n" % (len(e), e) if chunked else e) for n, e in enumerate(events)]
    read = []
    kept = template._Taking.one

    def one(taking) -> None:
        read.append(taking)
        kept(taking)

    template._Taking.one = one
    try:
        assert taken(reads, chunked=chunked) == parsed(reads, chunked=chunked)
    finally:
        template._Taking.one = kept
    assert len(read) <= 1 + any("\ud800" <= letter <= "\udfff" for text in texts for letter in text) * len(texts)
