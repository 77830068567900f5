"""Which boot comes next: nothing complete is measured again, a failure is tried once more, the size is fixed once."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from specdyno.engine import server
from specdyno.errors import EngineError
from specdyno.load import runner
from specdyno.load.boot import Rig, WarmUp
from specdyno.load.runner import Campaign, end_stale_engines, walk
from specdyno.load.watch import Silent
from specdyno.plan import parse
from specdyno.plan.schedule import schedule
from specdyno.records.schema import BootStatus, FindingCode, WindowKind
from specdyno.records.store import Store
from specdyno.workload.sources import load_pools

PLAN = """
study: walk
seed: 3
target: {model: sim/model}
engine: {kind: simulated}
candidates: [{method: eagle3, draft: d, draft_tokens: [1, 3]}]
workload:
  sampling: {temperature: 0.0}
  classes:
    - {name: code, prompts: "builtin:code", share: 0.5, max_tokens: 16}
    - {name: chat, prompts: "builtin:chat", share: 0.5, max_tokens: 16}
loads:
  - {name: one, concurrency: 1, window: 10s}
  - {name: pool, concurrency: 4, window: 10s, class_windows: true}
objectives: [{name: one, load: one, measure: time_per_job}]
experiment: {looks: [2, 4]}
"""


class Watching(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.left: list[tuple[float | None, int]] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def time_left(self, seconds: float | None, blocks_to_look: int) -> None:
        self.left.append((seconds, blocks_to_look))


class Walked:
    """A campaign whose boots are played: each writes its row and asks for its windows, as a real one does."""

    def __init__(self, store: Store, folder: Path, text: str = PLAN) -> None:
        plan = parse.parse(text)
        self.watcher = Watching()
        rig = Rig(plan, server.adapter(plan.engine, plan.target), store, self.watcher)
        self.looks: list[int] = []
        self.state = Campaign(rig, folder, load_pools(plan, folder), self._settled)
        self.settles = False
        self.failing: list[tuple[int, str]] = []  # one failure for each entry
        self.tasks, self.windows, self.warm_ups = [], [], []
        self.done, self.seconds = 10, 5.0

    def _settled(self) -> bool:
        self.looks.append(len({task.block for task in self.tasks}))
        return self.settles

    @property
    def boots(self) -> list[tuple[int, str, int]]:
        return [(task.block, task.arm.name, task.attempt) for task in self.tasks]

    async def measure(self, rig, task, *, warm_up, windows):
        self.tasks.append(task)
        status = BootStatus.COMPLETE
        if (task.block, task.arm.name) in self.failing:
            self.failing.remove((task.block, task.arm.name))
            status = BootStatus.FAILED
        boot(rig.store, task.block, task.arm.name, task.attempt, status)
        if status is BootStatus.FAILED:
            return EngineError("it fell over")
        self.warm_ups.append(warm_up)
        self.windows.append(windows([WarmUp(one.load, one.concurrency, self.done, self.seconds) for one in warm_up]))
        return None


def boot(store: Store, block: int, arm: str, attempt: int, status: BootStatus, *, age_s: float = 0.0, **keys) -> int:
    return store.begin_boot(
        block=block,
        arm=arm,
        attempt=attempt,
        position=0,
        status=status,
        started_ns=time.monotonic_ns(),
        started_unix_ns=time.time_ns() - int(age_s * 1e9),
        **keys,
    )


@pytest.fixture
def walked(store, tmp_path, monkeypatch):
    def make(text: str = PLAN) -> Walked:
        made = Walked(store, tmp_path, text)
        monkeypatch.setattr(runner, "measure", made.measure)
        return made

    return make


def scheduled(blocks: int) -> list[tuple[int, str, int]]:
    return [(block.index, name, 0) for block in schedule(parse.parse(PLAN))[:blocks] for name in block.order]


async def test_without_a_settling_look_every_block_is_walked_in_its_order(walked):
    made = walked()
    await walk(made.state)
    assert made.boots == scheduled(4)
    assert made.looks == [2, 4]


async def test_a_look_that_settles_everything_ends_the_walk(walked):
    made = walked()
    made.settles = True
    await walk(made.state)
    assert made.boots == scheduled(2)


async def test_what_is_complete_is_not_measured_again_and_what_was_cut_off_is(walked, store):
    first, second, third = (name for _, name, _ in scheduled(1))
    boot(store, 0, first, 0, BootStatus.COMPLETE)
    boot(store, 0, second, 0, BootStatus.INTERRUPTED)
    made = walked()
    made.settles = True
    await walk(made.state)
    assert made.boots == [(0, second, 1), (0, third, 0), *scheduled(2)[3:]]


async def test_a_block_that_spans_too_long_is_measured_anew(walked, store):
    first, second, third = (name for _, name, _ in scheduled(1))
    boot(store, 0, first, 0, BootStatus.COMPLETE, age_s=7 * 3600)
    made = walked()
    made.settles = True
    await walk(made.state)
    assert made.boots[:3] == [(0, first, 1), (0, second, 0), (0, third, 0)]


async def test_a_failed_boot_is_tried_once_more(walked):
    made = walked()
    made.settles = True
    made.failing = [(0, "eagle3-k3")]
    await walk(made.state)
    assert [attempt for block, name, attempt in made.boots if (block, name) == (0, "eagle3-k3")] == [0, 1]
    assert [attempt for block, name, attempt in made.boots if (block, name) == (1, "eagle3-k3")] == [0]
    assert "tried once more: it fell over" in made.watcher.notes[0]


async def test_a_candidate_that_fails_twice_is_given_up_and_the_others_go_on(walked):
    made = walked()
    made.settles = True
    made.failing = [(0, "eagle3-k3")] * 2
    await walk(made.state)
    assert [boot for boot in made.boots if boot[1] == "eagle3-k3"] == [(0, "eagle3-k3", 0), (0, "eagle3-k3", 1)]
    assert len(made.boots) == 2 + 2 * 2
    assert "given up" in made.watcher.notes[1]


async def test_failures_in_two_blocks_do_not_add_up(walked):
    made = walked()
    made.settles = True
    made.failing = [(0, "eagle3-k3"), (1, "eagle3-k3")]
    await walk(made.state)
    assert [boot[2] for boot in made.boots if boot[1] == "eagle3-k3"] == [0, 1, 0, 1]


async def test_a_baseline_that_fails_twice_ends_the_study_with_its_failure(walked):
    made = walked()
    made.failing = [(0, "baseline")] * 2
    with pytest.raises(EngineError, match="it fell over"):
        await walk(made.state)
    assert made.boots[-1] == (0, "baseline", 1)


async def test_the_failure_before_an_interruption_counts(walked, store):
    boot(store, 0, "eagle3-k3", 0, BootStatus.FAILED)
    made = walked()
    made.settles = True
    made.failing = [(0, "eagle3-k3")]
    await walk(made.state)
    assert [boot for boot in made.boots if boot[1] == "eagle3-k3"] == [(0, "eagle3-k3", 1)]


async def test_the_first_warm_up_sizes_every_window_once_for_all(walked, store):
    made = walked()
    made.settles = True
    made.done, made.seconds = 10, 20.0  # half a job per second
    await walk(made.state)
    # ten seconds hold five jobs; at concurrency 4 it is at least three rounds
    assert store.header.sizing == {"one": 5, "pool": 12} == made.state.sizing
    made.done = 10_000
    for windows in made.windows:
        sizes = [(window.load, window.kind, window.class_name, len(window.jobs)) for window in windows]
        assert ("one", WindowKind.MIXED, None, 5) in sizes
        assert ("pool", WindowKind.MIXED, None, 12) in sizes
        assert {name for _, kind, name, _ in sizes if kind is WindowKind.CLASS} == {"code", "chat"}


async def test_a_stated_number_of_requests_is_kept(walked, store):
    made = walked(
        PLAN.replace(
            "{name: one, concurrency: 1, window: 10s}", "{name: one, concurrency: 1, window: 10s, requests: 7}"
        )
    )
    made.settles = True
    made.done = 40
    await walk(made.state)
    assert store.header.sizing["one"] == 7


async def test_a_warm_up_without_answers_still_gives_a_size(walked, store):
    made = walked()
    made.settles = True
    made.done = 0
    await walk(made.state)
    assert store.header.sizing == {"one": 4, "pool": 12}


async def test_a_window_larger_than_the_prompts_is_shortened_and_noted(walked, store):
    made = walked()
    made.settles = True
    made.done, made.seconds = 1_000_000, 1.0
    await walk(made.state)
    codes = [finding.code for finding in store.read_study().findings]
    assert FindingCode.WINDOW_SHORTENED in codes
    assert len(codes) == len(set(store.read_study().findings))


async def test_each_block_asks_all_arms_the_same_and_no_boot_asks_twice(walked):
    made = walked()
    made.settles = True
    await walk(made.state)

    def asked(boot_number: int) -> list[str]:
        parts = [*made.warm_ups[boot_number], *made.windows[boot_number]]
        return [job.prompt.id for part in parts if part.kind is not WindowKind.CLASS for job in part.jobs]

    assert asked(0) == asked(1) == asked(2)
    assert asked(0) != asked(3)
    assert len(set(asked(0))) == len(asked(0))
    assert [part.concurrency for part in made.warm_ups[0]] == [1, 4]
    assert all(part.kind is WindowKind.WARM_UP and part.jobs for part in made.warm_ups[0])


async def test_every_boot_has_its_own_log_and_seed(walked, tmp_path):
    made = walked()
    made.failing = [(0, "eagle3-k1")]
    await walk(made.state)
    assert len({task.seed for task in made.tasks}) == len(made.tasks)
    assert len({task.log_name for task in made.tasks}) == len(made.tasks)
    retried = next(task for task in made.tasks if task.attempt == 1)
    assert retried.log_name == "logs/block01-eagle3-k1-1.log"
    assert retried.log_path == tmp_path / retried.log_name


async def test_no_block_is_begun_that_the_budget_does_not_hold(walked):
    made = walked()
    made.state.deadline_ns = time.monotonic_ns() + int(60e9)
    made.state.boot_seconds = {"baseline": 25.0}
    await walk(made.state)
    assert made.boots == []
    assert "budget" in made.watcher.notes[0]


async def test_the_time_left_is_told_before_each_boot_and_follows_what_boots_take(walked):
    made = walked()
    made.settles = True
    await walk(made.state)
    assert [blocks for _, blocks in made.watcher.left] == [2] * 3 + [1] * 3
    assert all(seconds is None or seconds >= 0 for seconds, _ in made.watcher.left)
    seconds, _ = made.watcher.left[-1]
    assert seconds is not None
    assert seconds < 1  # one boot is left, and played boots take no time


def test_boots_that_an_earlier_run_left_open_are_closed_and_no_stranger_is_touched(store):
    me = psutil.Process()
    open_boot = boot(store, 0, "baseline", 0, BootStatus.READY)
    store.update_boot(open_boot, pid=me.pid, pid_started=me.create_time() - 100)
    boot(store, 0, "eagle3-k1", 0, BootStatus.STARTING)
    boot(store, 0, "eagle3-k3", 0, BootStatus.COMPLETE)
    watcher = Watching()
    end_stale_engines(store, watcher)
    statuses = [one.status for one in store.read_boots()]
    assert statuses == [BootStatus.INTERRUPTED, BootStatus.INTERRUPTED, BootStatus.COMPLETE]
    assert watcher.notes == []
