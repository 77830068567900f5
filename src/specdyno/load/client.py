"""One stamped exchange with an OpenAI-compatible server.

Owns the clock and the socket: stamps are taken on receipt of bytes, nothing is parsed before the last one. Every
ending is a `RawExchange`, never an exception; `record` turns it into the row that is kept.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace

import orjson

from specdyno.engine.base import conceal
from specdyno.engine.reading.per_request import usage_problems
from specdyno.load import stream
from specdyno.load.chunks import Reads, unchunked
from specdyno.load.http import BrokenAnswerError, Client, Reply
from specdyno.load.template import take_apart
from specdyno.records.schema import Outcome, RequestRecord
from specdyno.workload.prompts import Prompt

_ERROR_BODY_CHARS = 2_000


@dataclass(slots=True)
class RawExchange:
    """Bytes and stamps of one request. `failure` is set where no complete answer came."""

    sent_ns: int
    reads: Reads = field(default_factory=Reads)
    status: int | None = None
    streamed: bool = True
    chunked: bool = False  # `reads` are HTTP chunks as they came; `record` takes them apart
    ended_ns: int = 0
    failure: Outcome | None = None
    error: str = ""
    answer: stream.Answer | None = None  # set by `read_down`: `reads` are then only what a row still needs


async def exchange(client: Client, url: str, body: bytes, *, timeout_s: float) -> RawExchange:
    """Send one request and read its answer to the end. Never raises for anything the server or network does."""
    raw = RawExchange(sent_ns=time.monotonic_ns())
    reply = Reply(asyncio.get_running_loop(), raw.reads)
    within = asyncio.timeout(timeout_s)
    try:
        async with within:
            await client.post(url, body, reply)
    except BrokenAnswerError as error:
        raw.failure, raw.error = Outcome.BROKEN_STREAM, str(error)
    except OSError as error:
        if within.expired():
            raw.failure, raw.error = Outcome.TIMED_OUT, f"no complete answer within {timeout_s:g} s"
        elif reply.connected:
            raw.failure, raw.error = Outcome.BROKEN_STREAM, f"{type(error).__name__}: {error}"
        else:
            raw.failure, raw.error = Outcome.REFUSED, f"no connection to {url}: {error}"
    raw.ended_ns = (raw.reads.last_ns if raw.failure is None else None) or time.monotonic_ns()
    if reply.status is not None:
        raw.status, raw.chunked = reply.status, reply.chunked
        raw.streamed = reply.content_type == "text/event-stream"
    return raw


def request_body(body: dict[str, object], *, usage: bool = True) -> bytes:
    """The JSON of a streamed request that asks for its usage."""
    options = {"stream_options": {"include_usage": True}} if usage else {}
    return orjson.dumps({**body, "stream": True, **options})


def record(  # noqa: PLR0913 (one row's facts)
    raw: RawExchange, prompt: Prompt, *, index: int, max_tokens: int, intended_ns: int, secret: str = ""
) -> RequestRecord:
    """The row of one exchange. Tokens come from `usage`; where it is missing they are None.

    A server may repeat the API key in its refusal: `secret` is taken out of the error.
    """
    raw = read_down(raw)
    answer = raw.answer or stream.Answer()
    outcome, error = _ending(raw, answer)
    usage = answer.usage or {}
    if problems := usage_problems(usage):
        error = "; ".join(filter(None, [error, *problems]))
    details = usage.get("prompt_tokens_details")
    return RequestRecord(
        index=index,
        prompt_id=prompt.id,
        prompt_sha256=prompt.sha256,
        class_name=prompt.class_name,
        intended_ns=intended_ns,
        sent_ns=raw.sent_ns,
        outcome=outcome,
        first_byte_ns=raw.reads.first_ns,
        last_byte_ns=raw.ended_ns,
        chunk_ns=tuple(answer.chunk_ns),
        chunk_chars=tuple(answer.chunk_chars),
        status=raw.status,
        error=conceal(error, secret),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        reasoning_tokens=_reasoning_tokens(usage),
        finish_reason=answer.finish_reason,
        text=answer.text,
        reasoning=answer.reasoning,
        tool_calls=tuple(answer.tool_calls),
        spec=answer.spec,
        max_tokens=max_tokens,
    )


def read_down(raw: RawExchange) -> RawExchange:
    """The exchange with its answer read and all but the first of its bytes gone; `record` makes the same row of it."""
    if raw.answer is not None:
        return raw
    if raw.status == 200 and raw.streamed:
        taken = take_apart(raw.reads, chunked=raw.chunked)
        return _framed(replace(raw, answer=taken.answer, reads=_only(taken.first_ns)), taken.problem, taken.last_ns)
    if raw.chunked:
        reads, problem = unchunked(raw.reads)
        raw = _framed(replace(raw, reads=reads), problem, reads.last_ns)
    if raw.status != 200:
        return replace(raw, answer=stream.Answer())
    answer = stream.read_whole(bytes(raw.reads.data), raw.ended_ns)
    return replace(raw, answer=answer, reads=_only(raw.reads.first_ns))


def _only(first_ns: int | None) -> Reads:
    return Reads() if first_ns is None else Reads.of([(first_ns, b"")])


def _framed(raw: RawExchange, problem: str, last_ns: int | None) -> RawExchange:
    """What its chunks say of an exchange: whether it is whole, and when it ended."""
    if not raw.chunked:
        return raw
    if raw.failure is None and problem:
        return replace(raw, chunked=False, failure=Outcome.BROKEN_STREAM, error=problem)
    return replace(raw, chunked=False, ended_ns=raw.ended_ns if raw.failure or last_ns is None else last_ns)


def _ending(raw: RawExchange, answer: stream.Answer) -> tuple[Outcome, str]:
    if raw.failure is not None:
        return raw.failure, raw.error
    if raw.status != 200:
        body = raw.reads.data.decode("utf-8", errors="replace")
        return Outcome.HTTP_ERROR, body[:_ERROR_BODY_CHARS]
    outcome = stream.outcome(answer)
    if outcome is Outcome.BROKEN_STREAM and not answer.error:
        if answer.finish_reason is not None and answer.ended:
            return outcome, f"the engine gave up: finish_reason {answer.finish_reason}"
        return outcome, "the stream ended before the final event"
    return outcome, answer.error


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _reasoning_tokens(usage: dict[str, object]) -> int | None:
    details = usage.get("completion_tokens_details")
    nested = details.get("reasoning_tokens") if isinstance(details, dict) else None
    return _count(usage.get("reasoning_tokens")) if nested is None else _count(nested)
