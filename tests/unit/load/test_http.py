"""The streaming client's framing: chunks, lengths, ends, on bytes cut anywhere and on real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
import trustme
from tests.unit.load.scripted_server import STREAM, WHOLE, head

from specdyno.load.chunks import Reads, unchunked
from specdyno.load.client import exchange, record
from specdyno.load.http import Client, Reply
from specdyno.records.schema import Outcome
from specdyno.workload.prompts import Prompt

CHUNKED = head("200 OK", STREAM, "Transfer-Encoding: chunked")
PROMPT = Prompt("p0", "code", None, "q", None, None, None, 64, "")


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


def events() -> list[bytes]:
    return [part + b"\n\n" for part in WHOLE.split(b"\n\n") if part]


def fed(data: bytes, size: int) -> Reply:
    loop = asyncio.get_running_loop()
    reply = Reply(loop, Reads())
    for at in range(0, len(data), size):
        reply.data_received(data[at : at + size])
    return reply


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 10_000])
async def test_a_chunked_answer_is_whole_however_it_is_cut(size):
    reply = fed(CHUNKED + b"".join(map(chunk, events())) + b"0\r\n\r\n", size)
    assert reply.ended.done()
    body, problem = unchunked(reply.reads)
    assert (b"".join(part for _, part in body), problem) == (WHOLE, "")


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
async def test_an_event_has_the_stamp_of_the_read_that_brought_its_last_byte(size):
    framed = chunk(b"VW", b";name=x") + chunk(b"XYZ") + b"0\r\n\r\n"
    reads = [(at + size, framed[at : at + size]) for at in range(0, len(framed), size)]
    body, problem = unchunked(reads)
    where = {b: stamp for stamp, part in body for b in part}
    assert not problem
    for letter in b"VWXYZ":
        assert where[letter] == -(-(framed.index(letter) + 1) // size) * size


@pytest.mark.parametrize("cut", [1, 3, 5, 8])
def test_chunks_that_stop_early_are_a_problem(cut):
    framed = chunk(b"abc") + b"0\r\n\r\n"
    assert "within the answer" in unchunked([(1, framed[:cut])])[1]


@pytest.mark.parametrize("size", [b"", b"zz", b"-3"])
def test_a_chunk_without_a_size_is_a_problem(size):
    assert "without a size" in unchunked([(1, size + b"\r\nabc\r\n0\r\n\r\n")])[1]


async def test_a_zero_at_the_end_of_a_chunk_is_not_the_end_of_the_answer():
    reply = fed(CHUNKED + chunk(b"data: 10\r\n\r\n"), 10_000)
    assert not reply.ended.done()
    reply.ended.cancel()


@pytest.mark.parametrize("size", [1, 4, 10_000])
async def test_a_length_ends_the_answer_and_an_interim_answer_is_passed_over(size):
    reply = fed(b"HTTP/1.1 100 Continue\r\n\r\n" + head("200 OK", "text/plain", "Content-Length: 5") + b"hello", size)
    assert reply.ended.done()
    assert (reply.status, b"".join(part for _, part in reply.reads)) == (200, b"hello")


async def test_an_answer_without_a_body_ends_with_its_head():
    assert fed(b"HTTP/1.1 204 No Content\r\n\r\n", 10_000).ended.done()
    assert fed(head("200 OK", "text/plain", "Content-Length: 0"), 10_000).ended.done()


@pytest.mark.parametrize("data", [b"SSH-2.0-x\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 ok\r\n\r\n"])
async def test_what_is_no_http_is_broken(data):
    assert "does not speak HTTP" in str(fed(data, 10_000).ended.exception())


async def answer_to(scripted, client, *parts: bytes, url: str | None = None):
    async def script(one) -> None:
        await one.send(*parts)

    scripted.script = script
    raw = await exchange(client, url or scripted.url, b"{}", timeout_s=5)
    return record(raw, PROMPT, index=0, max_tokens=64, intended_ns=raw.sent_ns)


async def test_the_last_chunk_ends_an_answer_although_the_connection_stays_open(scripted, client):
    async def script(one) -> None:
        await one.send(CHUNKED + b"".join(map(chunk, events())) + b"0\r\n\r\n")
        await asyncio.sleep(30)

    scripted.script = script
    raw = await exchange(client, scripted.url, b"{}", timeout_s=5)
    row = record(raw, PROMPT, index=0, max_tokens=64, intended_ns=raw.sent_ns)
    assert (row.outcome, row.text) == (Outcome.FINISHED, "hello")


async def test_a_redirect_is_an_error_of_the_address(scripted, client):
    row = await answer_to(scripted, client, head("307 Temporary Redirect", "text/plain", "Location: /x") + b"go there")
    assert (row.outcome, row.status, row.error) == (Outcome.HTTP_ERROR, 307, "go there")


async def test_a_body_shorter_than_its_length_is_broken(scripted, client):
    row = await answer_to(scripted, client, head("200 OK", "application/json", "Content-Length: 100") + b"{}")
    assert row.outcome is Outcome.BROKEN_STREAM
    assert "within the answer" in row.error


async def test_the_key_and_the_other_headers_are_sent(scripted):
    await answer_to(scripted, Client({"Authorization": "Bearer sk-1"}), head() + WHOLE)
    assert scripted.headers[0]["authorization"] == "bearer sk-1"
    assert scripted.headers[0]["connection"] == "close"
    assert "sk-1" not in repr(Client({"Authorization": "Bearer sk-1"}))


async def test_a_name_with_several_addresses_is_reached_at_the_one_that_answers(scripted, client):
    row = await answer_to(scripted, client, head() + WHOLE, url=scripted.url.replace("127.0.0.1", "localhost"))
    assert row.outcome is Outcome.FINISHED


async def test_a_name_that_nobody_knows_is_refused(client):
    raw = await exchange(client, "http://nowhere.invalid:1/v1", b"{}", timeout_s=5)
    assert raw.failure is Outcome.REFUSED
    assert "no connection to http://nowhere.invalid" in raw.error


@pytest.mark.parametrize("trusted", [True, False])
async def test_tls_goes_through_the_given_trust_alone(scripted, trusted, tmp_path):
    authority = trustme.CA()
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(served)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trust = str(tmp_path / "ca.pem") if trusted else None
    server = await asyncio.start_server(scripted.handle, "127.0.0.1", 0, ssl=served)
    async with server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}/v1"
        row = await answer_to(scripted, Client({}, trust), CHUNKED + chunk(WHOLE) + b"0\r\n\r\n", url=url)
        await scripted.close()
    assert row.outcome is (Outcome.FINISHED if trusted else Outcome.REFUSED)
    assert trusted or "certificate" in row.error.lower()


async def test_a_server_that_never_accepts_times_out(client):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as filler:
        filler.connect(full.getsockname())
        raw = await exchange(client, f"http://127.0.0.1:{full.getsockname()[1]}", b"{}", timeout_s=0.3)
    assert raw.failure is Outcome.TIMED_OUT
