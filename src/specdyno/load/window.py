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
from specdyno.records.schema import RequestRecord
from specdyno.workload.prompts import Prompt, body

_LAG_PROBE_S = 0.02


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


@dataclass(slots=True)
class WindowRun:
    """What a window did: its span, how many rows were handed over, and how late the client's own loop ran."""

    started_ns: int
    ended_ns: int = 0
    rows: int = 0
    done: int = 0
    tokens: int = 0
    lag_max_ns: int = 0
    aborted: bool = False  # the engine died: the rest of the list was not sent
    failures: dict[str, int] = field(default_factory=dict)
    storage_error: BaseException | None = None


async def run_window(
    endpoint: Endpoint,
    jobs: Sequence[Job],
    *,
    concurrency: int,
    keep: Callable[[RequestRecord], None],
    engine_alive: Callable[[], bool] = lambda: True,
    on_row: Callable[[RequestRecord], None] = lambda _row: None,
) -> WindowRun:
    """Send every job once, `concurrency` at a time, in list order. `keep` stores a row (called in a writer thread).

    Returns when all are answered, or, once the engine is dead, when the requests in flight have ended. A storage
    error from `keep` stops the window and is raised.
    """
    prepared = [_prepare(endpoint, job) for job in jobs]  # serialised before the clock starts
    run = WindowRun(started_ns=time.monotonic_ns())
    queue = iter(range(len(jobs)))
    loop = asyncio.get_running_loop()
    # One thread writes, so that rows are committed in order and the event loop never waits for the disk.
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="records") as writer:
        pending: set[asyncio.Future[RequestRecord]] = set()

        def stored(future: asyncio.Future[RequestRecord]) -> None:
            pending.discard(future)
            if not future.cancelled() and (error := future.exception()) is not None:
                run.storage_error = run.storage_error or error
            elif not future.cancelled():
                _count(run, future.result())
                on_row(future.result())

        async def client() -> None:
            for index in queue:
                if run.storage_error is not None:
                    return
                if not engine_alive():
                    run.aborted = True
                    return
                url, payload = prepared[index]
                raw = await exchange(endpoint.session, url, payload, timeout_s=endpoint.timeout_s)
                future = loop.run_in_executor(writer, _store, raw, jobs[index], index, keep)
                pending.add(future)
                future.add_done_callback(stored)

        probe = asyncio.ensure_future(_watch_lag(run))
        try:
            await asyncio.gather(*(client() for _ in range(min(concurrency, max(1, len(jobs))))))
            run.ended_ns = time.monotonic_ns()
        finally:
            probe.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await probe
            while pending:
                await asyncio.wait(pending)
    if run.storage_error is not None:
        raise run.storage_error
    if not engine_alive():
        run.aborted = True
    return run


def _prepare(endpoint: Endpoint, job: Job) -> tuple[str, bytes]:
    path, payload = body(job.prompt, endpoint.sampling, endpoint.model, max_tokens=job.prompt.max_tokens)
    return endpoint.base_url + path, request_body(payload)


def _store(raw: RawExchange, job: Job, index: int, keep: Callable[[RequestRecord], None]) -> RequestRecord:
    row = record(raw, job.prompt, index=index, max_tokens=job.prompt.max_tokens, intended_ns=raw.sent_ns)
    keep(row)
    return row


def _count(run: WindowRun, row: RequestRecord) -> None:
    run.rows += 1
    run.done += row.outcome.done
    run.tokens += row.completion_tokens or 0
    if not row.outcome.done:
        run.failures[row.outcome] = run.failures.get(row.outcome, 0) + 1


async def _watch_lag(run: WindowRun) -> None:
    """The longest delay of a timer beyond its due time: how late this client could have stamped a byte."""
    while True:
        due = time.monotonic_ns() + int(_LAG_PROBE_S * 1e9)
        await asyncio.sleep(_LAG_PROBE_S)
        run.lag_max_ns = max(run.lag_max_ns, time.monotonic_ns() - due)
