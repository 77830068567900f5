"""Studies that are stopped: politely, impatiently, or by `kill -9` at any moment; and the engines they leave."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

import psutil
import pytest
from tests.flow.command_line import (
    Ended,
    end_of,
    engine,
    engines,
    living,
    plan,
    records,
    rows,
    specdyno,
    started,
    until,
    verdict,
    write_plan,
)

from specdyno.records.schema import BootStatus

pytestmark = pytest.mark.timeout(600)  # whole studies on a slow, busy machine

SLOW = {"scale": 0.15}  # slow enough that a boot lasts about a second


@pytest.fixture
def slow_plan(tmp_path: Path) -> Path:
    return write_plan(tmp_path / "plan.yaml", plan(engine=engine(**SLOW)))


@pytest.fixture
def leftovers() -> Iterator[list[int]]:
    """Pids of groups that a failing test might leave running."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


# ---- asked to stop ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_polite_end_keeps_the_rows_ends_the_engine_and_says_how_to_go_on(
    slow_plan: Path, tmp_path: Path, number: signal.Signals
) -> None:
    study = tmp_path / "a study"
    with started("run", slow_plan, "--out", study) as running:
        until(lambda: rows(study, "SELECT 1 FROM request"), meanwhile=running)
        running.send_signal(number)
        ended = end_of(running)
    assert ended.code == 130
    assert "what was measured is kept" in ended.text
    assert f"specdyno run {slow_plan} --out '{study}' --resume" in ended.text
    boots = records(study).boots
    assert [boot.status for boot in boots[-1:]] == [BootStatus.INTERRUPTED]
    assert rows(study, "SELECT 1 FROM request")
    assert engines(study)
    until(lambda: not any(living(*one) for one in engines(study)))


def test_an_impatient_second_interrupt_leaves_no_engine_either(tmp_path: Path) -> None:
    path = write_plan(tmp_path / "plan.yaml", plan(engine=engine(**SLOW, fault="slow_stop:2,child")))
    study = tmp_path / "study"
    with started("run", path, "--out", study) as running:
        until(lambda: rows(study, "SELECT 1 FROM request"), meanwhile=running)
        running.send_signal(signal.SIGINT)
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        assert end_of(running).code == 130
    until(lambda: not any(living(*one) for one in engines(study)))


def test_judge_of_an_interrupted_study_holds(slow_plan: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    with started("run", slow_plan, "--out", study) as running:
        until(lambda: rows(study, "SELECT 1 FROM boot WHERE status = 'complete'"), meanwhile=running)
        running.send_signal(signal.SIGINT)
        end_of(running)
    assert specdyno("judge", study).code == 20
    assert verdict(study)["outcome"] == "hold"


# ---- killed ----------------------------------------------------------------------------------------------------------


@dataclass
class Killed:
    """A study killed several times and then resumed to its end; what stood in it after each kill."""

    study: Path
    kept: list[dict[str, list[tuple]]] = field(default_factory=list)
    whole_blocks: int = 0
    judged: int | None = None
    stopped: set[int] = field(default_factory=set)
    ended: Ended | None = None


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    folder, chance = tmp_path_factory.mktemp("killed"), Random(20260731)
    path = write_plan(folder / "plan.yaml", plan(engine=engine(**SLOW)))
    found = Killed(folder / "study")
    for attempt in range(3):
        seen = "SELECT 1 FROM request" if attempt else "SELECT 1 FROM boot"  # so that some are killed while they answer
        known = len(rows(found.study, seen))
        with started("run", path, "--out", found.study, *(["--resume"] if attempt else [])) as running:
            until(lambda seen=seen, known=known: len(rows(found.study, seen)) > known, meanwhile=running)
            time.sleep(chance.uniform(0.0, 0.6))
            assert running.poll() is None
            running.kill()
            running.wait()
        until(lambda: not any(living(*one) for one in engines(found.study)))  # no engine outlives a killed specdyno
        found.kept.append(_finished(found.study))
    found.judged = specdyno("judge", found.study).code
    found.whole_blocks = verdict(found.study)["blocks_complete"]
    found.stopped = {boot.id for boot in records(found.study).boots if boot.status is not BootStatus.COMPLETE}
    found.ended = specdyno("run", path, "--out", found.study, "--resume")
    return found


def test_killed_at_random_moments_a_study_loses_no_finished_request(killed: Killed) -> None:
    assert killed.kept[-1]["request"]
    for before, after in pairwise([*killed.kept, _finished(killed.study)]):
        for table, kept in before.items():
            assert after[table][: len(kept)] == kept


def test_a_killed_study_holds_until_four_blocks_are_whole_and_then_ends_with_its_verdict(killed: Killed) -> None:
    assert killed.whole_blocks < 4
    assert killed.judged == 20
    assert killed.ended is not None
    assert killed.ended.code == 0, killed.ended
    assert verdict(killed.study)["outcome"] == "promote"


def test_an_interrupted_arm_is_measured_again_in_a_fresh_boot_with_the_next_attempt(killed: Killed) -> None:
    boots = records(killed.study).boots
    assert killed.stopped
    assert {boot.id for boot in boots if boot.status is BootStatus.INTERRUPTED} == killed.stopped
    assert len({boot.pid for boot in boots if boot.pid is not None}) > 1
    attempts = defaultdict(list)
    for boot in boots:
        attempts[boot.block, boot.arm].append((boot.attempt, boot.status))
    assert len(attempts) == 8
    for tried in attempts.values():
        assert [attempt for attempt, _ in tried] == list(range(len(tried)))
        assert [status for _, status in tried] == [BootStatus.INTERRUPTED] * (len(tried) - 1) + [BootStatus.COMPLETE]


def test_the_windows_of_an_interrupted_boot_stay_and_are_not_scored(killed: Killed, tmp_path: Path) -> None:
    stopped = ", ".join(map(str, killed.stopped))
    windows = f"SELECT id FROM window WHERE boot_id IN ({stopped})"
    requests = f"SELECT id FROM request WHERE window_id IN ({windows})"
    assert rows(killed.study, requests)
    without = shutil.copytree(killed.study, tmp_path / "without")
    with closing(sqlite3.connect(without / "study.sqlite")) as database, database:
        database.execute(f"DELETE FROM answer WHERE request_id IN ({requests})")
        for table in ("request", "counter_sample"):
            database.execute(f"DELETE FROM {table} WHERE window_id IN ({windows})")
        database.execute(f"DELETE FROM window WHERE boot_id IN ({stopped})")
        database.execute(f"DELETE FROM boot WHERE id IN ({stopped})")
    assert specdyno("judge", without).code == 0
    assert verdict(without)["objectives"] == verdict(killed.study)["objectives"]


@pytest.mark.parametrize(("offset_s", "ended_it"), [(0.0, True), (-5.0, False)])
def test_a_stale_engine_is_known_by_its_pid_and_start_time(
    slow_plan: Path, tmp_path: Path, offset_s: float, ended_it: bool
) -> None:
    study = tmp_path / "study"
    with started("run", slow_plan, "--out", study) as running:
        until(lambda: rows(study, "SELECT 1 FROM request"), meanwhile=running)
        running.kill()
        running.wait()
    stale = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        with closing(sqlite3.connect(study / "study.sqlite")) as database, database:
            born = psutil.Process(stale.pid).create_time()
            database.execute("UPDATE boot SET pid = ?, pid_started = ?", (stale.pid, born + offset_s))
        ended = specdyno("run", slow_plan, "--out", study, "--resume", "--budget", "1ms")
        assert ended.code == 20
        assert (f"process {stale.pid}" in ended.text) is ended_it
        assert (stale.poll() is not None) is ended_it
    finally:
        stale.kill()
        stale.wait()


def test_an_engine_whose_keeper_was_killed_ends_and_the_study_goes_on(
    slow_plan: Path, tmp_path: Path, leftovers: list[int]
) -> None:
    study = tmp_path / "study"
    with started("run", slow_plan, "--out", study) as running:
        until(lambda: rows(study, "SELECT 1 FROM request"), meanwhile=running)
        pid, pid_started = engines(study)[-1]
        leftovers.append(pid)
        psutil.Process(pid).parent().kill()
        until(lambda: rows(study, "SELECT 1 FROM boot WHERE status = 'complete'"), meanwhile=running)
        until(lambda: not living(pid, pid_started), meanwhile=running)


def test_two_runs_in_one_study_at_once_are_refused(slow_plan: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    with started("run", slow_plan, "--out", study) as running:
        until(lambda: rows(study, "SELECT 1 FROM request"), meanwhile=running)
        second = specdyno("run", slow_plan, "--out", study, "--resume")
        assert second.code == 4
        assert f"pid {running.pid}" in second.text
        assert specdyno("judge", study).code == 20, "judging needs no lock"
        assert running.poll() is None


# ---- budgets ---------------------------------------------------------------------------------------------------------


def test_no_block_is_begun_that_the_budget_is_known_not_to_hold(slow_plan: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    ended = specdyno("run", slow_plan, "--out", study, "--budget", "1ms")
    assert ended.code == 20
    assert "budget" in ended.text
    assert verdict(study)["blocks_complete"] == 1
    again = specdyno("run", slow_plan, "--out", study, "--resume", "--budget", "1ms")
    assert again.code == 20
    assert verdict(study)["blocks_complete"] == 1, "a known block is not begun beyond the budget"


@pytest.mark.parametrize("budget", ["5", "0s", "soon", "-1h", "", "1 hour"])
def test_a_budget_that_is_no_duration_is_a_usage_error(slow_plan: Path, tmp_path: Path, budget: str) -> None:
    ended = specdyno("run", slow_plan, "--out", tmp_path / "study", f"--budget={budget}")
    assert ended.code == 2
    assert "--budget" in ended.text
    assert not (tmp_path / "study").exists()


def _finished(study: Path) -> dict[str, list[tuple]]:
    return {
        "request": rows(study, "SELECT * FROM request ORDER BY id"),
        "answer": rows(study, "SELECT * FROM answer ORDER BY request_id"),
        "complete": rows(study, "SELECT * FROM boot WHERE status = 'complete' ORDER BY id"),
    }
