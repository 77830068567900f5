"""One window: a fixed list of requests, sent at their pace, every ending a committed row.

Owns the desk that sends, stamps and keeps, and the client's own health (event-loop lag). When a request is sent is
`load.pacing`'s and `load.agents`' to say. Knows nothing of arms, blocks or verdicts.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from specdyno.load import pacing
from specdyno.load.client import RawExchange, exchange, record, request_body
from specdyno.load.http import Client
from specdyno.load.workers import Workers
from specdyno.load.writer import Writer
from specdyno.plan.schema import Sampling
from specdyno.records.schema import Arrival, Outcome, RequestRecord, WindowKind
from specdyno.workload.draw import DrawnSession
from specdyno.workload.prompts import Prompt, body

_LAG_PROBE_S = 0.02


@dataclass(frozen=True, slots=True)
class SessionTurn:
    """Where a request stands in its agent session, as its row says it."""

    session: str
    turn: int
    phase: str
    supplied: int | None


@dataclass(frozen=True, slots=True)
class Job:
    """One request to send."""

    prompt: Prompt
    turn: SessionTurn | None = None


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """A window to run: the load it belongs to, what it asks, and how that arrives.

    `concurrency` in flight (requests, or `sessions`); None: `jobs` at `offsets_ns` from the window's start.
    """

    load: str
    kind: WindowKind
    class_name: str | None
    concurrency: int | None
    jobs: tuple[Job, ...] = ()
    offsets_ns: tuple[int, ...] = ()
    sessions: tuple[DrawnSession, ...] = ()
    arrival: Arrival | None = None

    @property
    def planned(self) -> int:
        """Requests in its list."""
        return len(self.jobs) + sum(len(one.session.turns) for one in self.sessions)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go and how: shared by all windows of a boot."""

    base_url: str
    model: str
    client: Client
    sampling: Sampling
    timeout_s: float
    secret: str = field(default="", repr=False)  # the API key, kept out of what is stored
    fields: Mapping[str, Any] = field(default_factory=dict)  # what the engine must be asked to report
    workers: Workers | None = None  # send in this process's stead

    def prepare(self, job: Job) -> tuple[str, bytes]:
        """The URL and the body that asks a job."""
        path, payload = body(job.prompt, self.sampling, self.model, max_tokens=job.prompt.max_tokens)
        return self.base_url + path, request_body({**payload, **self.fields})


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a window calls while it runs."""

    keep: Callable[[Iterable[RequestRecord]], object]  # stores all rows or none; called in the writer's thread
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


async def run_window(
    endpoint: Endpoint,
    jobs: Sequence[Job],
    *,
    concurrency: int | None = None,
    offsets_ns: Sequence[int] = (),
    hooks: Hooks,
) -> WindowRun:
    """Send every job once: `concurrency` at a time in list order, or, without one, at its offset from the start.

    Returns when all are answered, or, once the engine is dead, when the requests in flight have ended. An error of
    `hooks.keep` (a full disk) or `hooks.on_row` stops the window and is raised.
    """
    prepared = [endpoint.prepare(job) for job in jobs]  # serialised before the clock starts

    async def drive(desk: Desk) -> None:
        listed = _List(desk, jobs, prepared)
        if concurrency is None:
            await pacing.on_schedule(listed, offsets_ns)
        else:
            await pacing.closed_loop(listed, len(jobs), concurrency=concurrency)

    return await run_desk(endpoint, drive, hooks=hooks)


async def run_desk(endpoint: Endpoint, drive: Callable[[Desk], Awaitable[None]], *, hooks: Hooks) -> WindowRun:
    """A window around whatever `drive` sends: the lag watched, every row written in order, nothing left behind."""
    run = WindowRun()

    def told(row: RequestRecord) -> None:
        run.count(row)
        hooks.on_row(row)

    probe = asyncio.ensure_future(_watch_lag(run))
    try:
        # One thread writes, so that rows are committed in order and the event loop never waits for the disk.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="records") as thread:
            writer = Writer(thread, keep=hooks.keep, told=told)
            try:
                run.started_ns = time.monotonic_ns()
                await drive(Desk(endpoint, hooks, run, writer))
                run.ended_ns = time.monotonic_ns()
            finally:
                await writer.drain()
    finally:
        probe.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await probe
    if writer.error is not None:
        raise writer.error
    run.aborted = run.aborted or not hooks.engine_alive()
    return run


class Desk:
    """Sends the requests of one window and keeps their rows."""

    def __init__(self, endpoint: Endpoint, hooks: Hooks, run: WindowRun, writer: Writer) -> None:
        self.endpoint = endpoint
        self._hooks, self._run, self._writer = hooks, run, writer

    def stopped(self) -> bool:
        """Whether nothing more is to be sent: the engine is dead, or rows cannot be kept."""
        self._run.aborted = self._run.aborted or not self._hooks.engine_alive()
        return self._run.aborted or self._writer.error is not None

    async def exchange(
        self, job: Job, index: int, *, prepared: tuple[str, bytes], intended_ns: int | None = None
    ) -> tuple[RawExchange, asyncio.Future[RequestRecord]]:
        """One request to its end, and its row to be. Without an intended time it was due when it was sent."""
        url, payload = prepared
        if (workers := self.endpoint.workers) is not None:
            raw = await workers.exchange(url, payload, timeout_s=self.endpoint.timeout_s)
        else:
            raw = await exchange(self.endpoint.client, url, payload, timeout_s=self.endpoint.timeout_s)
        due_ns = raw.sent_ns if intended_ns is None else intended_ns
        make = partial(_row, raw, job, index, due_ns, self.endpoint.secret)
        return raw, self._writer.write(make, at_once=job.turn is not None)  # a session goes on with its row


@dataclass(frozen=True, slots=True)
class _List:
    """A window's list of jobs, as the pace asks for them."""

    desk: Desk
    jobs: Sequence[Job]
    prepared: Sequence[tuple[str, bytes]]

    def stopped(self) -> bool:
        return self.desk.stopped()

    async def send(self, index: int, *, intended_ns: int | None = None) -> Outcome | None:
        raw, _ = await self.desk.exchange(
            self.jobs[index], index, prepared=self.prepared[index], intended_ns=intended_ns
        )
        return raw.failure


def _row(raw: RawExchange, job: Job, index: int, intended_ns: int, secret: str) -> RequestRecord:
    row = record(raw, job.prompt, index=index, max_tokens=job.prompt.max_tokens, intended_ns=intended_ns, secret=secret)
    if (place := job.turn) is None:
        return row
    return replace(row, session=place.session, turn=place.turn, phase=place.phase, supplied=place.supplied)


async def _watch_lag(run: WindowRun) -> None:
    """The longest delay of a timer beyond its due time: how late this client could have stamped a byte."""
    while True:
        due = time.monotonic_ns() + int(_LAG_PROBE_S * 1e9)
        await asyncio.sleep(_LAG_PROBE_S)
        run.lag_max_ns = max(run.lag_max_ns, time.monotonic_ns() - due)
