"""Closed-loop windows: a fixed list of prompts, `concurrency` in flight, every ending a committed row.

Owns the pace and the client's own health (event-loop lag). Knows nothing of arms, blocks or verdicts.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import aiohttp

from specdyno.load.client import RawExchange, exchange, record, request_body
from specdyno.plan.schema import Sampling
from specdyno.records.schema import Outcome, RequestRecord
from specdyno.workload.prompts import Prompt, body

_LAG_PROBE_S = 0.02
_REFUSED_PAUSE_S = 0.5  # where nothing listens: time for the engine's death to be noticed before the next is sent


@dataclass(frozen=True, slots=True)
class Job:
    """One request to send."""

    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go and how: shared by all windows of a boot."""

    base_url: str
    model: str
    session: aiohttp.ClientSession
    sampling: Sampling
    timeout_s: float
    secret: str = field(default="", repr=False)  # the API key, kept out of what is stored


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a window calls while it runs."""

    keep: Callable[[RequestRecord], None]  # stores a row; called in the writer's thread
    engine_alive: Callable[[], bool] = lambda: True
    on_row: Callable[[RequestRecord], None] = lambda _row: None


@dataclass(slots=True)
class WindowRun:
    """What a window did: its span, how many rows were handed over, and how late the client's own loop ran."""

    started_ns: int = 0
    ended_ns: int = 0
    rows: int = 0
    done: int = 0
    tokens: int = 0
    lag_max_ns: int = 0
    aborted: bool = False  # the engine died: the rest of the list was not sent
    failures: dict[str, int] = field(default_factory=dict)

    def count(self, row: RequestRecord) -> None:
        self.rows += 1
        self.done += row.outcome.done
        self.tokens += row.completion_tokens or 0
        if not row.outcome.done:
            self.failures[row.outcome] = self.failures.get(row.outcome, 0) + 1


async def run_window(endpoint: Endpoint, jobs: Sequence[Job], *, concurrency: int, hooks: Hooks) -> WindowRun:
    """Send every job once, `concurrency` at a time, in list order.

    Returns when all are answered, or, once the engine is dead, when the requests in flight have ended. An error of
    `hooks.keep` (a full disk) or `hooks.on_row` stops the window and is raised.
    """
    prepared = [_prepare(endpoint, job) for job in jobs]  # serialised before the clock starts
    run = WindowRun()
    probe = asyncio.ensure_future(_watch_lag(run))
    try:
        # One thread writes, so that rows are committed in order and the event loop never waits for the disk.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="records") as thread:
            writer = _Writer(thread, hooks, run, endpoint.secret)
            queue = iter(range(len(jobs)))

            async def client() -> None:
                for index in queue:
                    run.aborted = run.aborted or not hooks.engine_alive()
                    if run.aborted or writer.error is not None:
                        return
                    url, payload = prepared[index]
                    raw = await exchange(endpoint.session, url, payload, timeout_s=endpoint.timeout_s)
                    writer.write(raw, jobs[index], index)
                    if raw.failure is Outcome.REFUSED:
                        await asyncio.sleep(_REFUSED_PAUSE_S)

            run.started_ns = time.monotonic_ns()
            clients = [asyncio.ensure_future(client()) for _ in range(min(concurrency, len(jobs)))]
            try:
                await asyncio.gather(*clients)
                run.ended_ns = time.monotonic_ns()
            finally:
                for one in clients:  # gather leaves the others running where one of them raised
                    one.cancel()
                await asyncio.gather(*clients, return_exceptions=True)
                await writer.drain()
    finally:
        probe.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await probe
    if writer.error is not None:
        raise writer.error
    run.aborted = run.aborted or not hooks.engine_alive()
    return run


class _Writer:
    """Turns raw exchanges into rows and stores them, in a thread of its own."""

    def __init__(self, thread: ThreadPoolExecutor, hooks: Hooks, run: WindowRun, secret: str) -> None:
        self.error: BaseException | None = None
        self._thread, self._hooks, self._run, self._secret = thread, hooks, run, secret
        self._pending: set[asyncio.Future[RequestRecord]] = set()

    def write(self, raw: RawExchange, job: Job, index: int) -> None:
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._thread, self._store, raw, job, index)
        self._pending.add(future)
        future.add_done_callback(self._stored)

    async def drain(self) -> None:
        while self._pending:
            await asyncio.wait(self._pending)

    def _stored(self, future: asyncio.Future[RequestRecord]) -> None:
        self._pending.discard(future)
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            self.error = self.error or error
            return
        self._run.count(future.result())
        try:
            self._hooks.on_row(future.result())
        except Exception as error:  # noqa: BLE001 (raised by `run_window`: the event loop would only log it)
            self.error = self.error or error

    def _store(self, raw: RawExchange, job: Job, index: int) -> RequestRecord:
        prompt = job.prompt
        row = record(
            raw, prompt, index=index, max_tokens=prompt.max_tokens, intended_ns=raw.sent_ns, secret=self._secret
        )
        self._hooks.keep(row)
        return row


def _prepare(endpoint: Endpoint, job: Job) -> tuple[str, bytes]:
    path, payload = body(job.prompt, endpoint.sampling, endpoint.model, max_tokens=job.prompt.max_tokens)
    return endpoint.base_url + path, request_body(payload)


async def _watch_lag(run: WindowRun) -> None:
    """The longest delay of a timer beyond its due time: how late this client could have stamped a byte."""
    while True:
        due = time.monotonic_ns() + int(_LAG_PROBE_S * 1e9)
        await asyncio.sleep(_LAG_PROBE_S)
        run.lag_max_ns = max(run.lag_max_ns, time.monotonic_ns() - due)
