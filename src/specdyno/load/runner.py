"""The walk over the schedule: blocks of fresh boots, up to the look that settles the study.

Owns which boot comes next: what is complete is not measured again, what failed is tried once more, what failed twice
is given up, what no open decision needs any more is left out. Which decisions are open is asked, not known here.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specdyno.engine import outside, process
from specdyno.load.agenda import Stock, sized, warm_up_plans, window_plans
from specdyno.load.boot import BootTask, Rig, WarmUp, measure, session_for
from specdyno.load.search import SearchPlan
from specdyno.load.watch import Watcher
from specdyno.load.window import WindowPlan
from specdyno.plan.duration import estimate
from specdyno.plan.schedule import Block, schedule
from specdyno.plan.schema import BASELINE, Arm, Plan, Role
from specdyno.records.schema import BootRecord, BootStatus, Finding, FindingCode, Severity
from specdyno.records.store import Store
from specdyno.workload.sessions import ClassSessions
from specdyno.workload.sources import ClassPrompts
from specdyno.workload.traces import Trace

_ATTEMPTS = 2  # a boot that fails is tried once more; a second failure is harm


@dataclass(slots=True)
class Campaign:
    """A study being measured: what every step shares."""

    rig: Rig
    folder: Path
    pools: dict[str, ClassPrompts]
    settled: Callable[[], bool]  # asked at each look: no decision is open
    deadline_ns: int | None = None
    boot_seconds: dict[str, float] = field(default_factory=dict)  # arm -> last whole boot, stop included
    sizing: dict[str, int] = field(default_factory=dict)  # load -> requests per window
    pursued: Callable[[], frozenset[str]] | None = None  # asked before each block: candidates with an open decision
    sessions: dict[str, ClassSessions] = field(default_factory=dict)
    traces: dict[str, Trace] = field(default_factory=dict)  # by load

    @property
    def plan(self) -> Plan:
        return self.rig.plan

    @property
    def store(self) -> Store:
        return self.rig.store

    @property
    def watcher(self) -> Watcher:
        return self.rig.watcher

    @property
    def stock(self) -> Stock:
        return Stock(self.plan, self.pools, self.sessions, self.traces)

    @property
    def arms(self) -> dict[str, Arm]:
        return {arm.name: arm for arm in self.plan.arms()}


async def walk(state: Campaign) -> None:
    """Blocks up to the look that settles every decision; a candidate whose decisions have fallen is booted no more."""
    await _settle_owed_stops(state)
    state.boot_seconds |= _seconds_by_arm(state.store.read_boots())
    looks = state.plan.experiment.looks
    racing = frozenset(name for name, arm in state.arms.items() if arm.role is Role.CANDIDATE)
    for block in schedule(state.plan):
        ahead = [look for look in looks if look > block.index]
        # Once left out, an arm stays out: a block that it missed could never be made whole again.
        still = racing & state.pursued() if state.pursued is not None else racing
        _tell_who_left(state, racing - still)
        racing = still
        if not ahead or not racing or not _time_for(state, _needed(state, block, racing)):
            return
        state.watcher.block(block.index, ahead[0], tuple(_needed(state, block, racing)))
        await _measure_block(state, block, racing, blocks_to_look=ahead[0] - block.index)
        if block.index + 1 in looks and state.settled():
            return


def _needed(state: Campaign, block: Block, racing: frozenset[str]) -> list[str]:
    """The block's arms in order, without candidates that are out of the race."""
    return [name for name in block.order if name in racing or state.arms[name].role is not Role.CANDIDATE]


def _tell_who_left(state: Campaign, left: frozenset[str]) -> None:
    gone = _given_up(state.store.read_boots())
    names = ", ".join(name for name in state.arms if name in left - gone)
    if names:
        state.watcher.note(f"settled at this look, not booted again: {names}")


async def _measure_block(state: Campaign, block: Block, racing: frozenset[str], *, blocks_to_look: int) -> None:
    boots = state.store.read_boots()
    here = [boot for boot in boots if boot.block == block.index]
    comparable = _still_comparable(here, state.plan.experiment.max_block_span)
    complete = {boot.arm for boot in here if boot.status is BootStatus.COMPLETE} if comparable else set()
    needed = _needed(state, block, racing)
    waiting = [name for name in needed if name not in complete | _given_up(boots)]
    for name in waiting:
        left = waiting[waiting.index(name) :]
        _tell_time_left(state, left, more=(blocks_to_look - 1) * needed, to_look=blocks_to_look)
        await _measure_arm(state, block, name, earlier=[boot for boot in here if boot.arm == name])


async def _measure_arm(state: Campaign, block: Block, name: str, *, earlier: Sequence[BootRecord]) -> None:
    """Boot and measure one arm; a failure is tried once more, a second one gives the arm up (the baseline: ends)."""
    failures = sum(boot.status is BootStatus.FAILED for boot in earlier)
    attempt = len(earlier)
    while True:
        started = time.monotonic()
        failure = await measure(
            state.rig,
            _boot_task(state, block, name, attempt),
            warm_up=warm_up_plans(state.stock, block.index),
            windows=lambda seen: _window_plans(state, block, seen),
        )
        if failure is None:
            state.boot_seconds[name] = time.monotonic() - started
            return
        failures, attempt = failures + 1, attempt + 1
        if failures >= _ATTEMPTS:
            if state.arms[name].role is not Role.CANDIDATE:
                raise failure
            state.watcher.note(f"{name} failed twice in block {block.index + 1} and is given up: {failure}")
            return
        state.watcher.note(f"{name} failed in block {block.index + 1} and is tried once more: {failure}")


def _boot_task(state: Campaign, block: Block, name: str, attempt: int) -> BootTask:
    log_name = f"logs/block{block.index + 1:02d}-{name}-{attempt}.log"
    label = f"{state.plan.seed}/{block.index}/{name}/{attempt}"
    return BootTask(
        arm=state.arms[name],
        block=block.index,
        position=block.order.index(name),
        attempt=attempt,
        seed=int.from_bytes(hashlib.sha256(label.encode()).digest()[:4], "big"),
        log_path=(state.folder / log_name).absolute(),
        log_name=log_name,
    )


def _given_up(boots: Sequence[BootRecord]) -> set[str]:
    """Arms that failed twice within one block: harm is shown, and no further boots are spent on them."""
    failures = Counter((boot.block, boot.arm) for boot in boots if boot.status is BootStatus.FAILED)
    return {arm for (_, arm), count in failures.items() if count >= _ATTEMPTS and arm != BASELINE}


def _still_comparable(boots: Sequence[BootRecord], max_span_s: float) -> bool:
    """Whether a boot made now would lie within the block's largest span; a block that is too old starts anew."""
    complete = [boot.started_unix_ns for boot in boots if boot.status is BootStatus.COMPLETE]
    return not complete or (time.time_ns() - min(complete)) / 1e9 <= max_span_s


def _window_plans(state: Campaign, block: Block, seen: Sequence[WarmUp]) -> list[WindowPlan | SearchPlan]:
    if not state.sizing:
        _set_sizing(state, seen)
    return window_plans(state.stock, block.index, state.sizing)


def _set_sizing(state: Campaign, seen: Sequence[WarmUp]) -> None:
    """Fix, once per study, how many requests each window has: stated, known, or sized from the first warm-up."""
    sizing = sized(state.stock, seen)
    for name, (asked, given) in sizing.clipped.items():
        what = "sessions" if state.plan.load(name).sessions is not None else "requests"
        detail = f"{given} {what} instead of {asked}: nothing is sent twice within a boot"
        state.store.add_finding(Finding(FindingCode.WINDOW_SHORTENED, Severity.NOTE, f"load {name}", detail, load=name))
    state.store.set_sizing(sizing.requests)
    state.sizing = sizing.requests


def _time_for(state: Campaign, names: Sequence[str]) -> bool:
    """Whether the budget still holds a whole block of these arms, judged by the boots measured so far."""
    if state.deadline_ns is None or not state.boot_seconds:
        return True
    needed = sum(_expected_s(state, name) for name in names)
    if time.monotonic_ns() + needed * 1e9 <= state.deadline_ns:
        return True
    state.watcher.note(f"the time budget does not hold another block ({needed / 60:.1f} min): stopping here")
    return False


def _seconds_by_arm(boots: Sequence[BootRecord]) -> dict[str, float]:
    """How long the last whole boot of each arm took, stop included."""
    whole = [boot for boot in boots if boot.status is BootStatus.COMPLETE and boot.ended_ns is not None]
    return {boot.arm: ((boot.ended_ns or 0) - boot.started_ns) / 1e9 for boot in whole}


def _expected_s(state: Campaign, name: str) -> float:
    """The arm's own last boot, else the mean of those measured, else what the plan lets expect."""
    known = state.boot_seconds
    if name in known:
        return known[name]
    return sum(known.values()) / len(known) if known else estimate(state.plan).block_s / len(state.arms)


def _tell_time_left(state: Campaign, waiting: Sequence[str], *, more: Sequence[str], to_look: int) -> None:
    """`more` are the boots of the whole blocks between this one and the look."""
    state.watcher.time_left(sum(_expected_s(state, name) for name in (*waiting, *more)), to_look)


async def _settle_owed_stops(state: Campaign) -> None:
    """Engines that run elsewhere and that an earlier run of this study could not stop."""
    async with session_for(state.plan.engine) as session:
        await outside.settle(state.folder / "logs", session, dict(state.plan.engine.env), state.watcher.note)


def end_stale_engines(store: Store, watcher: Watcher) -> None:
    """Boots that an earlier run left open are interrupted; an engine that still runs is ended by pid and start time."""
    for boot in store.read_boots():
        if boot.status in (BootStatus.STARTING, BootStatus.READY):
            if boot.pid is not None and boot.pid_started is not None and process.end_stale(boot.pid, boot.pid_started):
                watcher.note(f"ended an engine that an earlier run had left behind (process {boot.pid})")
            store.update_boot(boot.id, status=BootStatus.INTERRUPTED, failure="specdyno was stopped during this boot")
