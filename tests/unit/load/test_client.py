"""Every way an exchange can end is a row; stamps are taken at receipt; tokens come from the usage alone."""

from __future__ import annotations

import asyncio
import socket
import struct
import time

import pytest
from tests.unit.load.scripted_server import WHOLE, head, prompt

from specdyno.engine.process import free_port
from specdyno.load.chunks import Reads
from specdyno.load.client import RawExchange, exchange, record, request_body
from specdyno.records.schema import Outcome, RequestRecord

BODY = request_body({"model": "m"})


async def ask(scripted, client, *parts: bytes, pause_s: float = 0.0, timeout_s: float = 5.0, **keys) -> RequestRecord:
    async def script(one) -> None:
        await one.send(*parts, pause_s=pause_s)

    scripted.script = script
    raw = await exchange(client, scripted.url + "/v1/chat/completions", BODY, timeout_s=timeout_s)
    return record(raw, prompt(), index=3, max_tokens=64, intended_ns=raw.sent_ns, **keys)


async def test_a_finished_answer_is_a_row_with_the_servers_own_counts(scripted, client):
    row = await ask(scripted, client, head() + WHOLE)
    assert row.outcome is Outcome.FINISHED
    assert (row.prompt_tokens, row.completion_tokens, row.cached_tokens, row.reasoning_tokens) == (4, 5, 1, None)
    assert (row.text, row.chunk_chars, row.status, row.index, row.error) == ("hello", (3, 2), 200, 3, "")
    assert (row.prompt_id, row.class_name, row.max_tokens) == ("p0", "code", 64)


async def test_stamps_are_taken_when_the_bytes_arrive(scripted, client):
    parts = [head(), *[part + b"\n\n" for part in WHOLE.split(b"\n\n") if part]]
    row = await ask(scripted, client, *parts, pause_s=0.05)
    stamps = [row.sent_ns, row.first_byte_ns, *row.chunk_ns, row.last_byte_ns]
    assert stamps == sorted(stamps)
    assert len(row.chunk_ns) == 2
    assert row.chunk_ns[1] - row.chunk_ns[0] > 20_000_000
    assert row.last_byte_ns <= time.monotonic_ns()


async def test_a_request_asks_for_a_stream_and_its_usage(scripted, client):
    await ask(scripted, client, head() + WHOLE)
    assert scripted.bodies == [{"model": "m", "stream": True, "stream_options": {"include_usage": True}}]


async def test_without_usage_the_tokens_are_not_measured(scripted, client):
    body = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    row = await ask(scripted, client, head() + body)
    assert row.outcome is Outcome.FINISHED
    assert (row.prompt_tokens, row.completion_tokens, row.cached_tokens) == (None, None, None)


@pytest.mark.parametrize("usage", ["7", "[]", '{"prompt_tokens_details": [1], "completion_tokens": "x"}', '"a"'])
async def test_odd_usage_is_not_measured_and_raises_nothing(scripted, client, usage):
    text = f'data: {{"choices":[{{"delta":{{"content":"a"}},"finish_reason":"stop"}}],"usage":{usage}}}\n\n'
    row = await ask(scripted, client, head() + text.encode() + b"data: [DONE]\n\n")
    assert row.outcome is Outcome.FINISHED
    assert (row.completion_tokens, row.cached_tokens) == (None, None)


async def test_an_answer_cut_at_its_limit_says_so(scripted, client):
    row = await ask(scripted, client, head() + WHOLE.replace(b'"stop"', b'"length"'))
    assert row.outcome is Outcome.CUT_AT_LIMIT
    assert row.outcome.done


async def test_a_silent_server_times_out_and_what_came_is_kept(scripted, client):
    started = WHOLE[: WHOLE.index(b'{"choices":[{"delta":{"content":"lo"')]
    row = await ask(scripted, client, head() + started, pause_s=3, timeout_s=0.3)
    assert row.outcome is Outcome.TIMED_OUT
    assert row.text == "hel"
    assert row.completion_tokens is None
    assert 0.25e9 < row.last_byte_ns - row.sent_ns < 2.5e9


async def test_where_nothing_listens_the_request_is_refused(client):
    raw = await exchange(client, f"http://127.0.0.1:{free_port()}/v1/completions", BODY, timeout_s=5)
    row = record(raw, prompt(), index=0, max_tokens=8, intended_ns=raw.sent_ns)
    assert row.outcome is Outcome.REFUSED
    assert (row.status, row.first_byte_ns, row.chunk_ns) == (None, None, ())
    assert row.error


async def test_an_http_error_keeps_its_body(scripted, client):
    text = b'{"error": {"message": "no such model"}}'
    row = await ask(scripted, client, head("404 Not Found", "application/json", f"Content-Length: {len(text)}") + text)
    assert row.outcome is Outcome.HTTP_ERROR
    assert (row.status, row.text) == (404, "")
    assert "no such model" in row.error


async def test_a_stream_that_ends_early_is_broken(scripted, client):
    row = await ask(scripted, client, head() + WHOLE[: WHOLE.index(b'data: {"choices":[{"delta":{"content":"lo"')])
    assert row.outcome is Outcome.BROKEN_STREAM
    assert row.text == "hel"
    assert "before the final event" in row.error


async def test_a_chunked_stream_without_its_end_is_broken(scripted, client):
    piece = WHOLE[:120]
    framed = f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    row = await ask(scripted, client, head("200 OK", "text/event-stream", "Transfer-Encoding: chunked") + framed)
    assert row.outcome is Outcome.BROKEN_STREAM
    assert row.error


async def test_a_reset_connection_is_broken(scripted, client):
    async def reset(one) -> None:
        await one.send(head() + WHOLE[:150], pause_s=0.1)
        sock = one.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.writer.transport.abort()

    scripted.script = reset
    raw = await exchange(client, scripted.url, BODY, timeout_s=5)
    row = record(raw, prompt(), index=0, max_tokens=8, intended_ns=raw.sent_ns)
    assert row.outcome is Outcome.BROKEN_STREAM
    assert row.text == "hel"


async def test_a_connection_closed_without_an_answer_is_broken(scripted, client):
    row = await ask(scripted, client)
    assert row.outcome is Outcome.BROKEN_STREAM
    assert row.status is None


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]"])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/html"])
async def test_a_200_that_is_no_answer_is_broken(scripted, client, body, kind):
    row = await ask(scripted, client, head("200 OK", kind, f"Content-Length: {len(body)}") + body)
    assert row.outcome is Outcome.BROKEN_STREAM
    assert row.status == 200
    assert row.error


async def test_an_engine_that_gives_up_is_named_by_its_reason(scripted, client):
    row = await ask(scripted, client, head() + WHOLE.replace(b'"stop"', b'"abort"'))
    assert row.outcome is Outcome.BROKEN_STREAM
    assert "abort" in row.error


async def test_a_plain_json_answer_is_one_chunk_with_its_usage(scripted, client):
    text = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"completion_tokens":1}}'
    row = await ask(scripted, client, head("200 OK", "application/json") + text)
    assert (row.outcome, row.chunk_chars, row.completion_tokens) == (Outcome.FINISHED, (2,), 1)


async def test_a_key_that_the_server_repeats_is_not_kept(scripted, client):
    row = await ask(scripted, client, head("401 Unauthorized", "text/plain") + b"bad key sk-1", secret="sk-1")
    assert row.error == "bad key [API key]"


async def test_a_cancelled_exchange_is_passed_on(scripted, client):
    async def hang(_one) -> None:
        await asyncio.sleep(30)

    scripted.script = hang
    task = asyncio.ensure_future(exchange(client, scripted.url, BODY, timeout_s=30))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_bytes_of_a_failed_exchange_still_tell_what_came():
    raw = RawExchange(
        sent_ns=1, reads=Reads.of([(2, WHOLE)]), status=200, ended_ns=3, failure=Outcome.TIMED_OUT, error="late"
    )
    row = record(raw, prompt(), index=0, max_tokens=8, intended_ns=1)
    assert (row.outcome, row.error, row.text, row.completion_tokens) == (Outcome.TIMED_OUT, "late", "hello", 5)
