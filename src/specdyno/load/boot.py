"""One boot of one arm: start, ask who it is, warm up, measure every window, stop. Every fact goes to the store.

Owns the life of the engine process within a study. A boot ends complete, failed (the engine's doing: harm) or
interrupted (ours); whatever it measured before stays.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
import psutil

from specdyno.engine import server, tls
from specdyno.engine.base import Adapter, api_key, conceal
from specdyno.errors import BlockedEngineError, EngineError
from specdyno.load.agents import run_sessions
from specdyno.load.crew import Crew
from specdyno.load.http import Client
from specdyno.load.search import SearchPlan, search
from specdyno.load.watch import Watcher
from specdyno.load.window import Endpoint, Hooks, WindowPlan, WindowRun, run_window
from specdyno.plan.schema import Arm, Engine, Plan, Sessions
from specdyno.records.schema import BootStatus, Finding, FindingCode, Outcome, RequestRecord, Severity
from specdyno.records.store import Store

_DYING_S = 10.0  # how long an engine that dropped connections may fail to answer before it counts as dead
_DROPPED = {Outcome.REFUSED, Outcome.BROKEN_STREAM}


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
    """What the warm-up of a load showed: answered requests (turns of sessions) and the seconds they took."""

    load: str
    concurrency: int
    done: int
    seconds: float


Windows = Callable[[Sequence[WarmUp]], Iterable[WindowPlan | SearchPlan]]


@dataclass(frozen=True, slots=True)
class Rig:
    """What every boot of a study shares."""

    plan: Plan
    adapter: Adapter
    store: Store
    watcher: Watcher
    crew: Crew = field(default_factory=Crew)


async def measure(rig: Rig, task: BootTask, *, warm_up: Sequence[WindowPlan], windows: Windows) -> EngineError | None:
    """Run one boot to its end. Returns the failure where the engine would not boot or died; None when complete.

    `windows` is asked for the scored windows once the warm-up is known, so that the first boot of a study can size
    them. Cancellation stops the engine, records the boot as interrupted and is passed on.
    """
    started_ns = time.monotonic_ns()
    boot_id = rig.store.begin_boot(
        block=task.block,
        arm=task.arm.name,
        attempt=task.attempt,
        position=task.position,
        status=BootStatus.STARTING,
        started_ns=started_ns,
        started_unix_ns=time.time_ns(),
        log_path=task.log_name,
    )
    rig.watcher.boot(task.arm.name, task.attempt)
    status = BootStatus.INTERRUPTED
    failure: EngineError | None = None
    try:
        async with (
            session_for(rig.plan.engine) as session,
            _running(rig, task, session, boot_id) as running,
            rig.crew as crew,
        ):
            ready_ns = time.monotonic_ns()
            identity = await running.identity()
            rig.store.update_boot(boot_id, status=BootStatus.READY, ready_ns=ready_ns, identity=identity)
            server.refuse_unfit(running, identity, task.arm)
            rig.watcher.ready(task.arm.name, (ready_ns - started_ns) / 1e9)
            reached = await endpoint(running, rig.plan, arm=task.arm)
            boot = Boot(boot_id, running, reached, rig.store, rig.watcher, manner=rig.plan.workload.sessions)
            boot.crew = crew
            seen = [await boot.warm_up(part) for part in warm_up]
            # Asked again: some engines tell method and K only once they have served (llama.cpp).
            identity = await running.identity()
            rig.store.update_boot(boot_id, identity=identity)
            server.refuse_unfit(running, identity, task.arm)
            for part in windows(seen):
                if isinstance(part, SearchPlan):
                    await search(part, boot.run)
                else:
                    await boot.run(part)
            rig.store.update_boot(boot_id, memory_bytes=running.process.memory_bytes() if running.process else None)
        status = BootStatus.COMPLETE
    except BlockedEngineError as error:
        failure = error
        raise
    except EngineError as error:
        status, failure = BootStatus.FAILED, error
    finally:
        rig.store.update_boot(
            boot_id,
            status=status,
            ended_ns=time.monotonic_ns(),
            ended_unix_ns=time.time_ns(),
            failure=_failure_text(failure),
        )
    rig.watcher.boot_ended(task.arm.name, str(failure) if failure else "")
    return failure


@asynccontextmanager
async def _running(
    rig: Rig, task: BootTask, session: aiohttp.ClientSession, boot_id: int
) -> AsyncIterator[server.Server]:
    """A ready engine whose pid is on record before it is waited for; stopped whatever happens."""
    running = await server.begin(
        rig.adapter,
        task.arm,
        log_path=task.log_path,
        session=session,
        boot_seed=task.seed,
        tell=rig.watcher.note,
    )
    try:
        if (engine := running.process) is not None:
            command = tuple(conceal(part, running.secret) for part in engine.launch.argv)
            rig.store.update_boot(boot_id, pid=engine.pid, pid_started=engine.pid_started, command=command)
        await server.wait_ready(running, rig.plan.engine.ready_timeout)
        yield running
    except asyncio.CancelledError:
        running.interrupted = True
        raise
    finally:
        await asyncio.shield(running.stop())


@dataclass(slots=True)
class Boot:
    """A ready engine and where its rows go."""

    id: int
    running: server.Server
    endpoint: Endpoint
    store: Store
    watcher: Watcher
    manner: Sessions = field(default_factory=Sessions)  # how agent sessions are replayed
    crew: Crew | None = None  # None: this process sends alone
    _last_error: str = ""

    async def warm_up(self, part: WindowPlan) -> WarmUp:
        """One warm-up window. Where this process was late or busy in it, workers send from here on."""
        used_s = time.process_time()
        run = await self.run(part)
        if self.crew is not None:
            busy = (time.process_time() - used_s) * 1e9 / max(1, run.ended_ns - run.started_ns)
            self.endpoint = await self.crew.fitted(self.endpoint, (run.lag_max_ns, busy), tell=self._tell_of_workers)
        if part.planned and run.done == 0:
            raise server.failed(
                self.running,
                f"none of the {run.rows} warm-up requests was answered ({_endings(run)})",
                remedy=f"The server's answer: {self._last_error}" if self._last_error else "",
            )
        return WarmUp(part.load, part.concurrency or 0, run.done, (run.ended_ns - run.started_ns) / 1e9)

    def _tell_of_workers(self, text: str) -> None:
        """Boots that were measured before by one process do not compare with those that follow."""
        self.watcher.note(text)
        if any(boot.status is BootStatus.COMPLETE for boot in self.store.read_boots()):
            detail = f"{text}; boots before this one were sent by one process"
            self.store.add_finding(Finding(FindingCode.CLIENT_AT_CEILING, Severity.FORBIDS, "study", detail))

    async def run(self, part: WindowPlan, listen: Callable[[RequestRecord], None] | None = None) -> WindowRun:
        """Measure one window; `listen` gets each row once it is kept."""
        before, before_raw = await self.running.counters()
        window_id = self.store.begin_window(
            boot_id=self.id,
            load=part.load,
            kind=part.kind,
            class_name=part.class_name,
            concurrency=part.concurrency,
            planned=part.planned,
            started_ns=time.monotonic_ns(),
            arrival=part.arrival,
        )
        self.store.add_counter_sample(window_id, "before", before, before_raw)
        self.watcher.window(part.load, part.kind, part.class_name, part.planned)
        busy = _Busy(self.running, self.crew)

        def on_row(row: RequestRecord) -> None:
            self._last_error = row.error or self._last_error
            self.watcher.row(row)
            if listen is not None:
                listen(row)

        hooks = Hooks(partial(self.store.add_requests, window_id), self._alive, on_row)
        run = await self._asked(part, hooks)
        host_busy = busy.share()
        if run.aborted or not await self._survived(run):
            raise server.failed(
                self.running,
                f"the engine died under load ({part.load}, after {run.rows} of {part.planned} requests)",
            )
        after, after_raw = await self.running.counters()
        self.store.add_counter_sample(window_id, "after", after, after_raw)
        self.store.end_window(window_id, ended_ns=run.ended_ns, client_lag_max_ns=run.lag_max_ns, host_busy=host_busy)
        return run

    async def _asked(self, part: WindowPlan, hooks: Hooks) -> WindowRun:
        if part.sessions:
            return await run_sessions(
                self.endpoint, part.sessions, concurrency=part.concurrency or 1, manner=self.manner, hooks=hooks
            )
        return await run_window(
            self.endpoint, part.jobs, concurrency=part.concurrency, offsets_ns=part.offsets_ns, hooks=hooks
        )

    def _alive(self) -> bool:
        return self.running.process is None or self.running.process.running

    async def _survived(self, run: WindowRun) -> bool:
        """Whether our engine is still there. A dying one drops its connections some time before it is gone."""
        deadline = time.monotonic() + _DYING_S
        while self._alive():
            if self.running.process is None or not run.failures.keys() & _DROPPED or await self.running.healthy():
                return True
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.05)
        return False


class _Busy:
    """How much of the host was used by others: neither the engine nor this client with its workers."""

    def __init__(self, running: server.Server, crew: Crew | None) -> None:
        self._engine, self._crew = running.process, crew
        self._cores = psutil.cpu_count() or 1
        self._wall = time.monotonic()
        self._all, self._ours = self._read()

    def _read(self) -> tuple[float, float]:
        times = psutil.cpu_times()
        # What is no work, and what `user` and `nice` already hold.
        aside = ("idle", "iowait", "guest", "guest_nice")
        everything = sum(times) - sum(getattr(times, name, 0.0) for name in aside)
        own = os.times()
        ours = own.user + own.system + (self._crew.cpu_s() if self._crew is not None else 0.0)
        return everything, ours + (self._engine.cpu_s() if self._engine else 0.0)

    def share(self) -> float | None:
        if self._engine is None:
            return None
        everything, ours = self._read()
        seconds = (time.monotonic() - self._wall) * self._cores
        if seconds <= 0:
            return None
        return max(0.0, min(1.0, ((everything - self._all) - (ours - self._ours)) / seconds))


def session_for(engine: Engine) -> aiohttp.ClientSession:
    """A session that carries the API key of the variable the plan names, and trusts whom the plan trusts.

    PlanError where the variable holds no usable key, or the file no certificate.
    """
    # A connection for each question, as for each request (`load.http.Client` says why).
    connector = aiohttp.TCPConnector(limit=0, force_close=True, ssl=tls.context(engine.ca_file))
    return aiohttp.ClientSession(connector=connector, headers=_headers(engine), auto_decompress=False)


def client_for(engine: Engine) -> Client:
    """What sends the load, with the same key and trust as `session_for`."""
    return Client(_headers(engine), engine.ca_file)


def _headers(engine: Engine) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if key := api_key(engine):
        headers["Authorization"] = f"Bearer {key}"
    return headers


async def endpoint(running: server.Server, plan: Plan, *, arm: Arm, model: str | None = None) -> Endpoint:
    model = model or await running.served_model(plan.target.model)
    return Endpoint(
        running.base_url,
        model,
        client_for(plan.engine),
        plan.workload.sampling,
        plan.engine.request_timeout,
        secret=running.secret,
        fields=running.adapter.request_fields(arm),
    )


def _failure_text(failure: EngineError | None) -> str:
    if failure is None:
        return ""
    return "\n".join(filter(None, [str(failure), failure.log_tail]))


def _endings(run: WindowRun) -> str:
    return ", ".join(f"{count} {ending}" for ending, count in sorted(run.failures.items())) or "no answer"
