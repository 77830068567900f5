"""Engines that misbehave: each candidate has its own fault, and none is promoted past it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.flow.command_line import (
    CANDIDATE,
    engine,
    faulty,
    living,
    plain,
    plan,
    records,
    rows,
    specdyno,
    until,
    verdict,
    workload,
    write_plan,
)
from tests.flow.conftest import Study

from specdyno.records.schema import BootStatus, Outcome

pytestmark = pytest.mark.timeout(600)  # the study of this module on a slow, busy machine

HOSTILE = "log_escape,log_secrets,markup_text,child"
FAULTS = (
    HOSTILE,
    "spec_inactive",
    "wrong_k:2",
    "counter_reset:6",
    "short_answers:0.5",
    "http_500:0.5",
    "break_stream:0.5",
    "no_usage",
    "refuse_boot",
    "die_after:7",
)
PLAIN = "eagle3-k3"


def arm_of(fault: str) -> str:
    return f"eagle3-k3-{FAULTS.index(fault) + 2}"


def candidate_of(study: Path, arm: str) -> dict[str, Any]:
    return next(one for one in verdict(study)["objectives"][0]["candidates"] if one["candidate"] == arm)


def codes(study: Path, arm: str, severity: str) -> set[str]:
    found = candidate_of(study, arm)["findings"]
    return {finding["code"] for finding in found if finding["severity"] == severity}


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A candidate without a fault beside one with each, all far faster than the baseline."""
    folder = tmp_path_factory.mktemp("doubtful")
    content = plan(engine=engine(scale=0.25), candidates=[dict(CANDIDATE), *(faulty(fault) for fault in FAULTS)])
    path = write_plan(folder / "plan.yaml", content)
    return Study(path, folder / "study", specdyno("run", path, "--out", folder / "study"))


def test_the_candidate_without_a_fault_is_promoted_beside_all_the_others(doubtful: Study) -> None:
    assert doubtful.ended.code == 0, doubtful.ended
    assert candidate_of(doubtful.folder, PLAIN)["decision"] == "promote"
    assert verdict(doubtful.folder)["blocks_complete"] == 4


@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        ("spec_inactive", "speculation_not_active"),
        ("wrong_k:2", "draft_tokens_not_as_asked"),
        ("counter_reset:6", "counters_reset"),
        ("refuse_boot", "engine_failed"),
        ("die_after:7", "engine_failed"),
    ],
)
def test_a_forbidding_finding_is_named_and_nothing_is_promoted_past_it(
    doubtful: Study, fault: str, finding: str
) -> None:
    assert finding in codes(doubtful.folder, arm_of(fault), "forbids")
    assert candidate_of(doubtful.folder, arm_of(fault))["decision"] in ("hold", "reject")
    assert finding not in codes(doubtful.folder, PLAIN, "forbids")


def test_a_fast_engine_with_another_draft_length_is_held_for_that_alone(doubtful: Study) -> None:
    found = candidate_of(doubtful.folder, arm_of("wrong_k:2"))
    assert (found["decision"], found["reason"]) == ("hold", "finding_forbids")
    assert found["gates"][0]["status"] == "met"


@pytest.mark.parametrize(
    ("fault", "gate"),
    [
        ("short_answers:0.5", "output_length"),
        ("http_500:0.5", "failed_requests"),
        ("break_stream:0.5", "failed_requests"),
    ],
)
def test_a_broken_guard_rejects_a_faster_candidate(doubtful: Study, fault: str, gate: str) -> None:
    found = candidate_of(doubtful.folder, arm_of(fault))
    assert found["decision"] == "reject"
    assert (
        found["deciding_gate"] == gate
        or next(one for one in found["gates"] if one["name"] == gate)["status"] == "missed"
    )


@pytest.mark.parametrize(
    ("fault", "outcome"), [("http_500:0.5", Outcome.HTTP_ERROR), ("break_stream:0.5", Outcome.BROKEN_STREAM)]
)
def test_requests_that_fail_are_rows_beside_those_that_do_not(doubtful: Study, fault: str, outcome: Outcome) -> None:
    counts = dict(
        rows(
            doubtful.folder,
            "SELECT outcome, count(*) FROM request JOIN window ON window.id = window_id JOIN boot ON boot.id = boot_id"
            f" WHERE arm = '{arm_of(fault)}' GROUP BY outcome",
        )
    )
    assert counts[outcome] > 0
    assert counts[Outcome.FINISHED] > 0
    found = candidate_of(doubtful.folder, arm_of(fault))["findings"]
    (one, *_) = [finding for finding in found if finding["code"] == "requests_failed"]
    assert one["severity"] == "doubt"
    assert outcome.replace("_", " ") in one["detail"]
    assert any(f"class {name}: " in one["detail"] for name in ("code", "chat"))


def test_without_usage_tokens_are_unknown_and_nothing_is_promoted(doubtful: Study) -> None:
    arm = arm_of("no_usage")
    assert "usage_missing" in codes(doubtful.folder, arm, "doubt")
    assert candidate_of(doubtful.folder, arm)["decision"] == "hold"
    tokens = rows(
        doubtful.folder,
        "SELECT DISTINCT completion_tokens FROM request JOIN window ON window.id = window_id"
        f" JOIN boot ON boot.id = boot_id WHERE arm = '{arm}'",
    )
    assert tokens == [(None,)]


@pytest.mark.parametrize("fault", ["refuse_boot", "die_after:7"])
def test_a_candidate_that_fails_twice_is_rejected_and_booted_no_more(doubtful: Study, fault: str) -> None:
    boots = [boot for boot in records(doubtful.folder).boots if boot.arm == arm_of(fault)]
    assert [(boot.block, boot.attempt, boot.status) for boot in boots] == [
        (0, 0, BootStatus.FAILED),
        (0, 1, BootStatus.FAILED),
    ]
    found = candidate_of(doubtful.folder, arm_of(fault))
    assert (found["decision"], found["reason"]) == ("reject", "failed_to_run")
    assert f"{arm_of(fault)} failed twice" in doubtful.ended.text


def test_the_log_of_a_failed_start_is_kept_with_the_failure(doubtful: Study) -> None:
    boot = next(boot for boot in records(doubtful.folder).boots if boot.arm == arm_of("refuse_boot"))
    assert "does not appear to have a file named config.json" in boot.failure
    assert "does not appear to have a file named config.json" in (doubtful.folder / boot.log_path).read_text()


def test_what_an_engine_answered_before_it_died_is_kept(doubtful: Study) -> None:
    query = "SELECT count(*) FROM request JOIN window ON window.id = window_id JOIN boot ON boot.id = boot_id"
    done = f"{query} WHERE outcome = 'finished' AND arm = '{arm_of('die_after:7')}'"
    assert rows(doubtful.folder, done)[0][0] >= 8, "two boots of at least four answers"
    boot = next(boot for boot in records(doubtful.folder).boots if boot.arm == arm_of("die_after:7"))
    assert "died under load" in boot.failure


def test_untrusted_text_is_harmless_in_the_page_and_in_the_terminal(doubtful: Study) -> None:
    answers = "".join(text for (text,) in rows(doubtful.folder, "SELECT text FROM answer"))
    logs = "".join(path.read_text() for path in doubtful.folder.glob("logs/*.log"))
    assert "<script" in answers, "the engine did send markup"
    assert "\x1b[31m" in logs, "the engine did log escapes"
    page = (doubtful.folder / "report.html").read_text()
    assert "<script>document.title" not in page
    assert plain(page)
    assert plain((doubtful.folder / "report.md").read_text())
    assert plain(doubtful.ended.out + doubtful.ended.err)


def test_nothing_of_any_engine_is_left_running(doubtful: Study) -> None:
    boots = [(boot.pid, boot.pid_started) for boot in records(doubtful.folder).boots if boot.pid]
    assert len(boots) > len(FAULTS)
    until(lambda: not any(living(*boot) for boot in boots))


# ---- engines whose counters are the only source ----------------------------------------------------------------------


def test_acceptance_is_not_claimed_from_counters_that_cannot_be_read(tmp_path: Path) -> None:
    content = plan(
        engine=engine(scale=0.2, args={"per-request-spec-decode-metrics": "none"}),
        candidates=[dict(CANDIDATE), faulty("nan_metrics"), faulty("no_metrics")],
    )
    path, study = write_plan(tmp_path / "plan.yaml", content), tmp_path / "study"
    assert specdyno("run", path, "--out", study).code == 0, "the arm with readable counters is promoted"
    for arm in ("eagle3-k3-2", "eagle3-k3-3"):
        assert candidate_of(study, arm)["decision"] == "hold"
        assert "counters_unreadable" in codes(study, arm, "forbids")
    assert candidate_of(study, PLAIN)["decision"] == "promote"


# ---- doubts that concern every candidate -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"engine": engine(scale=0.05, fault="baseline@baseline_speculates")}, "baseline_speculates"),
        ({"engine": engine(scale=0.02), "workload": workload(extra_body={"ignore_eos": True})}, "forced_length"),
    ],
)
def test_a_doubt_about_the_whole_study_holds_every_candidate(
    tmp_path: Path, changes: dict[str, Any], finding: str
) -> None:
    path, study = write_plan(tmp_path / "plan.yaml", plan(**changes)), tmp_path / "study"
    ended = specdyno("run", path, "--out", study)
    assert ended.code == 20
    found = candidate_of(study, PLAIN)
    assert (found["decision"], found["reason"]) == ("hold", "finding_forbids")
    assert finding in codes(study, PLAIN, "forbids")


def test_a_slower_candidate_is_rejected_with_exit_code_10_and_judged_so_again(tmp_path: Path) -> None:
    truth = {"step_cost": [4.0, 4.0, 4.0], "acceptance": [0.1]}
    path = write_plan(tmp_path / "plan.yaml", plan(engine=engine(scale=0.04, truth=truth)))
    assert specdyno("run", path, "--out", tmp_path / "study").code == 10
    assert specdyno("judge", tmp_path / "study").code == 10


def test_a_huge_gain_in_fewer_than_four_blocks_holds_with_exit_code_20_and_is_judged_so_again(tmp_path: Path) -> None:
    path = write_plan(tmp_path / "plan.yaml", plan(experiment={"looks": [3]}))
    ended = specdyno("run", path, "--out", tmp_path / "study")
    assert ended.code == 20
    found = candidate_of(tmp_path / "study", PLAIN)
    assert found["decision"] == "hold"
    assert found["gates"][0]["ratio"]["estimate"] > 1.3
    assert codes(tmp_path / "study", PLAIN, "forbids") == {"too_few_blocks"}, "the number of blocks alone forbids"
    assert specdyno("judge", tmp_path / "study").code == 20


# ---- engines that do not answer --------------------------------------------------------------------------------------


def test_hanging_streams_end_with_the_request_timeout_and_are_rows(tmp_path: Path) -> None:
    content = plan(
        engine=engine(scale=0.02, request_timeout="1s"),
        candidates=[faulty("hang_stream:0.4"), faulty("hang_stream:1")],
        loads=[{"name": "pool", "concurrency": 4, "window": "1s", "requests": 8}],
        experiment={"looks": [1]},
    )
    path, study = write_plan(tmp_path / "plan.yaml", content), tmp_path / "study"
    ended = specdyno("run", path, "--out", study)
    assert ended.code == 20
    outcomes = {row[0] for row in rows(study, "SELECT outcome FROM request")}
    assert outcomes == {Outcome.FINISHED, Outcome.TIMED_OUT}
    assert "requests_failed" in codes(study, PLAIN, "doubt")
    failed = [boot for boot in records(study).boots if boot.arm == "eagle3-k3-2"]
    assert [boot.status for boot in failed] == [BootStatus.FAILED, BootStatus.FAILED]
    assert "none of the 4 warm-up requests was answered" in failed[0].failure
    assert "4 timed_out" in failed[0].failure


def test_a_baseline_that_cannot_boot_ends_with_3_the_log_and_what_was_measured(tmp_path: Path) -> None:
    path = write_plan(tmp_path / "plan.yaml", plan(engine=engine(fault="baseline@refuse_boot")))
    study = tmp_path / "study"
    ended = specdyno("run", path, "--out", study)
    assert ended.code == 3
    assert "does not appear to have a file named config.json" in ended.text
    assert (study / "report.html").is_file()
    statuses = [(boot.arm, boot.status) for boot in records(study).boots]
    assert statuses.count(("baseline", BootStatus.FAILED)) == 2
    assert json.loads((study / "verdict.json").read_bytes())["outcome"] == "hold"
    assert specdyno("judge", study).code == 20


def test_an_engine_that_never_becomes_ready_ends_with_its_time_limit(tmp_path: Path) -> None:
    content = plan(engine=engine(fault="boot_hang", ready_timeout="1s"))
    path, study = write_plan(tmp_path / "plan.yaml", content), tmp_path / "study"
    ended = specdyno("run", path, "--out", study)
    assert ended.code == 3
    assert "not ready within 1 s" in ended.text
    assert "engine.ready_timeout" in ended.text
    boots = [(boot.pid, boot.pid_started) for boot in records(study).boots if boot.pid]
    until(lambda: not any(living(*boot) for boot in boots))
