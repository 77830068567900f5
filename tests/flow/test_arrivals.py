"""Open loads and traces, through the command line on the simulated engine."""

from __future__ import annotations

import signal
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from tests.flow.arriving import AZURE, intended_s, measured, study, windows
from tests.flow.command_line import end_of, engine, records, rows, specdyno, started, until

from specdyno.records.schema import ArrivalKind, BootStatus, FindingCode, StudyRecords, WindowKind

pytestmark = pytest.mark.timeout(600)  # whole studies on a slow, busy machine


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> StudyRecords:
    """Two blocks of a Poisson load, a bursty ramp, a trace as recorded and one scaled."""
    folder = tmp_path_factory.mktemp("opened")
    (folder / "azure.csv").write_text(AZURE)
    path = study(
        folder,
        [
            {"name": "open", "rate": 30, "window": "1s"},
            {"name": "ramp", "rate": 40, "ramp_from": 10, "burstiness": 0.5, "window": "1s"},
            {"name": "trace", "trace": "./azure.csv", "window": "2s"},
            {"name": "scaled", "trace": "./azure.csv", "rate": 40, "window": "1s"},
        ],
        blocks=2,
    )
    return measured(path, folder)


def test_open_loads_send_at_their_intended_times_and_record_how_they_were_meant(opened: StudyRecords) -> None:
    for load, arrival, count in (
        ("open", (ArrivalKind.OPEN, 30.0, 1.0, None), 30),
        ("ramp", (ArrivalKind.OPEN, 25.0, 0.5, 10.0), 25),
        ("trace", (ArrivalKind.TRACE, pytest.approx(10.0), None, None), 20),
        ("scaled", (ArrivalKind.TRACE, 40.0, None, None), 40),
    ):
        found = windows(opened, load)
        assert len(found) == 4
        for _, window, at in found:
            meant = window.arrival
            assert meant is not None
            assert (meant.kind, meant.rate, meant.burstiness, meant.ramp_from) == arrival
            assert window.concurrency is None
            assert window.planned == len(at) == count
            assert (opened.requests.sent_ns[at] >= opened.requests.intended_ns[at]).all()


def test_arrivals_and_prompts_are_those_of_the_block_in_every_arm(opened: StudyRecords) -> None:
    blocks = {boot.id: boot.block for boot in opened.boots}
    for load in ("open", "ramp", "trace", "scaled"):
        times: dict[int, list[np.ndarray]] = defaultdict(list)
        prompts: dict[int, list[list[int]]] = defaultdict(list)
        for _, window, at in windows(opened, load):
            times[blocks[window.boot_id]].append(intended_s(opened, at))
            assert opened.requests.prompt_code is not None
            prompts[blocks[window.boot_id]].append(opened.requests.prompt_code[at].tolist())
        for block in (0, 1):
            np.testing.assert_array_equal(*times[block])
            assert prompts[block][0] == prompts[block][1]
        assert prompts[0][0] != prompts[1][0]
        if load in ("open", "ramp"):
            assert not np.array_equal(times[0][0], times[1][0])
    codes = {finding.code for finding in opened.findings}
    assert FindingCode.PROMPTS_DIFFER not in codes


def test_the_times_of_a_trace_are_replayed(opened: StudyRecords) -> None:
    for _, _, at in windows(opened, "trace"):
        assert intended_s(opened, at) == pytest.approx(np.arange(20) * 0.1, abs=1e-6)
    for _, _, at in windows(opened, "scaled"):
        assert intended_s(opened, at) == pytest.approx(np.arange(40) * 0.025, abs=1e-6)


def test_the_warm_up_of_an_open_load_is_closed(opened: StudyRecords) -> None:
    warm = [window for window in opened.windows if window.kind is WindowKind.WARM_UP and window.load == "open"]
    assert warm
    assert {(window.arrival, window.concurrency) for window in warm} == {(None, 30)}


def test_a_trace_says_what_it_is_and_which_rows_it_cannot_use(tmp_path: Path) -> None:
    (tmp_path / "azure.csv").write_text(AZURE + "never,1,2\n")
    path = study(tmp_path, [{"name": "trace", "trace": "azure.csv", "window": "2s"}])
    ended = specdyno("check", path)
    assert ended.code == 0, ended
    assert "60 arrivals over 6 s (Azure)" in ended.text
    assert "130 prompt tokens" in ended.text
    assert "1 rows cannot be used, first: line 62" in ended.text
    (tmp_path / "azure.csv").write_text("prompt,answer\na,b\n")
    ended = specdyno("check", path)
    assert ended.code == 2
    assert "loads[0].trace" in ended.text
    assert "is no arrival trace" in ended.text


def test_a_changed_trace_is_another_study(tmp_path: Path) -> None:
    (tmp_path / "azure.csv").write_text(AZURE)
    path = study(tmp_path, [{"name": "trace", "trace": "azure.csv", "window": "1s"}])
    measured(path, tmp_path)
    (tmp_path / "azure.csv").write_text(AZURE.replace("18:15:40", "18:15:39"))
    ended = specdyno("run", path, "--out", tmp_path / "study", "--resume")
    assert ended.code == 4
    assert "a trace" in ended.text


# ---- interruptions ---------------------------------------------------------------------------------------------------


def test_an_open_window_that_is_interrupted_keeps_its_rows_and_the_study_goes_on(tmp_path: Path) -> None:
    path = study(tmp_path, [{"name": "open", "rate": 10, "window": "4s"}], engine=engine(scale=0.2), name="a plan.yaml")
    folder = tmp_path / "study"
    with started("run", path, "--out", folder) as running:
        query = "SELECT 1 FROM request JOIN window ON window.id = window_id WHERE kind = 'mixed'"
        until(lambda: len(rows(folder, query)) >= 5, meanwhile=running)
        running.send_signal(signal.SIGINT)
        assert end_of(running).code == 130
    kept = rows(folder, "SELECT * FROM request ORDER BY id")
    assert records(folder).boots[-1].status is BootStatus.INTERRUPTED
    ended = specdyno("run", path, "--out", folder, "--resume")
    assert ended.code == 20, ended
    assert rows(folder, "SELECT * FROM request ORDER BY id")[: len(kept)] == kept
    found = records(folder)
    assert Counter(boot.status for boot in found.boots) == {BootStatus.INTERRUPTED: 1, BootStatus.COMPLETE: 2}
    times = [
        intended_s(found, at)
        for _, window, at in windows(found, "open")
        if window.ended_ns is not None and len(at) == 40
    ]
    assert len(times) == 2
    np.testing.assert_array_equal(*times)


def test_an_engine_that_dies_in_an_open_window_is_a_failed_boot(tmp_path: Path) -> None:
    path = study(
        tmp_path, [{"name": "open", "rate": 20, "window": "2s"}], engine=engine(fault="candidate@die_after:30")
    )
    ended = specdyno("run", path, "--out", tmp_path / "study")
    assert ended.code == 10, ended
    failed = [boot for boot in records(tmp_path / "study").boots if boot.status is BootStatus.FAILED]
    assert len(failed) == 2
    assert all("died under load" in boot.failure for boot in failed)
