"""Every way to arrive, through the command line on the simulated engine."""

from __future__ import annotations

import json
import signal
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flow.command_line import end_of, engine, plan, records, rows, specdyno, started, until, verdict, write_plan

from specdyno.records.queueing import Saturation, queueing
from specdyno.records.schema import ArrivalKind, BootStatus, FindingCode, StudyRecords, WindowKind, WindowRecord
from specdyno.records.timings import Timings

pytestmark = pytest.mark.timeout(600)  # whole studies on a slow, busy machine

LEVEL = {"ttft": "5s", "e2el": "20s"}
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:{40 + n * 0.1:09.6f}0,{100 + n},{20 + n}\n" for n in range(60)
)


def objective(load: str, measure: str = "time_per_job", **keys: Any) -> dict[str, Any]:
    return {"name": f"{measure} of {load}", "load": load, "measure": measure, **keys}


def study(folder: Path, loads: list[dict], *, name: str = "plan.yaml", blocks: int = 1, **changes: Any) -> Path:
    """A plan whose one class has 600 prompts."""
    asked = "".join(json.dumps({"prompt": f"write about subject number {n}"}) + "\n" for n in range(600))
    (folder / "prompts.jsonl").write_text(asked)
    content = plan(
        **{
            "loads": loads,
            "objectives": [objective(loads[0]["name"])],
            "experiment": {"looks": [blocks]},
            "workload": workload([{"name": "code", "prompts": "./prompts.jsonl", "share": 1, "max_tokens": 64}]),
            **changes,
        }
    )
    return write_plan(folder / name, content)


def workload(classes: list[dict]) -> dict[str, Any]:
    return {"sampling": {"temperature": 0.0}, "classes": classes}


def measured(path: Path, folder: Path) -> StudyRecords:
    ended = specdyno("run", path, "--out", folder / "study")
    assert ended.code in (0, 10, 20), ended
    return records(folder / "study")


def windows(found: StudyRecords, load: str) -> list[tuple[str, WindowRecord, np.ndarray]]:
    """(arm, window, rows of its requests) of the scored windows of a load."""
    arms = {boot.id: boot.arm for boot in found.boots}
    return [
        (arms[window.boot_id], window, np.flatnonzero(found.requests.window_id == window.id))
        for window in found.windows
        if window.load == load and window.kind is not WindowKind.WARM_UP
    ]


def intended_s(found: StudyRecords, at: np.ndarray) -> np.ndarray:
    times = np.sort(found.requests.intended_ns[at])
    return (times - times[0]) / 1e9


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


def test_too_few_prompts_for_a_rate_or_a_search_are_refused_with_the_number_needed(tmp_path: Path) -> None:
    for load in ({"rate": 100, "window": "60s"}, {"rates": [1, 100], "steps": 3, "window": "60s"}):
        name = "rate" if "rate" in load else "rates"
        ended = specdyno("check", study(tmp_path, [{"name": name, **load}], **_largest(name)))
        assert ended.code == 2
        assert "prompts of its own and one boot needs" in ended.text


def _largest(load: str) -> dict[str, Any]:
    if load != "rates":
        return {}
    return {"objectives": [objective(load, "largest_rate", service_level=LEVEL)]}


def test_a_changed_trace_is_another_study(tmp_path: Path) -> None:
    (tmp_path / "azure.csv").write_text(AZURE)
    path = study(tmp_path, [{"name": "trace", "trace": "azure.csv", "window": "1s"}])
    measured(path, tmp_path)
    (tmp_path / "azure.csv").write_text(AZURE.replace("18:15:40", "18:15:39"))
    ended = specdyno("run", path, "--out", tmp_path / "study", "--resume")
    assert ended.code == 4
    assert "a trace" in ended.text


# ---- queues ----------------------------------------------------------------------------------------------------------


def test_a_queue_that_grows_is_found_and_one_that_does_not_is_not(tmp_path: Path) -> None:
    # Two requests at a time, each of about 0.1 s: it carries about 20 per second.
    slow = engine(scale=1.0, truth={"step_ms": 4.0, "batch_cost": 0.0}, args={"max-num-seqs": 2})
    loads = [
        {"name": "within", "rate": 6, "window": "6s"},
        {"name": "beyond", "rate": 60, "window": "2s"},
    ]
    found = measured(study(tmp_path, loads, engine=slow), tmp_path)
    for load, grows in (("within", False), ("beyond", True)):
        (at,) = [at for arm, _, at in windows(found, load) if arm == "baseline"]
        seen = queueing(Timings.of_columns(found.requests, at))
        assert (seen.saturated is Saturation.YES) is grows, seen
    waits = (found.requests.first_text_ns[at] - found.requests.intended_ns[at]) / 1e9
    assert waits.max() > 0.5  # counted from the intended send, the time in the engine's queue is in it
    doubts = verdict(tmp_path / "study")["findings"]
    assert {one["load"] for one in doubts if one["code"] == FindingCode.SATURATED and one["arm"] == "baseline"} == {
        "beyond"
    }


def test_a_rate_that_the_client_cannot_reach_is_a_finding_and_no_promote(tmp_path: Path) -> None:
    path = study(
        tmp_path,
        [{"name": "flood", "rate": 20_000, "requests": 520, "window": "1s"}],
        engine=engine(truth={"output_tokens": 2}),
    )
    ended = specdyno("run", path, "--out", tmp_path / "study")
    assert ended.code == 20, ended
    found = [one for one in verdict(tmp_path / "study")["findings"] if one["code"] == FindingCode.CLIENT_AT_CEILING]
    assert any(one["severity"] == "forbids" and "requests/s" in one["detail"] for one in found), found
    (seen, *_) = [queueing(Timings.of_columns(records(tmp_path / "study").requests, at))
                  for _, _, at in windows(records(tmp_path / "study"), "flood")]  # fmt: skip
    assert seen.client_too_slow
    assert seen.sent_per_s is not None
    assert seen.offered_per_s == pytest.approx(20_000, rel=0.1)
    assert seen.sent_per_s < 0.9 * seen.offered_per_s


# ---- ladders and searches --------------------------------------------------------------------------------------------


def test_a_ladder_measures_each_rung_with_its_own_prompts(tmp_path: Path) -> None:
    path = study(
        tmp_path,
        [{"name": "pool", "ladder": [1, 2, 4], "window": "1s", "requests": 8}],
        objectives=[objective("pool@4", "jobs_per_s")],
    )
    found = measured(path, tmp_path)
    asked: dict[str, list[int]] = defaultdict(list)
    assert found.requests.prompt_code is not None
    for rung in (1, 2, 4):
        for arm, window, at in windows(found, f"pool@{rung}"):
            assert (window.concurrency, window.arrival, len(at)) == (rung, None, 8)
            asked[arm] += found.requests.prompt_code[at].tolist()
    assert all(len(set(codes)) == 24 for codes in asked.values())


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> StudyRecords:
    """A server that carries about 20 requests per second without speculation."""
    folder = tmp_path_factory.mktemp("searched")
    path = study(
        folder,
        [{"name": "most", "rates": [5, 80], "steps": 4, "window": "1500ms"}],
        objectives=[objective("most", "largest_rate", service_level={"e2el": "400ms"})],
        engine=engine(scale=1.0, truth={"step_ms": 4.0, "batch_cost": 0.0}, args={"max-num-seqs": 2}),
    )
    return measured(path, folder)


def test_a_search_halves_the_range_of_rates_within_each_boot(searched: StudyRecords) -> None:
    by_arm: dict[str, list[float]] = defaultdict(list)
    for arm, window, at in windows(searched, "most"):
        assert window.kind is WindowKind.PROBE
        assert window.arrival is not None
        assert window.arrival.rate is not None
        assert len(at) == window.planned == round(window.arrival.rate * 1.5)
        by_arm[arm].append(window.arrival.rate)
    assert set(by_arm) == {"baseline", "eagle3-k3"}
    for rates in by_arm.values():
        assert len(rates) == 4
        assert rates[0] == pytest.approx(20.0)
        steps = [abs(np.log(later / earlier)) for earlier, later in pairwise(rates)]
        assert steps[:2] == pytest.approx([np.log(16) / 4, np.log(16) / 8])
    assert max(by_arm["baseline"]) < 80


def test_the_steps_of_a_search_ask_their_own_prompts_alike_in_every_arm(searched: StudyRecords) -> None:
    assert searched.requests.prompt_code is not None
    firsts = {}
    for arm, window, at in windows(searched, "most"):
        codes = searched.requests.prompt_code[at].tolist()
        firsts.setdefault((arm), []).append(codes)
        assert window.class_name is None
    for codes in firsts.values():
        flat = [code for step in codes for code in step]
        assert len(set(flat)) == len(flat)
    for mine, theirs in zip(*firsts.values(), strict=True):
        shared = min(len(mine), len(theirs))
        assert mine[:shared] == theirs[:shared]


# ---- sessions --------------------------------------------------------------------------------------------------------

TOOL = {
    "type": "function",
    "function": {"name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
}


def session(number: int) -> dict[str, Any]:
    calls = [{"id": "r0", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}]
    return {
        "id": f"s{number}",
        "system": "You repair programs.",
        "tools": [TOOL],
        "turns": [
            {
                "phase": "planning",
                "messages": [{"role": "user", "content": f"Find the fault number {number}."}],
                "recorded": {"role": "assistant", "content": None, "tool_calls": calls},
            },
            {
                "phase": "reading",
                "messages": [{"role": "tool", "tool_call_id": "r0", "content": f"line {number} of the file"}],
                "pause_s": 0.02,
                "recorded": {"role": "assistant", "content": "It is in line one."},
            },
            {"phase": "acknowledgement", "messages": [{"role": "user", "content": "Thank you."}], "pause_s": 0.01},
        ],
    }


def agents(folder: Path, *, tool_calls: float = 1.0, **load: Any) -> Path:
    (folder / "agents.jsonl").write_text("".join(json.dumps(session(n)) + "\n" for n in range(24)))
    return study(
        folder,
        [{"name": "agents", "sessions": 3, "window": "2s", **load}],
        objectives=[objective("agents", "sessions_per_h")],
        engine=engine(truth={"tool_calls": tool_calls}),
        workload=workload([{"name": "agent", "sessions": "./agents.jsonl", "share": 1, "max_tokens": 64}]),
    )


def test_sessions_are_replayed_turn_by_turn_with_so_many_in_flight(tmp_path: Path) -> None:
    found = measured(agents(tmp_path, requests=9), tmp_path)
    requests = found.requests
    assert requests.session_code is not None
    assert requests.turn is not None
    assert requests.phase_code is not None
    assert set(requests.phases) == {"planning", "reading", "acknowledgement"}
    for _, window, at in windows(found, "agents"):
        assert window.arrival is not None
        assert (window.arrival.kind, window.concurrency, window.planned, len(at)) == (ArrivalKind.SESSIONS, 3, 27, 27)
        mine = requests.session_code[at]
        assert set(Counter(mine.tolist()).values()) == {3}
        for code in set(mine.tolist()):
            turns = at[mine == code]
            order = np.argsort(requests.sent_ns[turns])
            assert requests.turn[turns[order]].tolist() == [0, 1, 2]
            ends, starts = requests.ended_ns[turns[order]][:-1], requests.sent_ns[turns[order]][1:]
            assert (starts - ends >= [20_000_000, 10_000_000]).all()
        warm = {window.boot_id: window for window in found.windows if window.kind is WindowKind.WARM_UP}
        used = requests.session_code[requests.window_id == warm[window.boot_id].id]
        assert not set(used.tolist()) & set(mine.tolist())
    findings = {one["code"] for one in verdict(tmp_path / "study")["findings"]}
    assert FindingCode.PROMPTS_DIFFER not in findings
    assert FindingCode.HISTORY_SUPPLIED not in findings or requests.supplied is not None


def test_where_the_engine_calls_no_tool_the_recorded_call_stands_in_and_is_said(tmp_path: Path) -> None:
    found = measured(agents(tmp_path, tool_calls=0.0, requests=6), tmp_path)
    assert found.requests.supplied is not None
    assert found.requests.turn is not None
    for _, _, at in windows(found, "agents"):
        by_turn = {
            turn: set(found.requests.supplied[at][found.requests.turn[at] == turn].tolist()) for turn in (0, 1, 2)
        }
        assert by_turn == {0: {-1}, 1: {1}, 2: {0}}
    (one, *_) = [f for f in verdict(tmp_path / "study")["findings"] if f["code"] == FindingCode.HISTORY_SUPPLIED]
    assert one["severity"] == "note"
    assert one["detail"] == "in 6 of 12 later turns"


def test_windows_of_sessions_are_sized_from_the_warm_up_and_never_use_one_twice(tmp_path: Path) -> None:
    found = measured(agents(tmp_path), tmp_path)
    size = found.header.sizing["agents"]
    assert 6 <= size <= 24 - 3
    assert {window.planned for _, window, _ in windows(found, "agents")} == {3 * size}


def test_too_few_sessions_are_refused_with_the_number_needed(tmp_path: Path) -> None:
    ended = specdyno("check", agents(tmp_path, requests=50))
    assert ended.code == 2
    assert 'class "agent" has 24 sessions and one boot needs 53' in ended.text


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
