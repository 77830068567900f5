"""Processes that send and stamp, for when one event loop is not enough; what is sent and when stays the parent's.

A worker gets requests and gives back their exchanges as they end, read down to facts, so that the parent's work does
not grow with the events of a stream. Stamps are of the host's one monotonic clock. Lists, order, pace, sessions and
rows are not divided: a window is the same with workers and without.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import uvloop

from specdyno.errors import EngineError
from specdyno.load.client import RawExchange, exchange, read_down
from specdyno.load.http import Client

LAG_NS = 50_000_000  # a loop this late, or this busy, in the warm-up is not enough
BUSY = 0.6  # of a core
_LENGTH_BYTES = 8
_STOP_S = 3.0


def wanted(lag_max_ns: int, busy: float, cores: int) -> int:
    """How many workers a load needs whose warm-up showed this lag (ns) and CPU share of the client: 0, or 2 to 8.

    One core stays for the parent and one for the engine, so a host of two cores has none.

    >>> wanted(lag_max_ns=5_000_000, busy=0.1, cores=16), wanted(lag_max_ns=5_000_000, busy=0.9, cores=16)
    (0, 8)
    >>> wanted(lag_max_ns=80_000_000, busy=0.9, cores=2)
    0
    """
    spare = min(8, cores - 2)
    return spare if spare >= 2 and (lag_max_ns > LAG_NS or busy > BUSY) else 0


@dataclass(slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    waiting: dict[int, asyncio.Future[RawExchange]] = field(default_factory=dict)
    reading: asyncio.Task[None] | None = None


class Workers:
    """Started worker processes. `exchange` is as the client's own; each request goes to the least busy one."""

    def __init__(self, workers: list[_Worker]) -> None:
        self._workers = workers
        self._numbers = itertools.count()

    @classmethod
    async def start(cls, count: int, headers: Mapping[str, str], ca_file: str | None) -> Workers:
        """The headers, a key among them, go through the pipe: no other process can read them there."""
        made = cls([])
        try:
            for _ in range(count):
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", __name__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                    start_new_session=True,
                )  # fmt: skip
                worker = _Worker(process)
                made._workers.append(worker)
                assert process.stdin is not None  # noqa: S101 - for the type checker
                process.stdin.write(_framed((dict(headers), ca_file)))
                worker.reading = asyncio.ensure_future(_read_answers(worker))
        except BaseException:
            await made.stop()
            raise
        return made

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self._workers]

    async def exchange(self, url: str, body: bytes, *, timeout_s: float) -> RawExchange:
        """EngineError where the worker ends before the answer: that is this host's failure, not a row."""
        worker = min(self._workers, key=lambda one: len(one.waiting))
        number = next(self._numbers)
        future: asyncio.Future[RawExchange] = asyncio.get_running_loop().create_future()
        if worker.reading is None or worker.reading.done() or worker.process.stdin is None:
            raise _lost(worker)
        worker.waiting[number] = future
        worker.process.stdin.write(_framed((number, url, body, timeout_s)))
        try:
            return await future
        finally:
            if worker.waiting.pop(number, None) is not None and not worker.process.stdin.is_closing():
                worker.process.stdin.write(_framed((number, None, b"", 0.0)))  # nobody waits for it any more

    async def stop(self) -> None:
        """End every worker: its input is closed, and who does not end then is killed by its pid."""
        for worker in self._workers:
            if worker.process.stdin is not None:
                worker.process.stdin.close()
        for worker in self._workers:
            try:
                await asyncio.wait_for(worker.process.wait(), _STOP_S)
            except TimeoutError:
                worker.process.kill()
                await worker.process.wait()
            if worker.reading is not None:
                worker.reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await worker.reading


async def _read_answers(worker: _Worker) -> None:
    assert worker.process.stdout is not None  # noqa: S101 - for the type checker
    try:
        while (frame := await _read_frame(worker.process.stdout)) is not None:
            number, raw = pickle.loads(frame)  # noqa: S301 - written by our own process
            if (future := worker.waiting.pop(number, None)) is not None and not future.done():
                future.set_result(raw)
    finally:
        for future in worker.waiting.values():
            if not future.done():
                future.set_exception(_lost(worker))


def _lost(worker: _Worker) -> EngineError:
    return EngineError(
        f"a process that sends requests (pid {worker.process.pid}) ended in the middle of a window",
        remedy="Look whether this host ran out of memory; what was measured so far is kept",
    )


def _framed(message: object) -> bytes:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


async def _read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """None at the end of the stream."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _landed(flying: dict[int, asyncio.Task[None]], number: int, _task: asyncio.Task[None]) -> None:
    flying.pop(number, None)


async def _work() -> None:
    """A worker's whole life: requests on its input, exchanges on its output, its end when the parent's hand closes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", closefd=False))
    out, _ = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(1, "wb", closefd=False))
    first = await _read_frame(reader)
    if first is None:
        return
    headers, ca_file = pickle.loads(first)  # noqa: S301 - written by our own parent
    client = Client(headers, ca_file)
    flying: dict[int, asyncio.Task[None]] = {}

    async def one(number: int, url: str, body: bytes, timeout_s: float) -> None:
        raw = await exchange(client, url, body, timeout_s=timeout_s)
        out.write(_framed((number, read_down(raw))))

    while (frame := await _read_frame(reader)) is not None:
        number, url, body, timeout_s = pickle.loads(frame)  # noqa: S301 - written by our own parent
        if url is None:
            if (task := flying.get(number)) is not None:
                task.cancel()
            continue
        flying[number] = asyncio.ensure_future(one(number, url, body, timeout_s))
        flying[number].add_done_callback(partial(_landed, flying, number))
    for task in list(flying.values()):
        task.cancel()
    await asyncio.gather(*flying.values(), return_exceptions=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work())
