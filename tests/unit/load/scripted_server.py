"""A scripted server: answers each request with given bytes, on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import orjson

from specdyno.load.window import Job
from specdyno.workload.prompts import Prompt

STREAM = "text/event-stream"
USAGE = b'{"prompt_tokens":4,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":1}}'
WHOLE = b"".join(
    [
        b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"hel"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}\n\n',
        b'data: {"choices":[],"usage":%s}\n\n' % USAGE,
        b"data: [DONE]\n\n",
    ]
)


def head(status: str = "200 OK", kind: str = STREAM, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


Script = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request on the server's side."""

    def __init__(self, body: dict, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        self.body, self.headers, self.writer = body, headers, writer

    async def send(self, *parts: bytes, pause_s: float = 0.0) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(pause_s)


async def whole(exchange: Exchange) -> None:
    await exchange.send(head() + WHOLE)


class Scripted:
    """Counts what it was asked and how much was in flight at once."""

    def __init__(self) -> None:
        self.script: Script = whole
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.in_flight = self.most_in_flight = 0
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            text = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = dict(line.lower().split(": ", 1) for line in text.splitlines()[1:] if line)
            body = orjson.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
            self.bodies.append(body)
            self.headers.append(headers)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            try:
                await self.script(Exchange(body, headers, writer))
            finally:
                self.in_flight -= 1


def prompt(number: int = 0) -> Prompt:
    messages = ({"role": "user", "content": f"question {number}"},)
    return Prompt(f"p{number}", "code", messages, None, None, None, None, 64, f"{number:064x}")


def jobs(count: int) -> list[Job]:
    return [Job(prompt(number)) for number in range(count)]
