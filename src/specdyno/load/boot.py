"""One boot of one arm: start, ask who it is, warm up, measure every window, stop. Every fact goes to the store.

Owns the life of the engine process within a study. A boot ends complete, failed (the engine's doing: harm) or
interrupted (ours); whatever it measured before stays.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

from specdyno.engine import server
from specdyno.engine.base import Adapter
from specdyno.errors import EngineError
from specdyno.load.window import Endpoint, Job, WindowRun, run_window
from specdyno.load.watch import Watcher
from specdyno.plan.schema import Arm, Plan
from specdyno.records.schema import BootStatus, Identity, RequestRecord, WindowKind
from specdyno.records.store import Store


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """A window to run: the load it belongs to and the fixed list of jobs."""

    load: str
    kind: WindowKind
    class_name: str | None
    concurrency: int
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class BootTask:
    """Which boot this is."""

    arm: Arm
    block: int
    position: int
    attempt: int
    seed: int
    log_path: Path  # absolute
    log_name: str  # relative to the study, as recorded


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What the warm-up of a load showed: answered requests and the seconds they took."""

    load: str
    concurrency: int
    done: int
    seconds: float


Windows = Callable[[Sequence[WarmUp]], Sequence[WindowPlan]]


async def measure(
    task: BootTask, *, adapter: Adapter, plan: Plan, store: Store, warm_up: Sequence[WindowPlan], windows: Windows,
    watcher: Watcher,
) -> EngineError | None:  # fmt: skip
    """Run one boot to its end. Returns the failure where the engine would not boot or died; None when complete.

    `windows` is asked for the scored windows once the warm-up is known, so that the first boot of a study can size
    them. Cancellation stops the engine, records the boot as interrupted and is passed on.
    """
    started_ns = time.monotonic_ns()
    boot_id = store.begin_boot(
        block=task.block,
        arm=task.arm.name,
        attempt=task.attempt,
        position=task.position,
        status=BootStatus.STARTING,
        started_ns=started_ns,
        started_unix_ns=time.time_ns(),
        log_path=task.log_name,
    )
    watcher.boot(task.arm.name, task.attempt)
    status, failure = BootStatus.INTERRUPTED, None
    running: server.Server | None = None
    async with _session(adapter) as session:
        try:
            running = await server.begin(
                adapter, task.arm, log_path=task.log_path, session=session, boot_seed=task.seed
            )
            _record_process(store, boot_id, running)
            await server.wait_ready(running, plan.engine.ready_timeout)
            ready_ns = time.monotonic_ns()
            store.update_boot(boot_id, status=BootStatus.READY, ready_ns=ready_ns, identity=await running.identity())
            watcher.ready(task.arm.name, (ready_ns - started_ns) / 1e9)
            boot = _Boot(boot_id, running, await _endpoint(running, plan, session), store, watcher)
            seen = [await boot.warm_up(part) for part in warm_up]
            store.update_boot(boot_id, identity=await _identity_after_use(running))
            for part in windows(seen):
                await boot.run(part)
            store.update_boot(boot_id, memory_bytes=running.process.memory_bytes() if running.process else None)
            status = BootStatus.COMPLETE
        except EngineError as error:
            status, failure = BootStatus.FAILED, error
        finally:
            if running is not None:
                await asyncio.shield(running.stop())
            store.update_boot(
                boot_id,
                status=status,
                ended_ns=time.monotonic_ns(),
                ended_unix_ns=time.time_ns(),
                failure=_failure_text(failure),
            )
    watcher.boot_ended(task.arm.name, str(failure) if failure else "")
    return failure


@dataclass(slots=True)
class _Boot:
    """A ready engine and where its rows go."""

    id: int
    running: server.Server
    endpoint: Endpoint
    store: Store
    watcher: Watcher

    async def warm_up(self, part: WindowPlan) -> WarmUp:
        run = await self.run(part)
        if part.jobs and run.done == 0:
            raise server.failed(
                self.running,
                f"none of the {run.rows} warm-up requests was answered ({_endings(run)})",
                remedy=f"The server's answer: {self._last_error}" if self._last_error else "",
            )
        return WarmUp(part.load, part.concurrency, run.done, (run.ended_ns - run.started_ns) / 1e9)

    _last_error: str = ""

    async def run(self, part: WindowPlan) -> WindowRun:
        before, before_raw = await self.running.counters()
        window_id = self.store.begin_window(
            boot_id=self.id,
            load=part.load,
            kind=part.kind,
            class_name=part.class_name,
            concurrency=part.concurrency,
            planned=len(part.jobs),
            started_ns=time.monotonic_ns(),
        )
        self.store.add_counter_sample(window_id, "before", before, before_raw)
        self.watcher.window(part.load, part.kind, part.class_name, len(part.jobs))
        busy = _Busy(self.running)

        def on_row(row: RequestRecord) -> None:
            self._last_error = row.error or self._last_error
            self.watcher.row(row)

        run = await run_window(
            self.endpoint,
            part.jobs,
            concurrency=part.concurrency,
            keep=lambda row: self.store.add_request(window_id, row),
            engine_alive=self._alive,
            on_row=on_row,
        )
        host_busy = busy.share()
        if run.aborted or not self._alive():
            raise server.failed(
                self.running,
                f"the engine died under load ({part.load}, after {run.rows} of {len(part.jobs)} requests)",
            )
        after, after_raw = await self.running.counters()
        self.store.add_counter_sample(window_id, "after", after, after_raw)
        self.store.end_window(window_id, ended_ns=run.ended_ns, client_lag_max_ns=run.lag_max_ns, host_busy=host_busy)
        return run

    def _alive(self) -> bool:
        return self.running.process is None or self.running.process.running


class _Busy:
    """How much of the host was used by others: neither the engine nor this process."""

    def __init__(self, running: server.Server) -> None:
        self._engine = running.process
        self._cores = psutil.cpu_count() or 1
        self._wall = time.monotonic()
        self._all, self._ours = self._read()

    def _read(self) -> tuple[float, float]:
        times = psutil.cpu_times()
        everything = sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)
        own = os.times()
        return everything, own.user + own.system + (self._engine.cpu_s() if self._engine else 0.0)

    def share(self) -> float | None:
        if self._engine is None:
            return None
        everything, ours = self._read()
        seconds = (time.monotonic() - self._wall) * self._cores
        if seconds <= 0:
            return None
        return max(0.0, min(1.0, ((everything - self._all) - (ours - self._ours)) / seconds))


def _session(adapter: Adapter) -> aiohttp.ClientSession:
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    name = adapter.engine.api_key_env
    if name and os.environ.get(name):
        headers["Authorization"] = f"Bearer {os.environ[name]}"
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60), headers=headers, auto_decompress=False
    )


async def _endpoint(running: server.Server, plan: Plan, session: aiohttp.ClientSession) -> Endpoint:
    model = await running.served_model(plan.target.model)
    return Endpoint(running.base_url, model, session, plan.workload.sampling, plan.engine.request_timeout)


async def _identity_after_use(running: server.Server) -> Identity:
    """Some engines tell method and K only once they have served (llama.cpp)."""
    return await running.identity()


def _record_process(store: Store, boot_id: int, running: server.Server) -> None:
    engine = running.process
    if engine is not None:
        store.update_boot(boot_id, pid=engine.pid, pid_started=engine.pid_started, command=engine.launch.argv)


def _failure_text(failure: EngineError | None) -> str:
    if failure is None:
        return ""
    return "\n".join(filter(None, [str(failure), failure.log_tail]))


def _endings(run: WindowRun) -> str:
    return ", ".join(f"{count} {ending}" for ending, count in sorted(run.failures.items())) or "no answer"
