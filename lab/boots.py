"""One boot of one arm of a plan, measured into a study of its own by the program's own code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import uvloop

from specdyno.engine import server
from specdyno.load.boot import BootTask, Rig, WindowPlan, measure
from specdyno.load.watch import Silent
from specdyno.load.window import Job
from specdyno.plan.schema import Arm, Plan
from specdyno.records import provenance
from specdyno.records.schema import BootRecord, RequestRecord, StudyHeader, WindowKind, WindowRecord
from specdyno.records.store import Store
from specdyno.workload.prompts import Prompt

DATABASE = "study.sqlite"


@dataclass(frozen=True, slots=True)
class Booted:
    """What one boot left: its record, its scored window, the answers, and the processes that served them."""

    arm: Arm
    boot: BootRecord
    window: WindowRecord
    rows: tuple[RequestRecord, ...]
    family: dict[int, float] = field(default_factory=dict)  # pid -> creation time


def opened(folder: Path, plan: Plan, text: str) -> Store:
    """The study in `folder`, made with this plan where there is none yet."""
    path = folder / DATABASE
    if path.exists():
        return Store.open(path, write=True)
    folder.mkdir(parents=True, exist_ok=True)
    in_force = plan.model_dump(mode="json")
    header = StudyHeader(
        plan=in_force,
        plan_yaml=text,
        plan_sha256=provenance.plan_sha256(in_force),
        created_unix_ns=time.time_ns(),
        provenance=provenance.collect(),
    )
    return Store.create(path, header)


Then = Callable[[str, Sequence[RequestRecord]], None]


def boot_once(
    store: Store,
    plan: Plan,
    arm: Arm,
    *,
    prompts: Sequence[Prompt],
    warm_up: Sequence[Prompt] = (),
    log: Path,
    then: Then | None = None,
) -> Booted:
    """Boot `arm`, ask it `warm_up` and then `prompts` one at a time, stop it; raises what kept it from serving.

    `then` is called with the server's address and the answers while the server still runs.
    """
    watcher = _Family()
    position = [one.name for one in plan.arms()].index(arm.name)
    task = BootTask(arm, 0, position, attempt=0, seed=1, log_path=log.absolute(), log_name=log.name)
    rig = Rig(plan, server.adapter(plan.engine, plan.target), store, watcher)
    first = [_window(plan, WindowKind.WARM_UP, warm_up)] if warm_up else []
    watcher.pid_of = lambda: store.read_boots()[-1].pid
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        failure = loop.run(
            measure(rig, task, warm_up=first, windows=lambda _seen: _windows(store, plan, prompts, then))
        )
    if failure is not None:
        raise failure
    boot, window, rows = _last(store)
    return Booted(arm, boot, window, rows, watcher.seen)


def _windows(store: Store, plan: Plan, prompts: Sequence[Prompt], then: Then | None) -> Iterator[WindowPlan]:
    yield _window(plan, WindowKind.MIXED, prompts)
    if then is not None:
        boot, _, rows = _last(store)
        then(f"http://127.0.0.1:{boot.command[boot.command.index('--port') + 1]}", rows)


def _last(store: Store) -> tuple[BootRecord, WindowRecord, tuple[RequestRecord, ...]]:
    """The latest boot, its scored window, and the answers in it."""
    records = store.read_study()
    boot = records.boots[-1]
    window = next(one for one in records.windows if one.boot_id == boot.id and one.kind is WindowKind.MIXED)
    return boot, window, tuple(store.read_requests(window.id))


def _window(plan: Plan, kind: WindowKind, prompts: Sequence[Prompt]) -> WindowPlan:
    load = plan.loads[0]
    return WindowPlan(load.name, kind, None, load.concurrency, tuple(Job(prompt) for prompt in prompts))


class _Family(Silent):
    """Notes the engine's processes when its first answer is in, since they are gone once the boot has ended."""

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}
        self.pid_of = lambda: None

    def row(self, row: RequestRecord) -> None:  # noqa: ARG002 (any row will do)
        pid = self.pid_of() if not self.seen else None
        if pid is not None:
            engine = psutil.Process(pid)
            self.seen = {one.pid: one.create_time() for one in (engine, *engine.children(recursive=True))}
