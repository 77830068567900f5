"""One stamped exchange with an OpenAI-compatible server.

Owns the clock and the socket: stamps are taken on receipt of bytes, nothing is parsed before the last one. Every
ending is a `RawExchange`, never an exception; `record` turns it into the row that is kept.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import aiohttp
import orjson

from specdyno.engine.base import conceal
from specdyno.engine.reading.per_request import usage_problems
from specdyno.load import stream
from specdyno.records.schema import Outcome, RequestRecord
from specdyno.workload.prompts import Prompt

_ERROR_BODY_CHARS = 2_000


@dataclass(slots=True)
class RawExchange:
    """Bytes and stamps of one request. `failure` is set where no complete answer came."""

    sent_ns: int
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    status: int | None = None
    streamed: bool = True
    ended_ns: int = 0
    failure: Outcome | None = None
    error: str = ""


async def exchange(session: aiohttp.ClientSession, url: str, body: bytes, *, timeout_s: float) -> RawExchange:
    """Send one request and read its answer to the end. Never raises for anything the server or network does."""
    raw = RawExchange(sent_ns=time.monotonic_ns())
    try:
        async with session.post(url, data=body, timeout=aiohttp.ClientTimeout(total=timeout_s)) as response:
            raw.status = response.status
            raw.streamed = response.content_type == "text/event-stream"
            async for data in response.content.iter_any():
                raw.reads.append((time.monotonic_ns(), data))
    except TimeoutError:
        raw.failure, raw.error = Outcome.TIMED_OUT, f"no complete answer within {timeout_s:g} s"
    except aiohttp.ClientConnectorError as error:
        raw.failure, raw.error = Outcome.REFUSED, str(error)
    except (aiohttp.ClientError, OSError) as error:
        raw.failure, raw.error = Outcome.BROKEN_STREAM, f"{type(error).__name__}: {error}"
    except asyncio.CancelledError:
        raw.ended_ns = time.monotonic_ns()
        raise
    raw.ended_ns = raw.reads[-1][0] if raw.reads and raw.failure is None else time.monotonic_ns()
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
    answer = _answer(raw)
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
        first_byte_ns=raw.reads[0][0] if raw.reads else None,
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


def _answer(raw: RawExchange) -> stream.Answer:
    if raw.status != 200:
        return stream.Answer()
    if raw.streamed:
        return stream.read_stream(raw.reads)
    return stream.read_whole(b"".join(data for _, data in raw.reads), raw.ended_ns)


def _ending(raw: RawExchange, answer: stream.Answer) -> tuple[Outcome, str]:
    if raw.failure is not None:
        return raw.failure, raw.error
    if raw.status != 200:
        body = b"".join(data for _, data in raw.reads).decode("utf-8", errors="replace")
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
