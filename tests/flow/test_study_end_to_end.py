"""One whole study of the simulated engine, looked at from every side."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
import yaml
from tests.flow.command_line import Ended, plain, records, rows, specdyno, verdict
from tests.flow.conftest import KEY, Study

from specdyno.plan.schedule import schedule
from specdyno.plan.schema import Plan
from specdyno.records.schema import BootStatus, WindowKind

pytestmark = pytest.mark.timeout(600)  # whole studies on a slow, busy machine

WRITTEN = ("verdict.json", "report.html", "report.md", "report.json")


def test_a_much_faster_candidate_is_promoted_with_exit_code_0(promoted: Study) -> None:
    assert promoted.ended.code == 0, promoted.ended
    assert verdict(promoted.folder)["outcome"] == "promote"
    assert "speed only: answers were not checked" in promoted.ended.text
    assert promoted.ended.out.rstrip().endswith(f"The whole report: {promoted.folder / 'report.html'}")


def test_a_study_holds_the_files_of_the_design_and_the_plan_as_written(promoted: Study) -> None:
    names = {path.name for path in promoted.folder.iterdir()}
    assert {"plan.yaml", "study.sqlite", "logs", *WRITTEN} <= names
    assert (promoted.folder / "plan.yaml").read_bytes() == promoted.plan.read_bytes()
    assert all((promoted.folder / boot.log_path).is_file() for boot in records(promoted.folder).boots)


def test_judge_writes_the_same_bytes_as_run_and_again(promoted: Study, tmp_path: Path) -> None:
    study = promoted.copied(tmp_path)
    first = {name: (promoted.folder / name).read_bytes() for name in WRITTEN}
    for _ in range(2):
        for name in WRITTEN:
            (study / name).unlink()
        judged = specdyno("judge", study)
        assert judged.code == 0
        assert (study / "verdict.json").read_bytes() == first["verdict.json"]
        assert {name: (study / name).read_bytes() for name in WRITTEN} == first


def test_report_writes_the_same_bytes_and_ends_with_0(promoted: Study, tmp_path: Path) -> None:
    study = promoted.copied(tmp_path)
    for name in WRITTEN:
        (study / name).write_text("old")
    ended = specdyno("report", study)
    assert ended.code == 0
    assert all((study / name).read_bytes() == (promoted.folder / name).read_bytes() for name in WRITTEN)


def test_judge_changes_nothing_in_the_records(promoted: Study, tmp_path: Path) -> None:
    study = promoted.copied(tmp_path)
    before = _all_rows(study)
    specdyno("judge", study)
    assert _all_rows(study) == before


def test_resuming_a_settled_study_boots_nothing_and_says_the_same(promoted: Study, tmp_path: Path) -> None:
    study = promoted.copied(tmp_path)
    again = specdyno("run", promoted.plan, "--out", study, "--resume", env={"FLOW_KEY": KEY})
    assert again.code == 0, again
    assert _all_rows(study) == _all_rows(promoted.folder)
    assert (study / "verdict.json").read_bytes() == (promoted.folder / "verdict.json").read_bytes()


def test_export_writes_every_request_in_every_format(promoted: Study, tmp_path: Path) -> None:
    ended = specdyno(
        "export", promoted.folder, "--out", tmp_path, *(f"--format={kind}" for kind in ("csv", "serve", "parquet"))
    )
    assert ended.code == 0, ended
    printed = [Path(line) for line in ended.out.splitlines()]
    assert printed
    assert all(path.is_file() for path in printed)
    wanted = rows(promoted.folder, "SELECT count(*) FROM request")[0][0]
    table = next(path for path in printed if path.suffix == ".csv" and "request" in path.name)
    with table.open(newline="") as file:
        assert sum(1 for _ in csv.DictReader(file)) == wanted
    table = next(path for path in printed if path.suffix == ".parquet" and "request" in path.name)
    assert parquet.read_table(table).num_rows == wanted
    runs = json.loads(next(path for path in printed if path.suffix == ".json").read_bytes())["runs"]
    assert {(run["arm"], run["load"]) for run in runs} >= {("baseline", "pool"), ("eagle3-k3", "interactive")}
    assert all(run["completed"] == run["num_prompts"] > 0 for run in runs)


def test_boots_follow_the_schedule_of_the_plan(promoted: Study) -> None:
    study = records(promoted.folder)
    plan = Plan.model_validate(study.header.plan)
    booted: dict[int, list[str]] = defaultdict(list)
    for boot in sorted(study.boots, key=lambda boot: boot.started_ns):
        assert boot.status is BootStatus.COMPLETE
        assert boot.position == len(booted[boot.block])
        booted[boot.block].append(boot.arm)
    assert {block: tuple(order) for block, order in booted.items()} == {
        block.index: block.order for block in schedule(plan)
    }


def test_all_arms_of_a_block_get_the_same_prompts_in_the_same_order(promoted: Study) -> None:
    asked: dict[int, set[tuple]] = defaultdict(set)
    for (block, _), prompts in _asked(promoted.folder).items():
        asked[block].add(tuple(prompts))
    assert len(asked) == 4
    assert all(len(orders) == 1 for orders in asked.values())
    assert len({next(iter(orders)) for orders in asked.values()}) == 4, "every block draws anew"


def test_no_prompt_is_sent_twice_within_a_boot(promoted: Study) -> None:
    for prompts in _asked(promoted.folder).values():
        assert max(Counter(prompt for _, _, _, prompt in prompts).values()) == 1


def test_the_size_of_the_windows_is_fixed_once(promoted: Study) -> None:
    study = records(promoted.folder)
    assert study.header.sizing["interactive"] == 4
    planned = defaultdict(set)
    for window in study.windows:
        if window.kind is WindowKind.MIXED:
            planned[window.load].add(window.planned)
    assert planned == {load: {size} for load, size in study.header.sizing.items()}


def test_every_arm_ran_as_asked_in_its_own_process(promoted: Study) -> None:
    study = records(promoted.folder)
    arms = {arm.name: arm for arm in Plan.model_validate(study.header.plan).arms()}
    assert len({boot.pid for boot in study.boots}) == len(study.boots)
    for boot in study.boots:
        assert boot.identity is not None
        assert boot.identity.speculation is (arms[boot.arm].method is not None)
        assert boot.identity.draft_tokens == arms[boot.arm].draft_tokens


def test_the_api_key_is_kept_and_shown_nowhere(promoted: Study) -> None:
    assert promoted.ended.code == 0, "the server was asked with its key"
    files = [path for path in promoted.folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    assert KEY not in promoted.ended.out + promoted.ended.err
    assert "Authorization" in next(promoted.folder.glob("logs/*.log")).read_text(), "the server did print one"


@pytest.mark.parametrize("verb", ["judge", "report", "export"])
def test_verbs_on_a_study_need_no_key_and_no_engine(promoted: Study, tmp_path: Path, verb: str) -> None:
    assert specdyno(verb, promoted.copied(tmp_path)).code == 0


def test_a_study_can_be_moved(promoted: Study, tmp_path: Path) -> None:
    moved = promoted.copied(tmp_path).rename(tmp_path / "elsewhere")
    assert specdyno("judge", ".", cwd=moved).code == 0
    assert (moved / "verdict.json").read_bytes() == (promoted.folder / "verdict.json").read_bytes()


def test_a_plan_saved_with_the_study_is_that_study_s_plan(promoted: Study, tmp_path: Path) -> None:
    study = promoted.copied(tmp_path)
    again = specdyno("run", study / "plan.yaml", "--out", study, "--resume", env={"FLOW_KEY": KEY})
    assert again.code == 0, again


def test_another_plan_cannot_go_on_with_a_study(promoted: Study, tmp_path: Path) -> None:
    study = promoted.copied(tmp_path)
    other = yaml.safe_load(promoted.plan.read_text()) | {"seed": 4}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(other))
    ended = _untouched(study, "run", tmp_path / "other.yaml", "--out", study, "--resume")
    assert ended.code == 4
    assert "another plan" in ended.text
    assert "seed" in ended.text


def test_a_study_is_not_begun_again_without_resume(promoted: Study, tmp_path: Path) -> None:
    study = promoted.copied(tmp_path)
    ended = _untouched(study, "run", promoted.plan, "--out", study)
    assert ended.code == 4
    assert "--resume" in ended.text


def _untouched(study: Path, *words: object) -> Ended:
    before = _all_rows(study), (study / "verdict.json").read_bytes()
    ended = specdyno(*words, env={"FLOW_KEY": KEY})
    assert (_all_rows(study), (study / "verdict.json").read_bytes()) == before
    return ended


def _asked(study: Path) -> dict[tuple[int, str], list[tuple]]:
    """(block, arm) -> (load, kind, class of the window, prompt) in the order of the lists."""
    found: dict[tuple[int, str], list[tuple]] = defaultdict(list)
    for block, arm, *prompt in rows(
        study,
        "SELECT block, arm, load, kind, window.class_name, prompt_id FROM request"
        " JOIN window ON window.id = window_id JOIN boot ON boot.id = boot_id ORDER BY window.id, list_index",
    ):
        found[block, arm].append(tuple(prompt))
    return found


def _all_rows(study: Path) -> dict[str, list[tuple]]:
    tables = ("study", "boot", "window", "request", "answer", "counter_sample", "finding")
    return {table: rows(study, f"SELECT * FROM {table}") for table in tables}


def test_the_output_is_plain_where_it_is_no_terminal(promoted: Study) -> None:
    assert plain(promoted.ended.out + promoted.ended.err)
