"""`settings`: flags that can be pasted where a study promotes, nothing to deploy where it does not."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.flow.command_line import engine, plan, specdyno, write_plan
from tests.flow.conftest import KEY, Study


@pytest.mark.parametrize("columns", ["40", "200"])
def test_a_promote_becomes_the_flags_that_started_its_arm(promoted: Study, columns: str) -> None:
    ended = specdyno("settings", promoted.folder, env={"COLUMNS": columns})
    assert ended.code == 0, ended
    lines = [line.strip() for line in ended.out.splitlines()]
    flags = [shlex.split(line) for line in lines if line.startswith("--")]
    assert len(flags) == 2, ended.out  # one per objective
    for name, value, *others in flags:
        assert not others
        assert name == "--speculative-config"
        assert json.loads(value)["method"] == "eagle3"
        assert json.loads(value)["num_speculative_tokens"] in (1, 3)
    assert KEY not in ended.text


def test_the_json_form_names_arm_classes_and_flags(promoted: Study) -> None:
    ended = specdyno("settings", promoted.folder, "--json")
    verdict = json.loads((promoted.folder / "verdict.json").read_text())
    told = {entry["objective"]: entry for entry in json.loads(ended.out)}
    for objective in verdict["objectives"]:
        entry = told[objective["objective"]]
        assert entry["decision"] == "promote"
        assert entry["arm"] == objective["recommended"]
        k = json.loads(entry["flags"][1])["num_speculative_tokens"]
        assert entry["arm"] == f"eagle3-k{k}"
        assert entry["without_speculation"] == []


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_not_promoted_is_not_deployed(tmp_path: Path, *, as_json: bool) -> None:
    path = write_plan(tmp_path / "plan.yaml", plan(engine=engine(), experiment={"looks": [1]}))
    assert specdyno("run", path, "--out", tmp_path / "study").code == 20
    ended = specdyno("settings", tmp_path / "study", *(["--json"] if as_json else []))
    assert ended.code == 0, ended
    assert "--speculative-config" not in ended.text
    if as_json:
        assert [entry["flags"] for entry in json.loads(ended.out)] == [None]
    else:
        assert "Deploy nothing" in ended.text


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    ended = specdyno("settings", tmp_path)
    assert ended.code == 4
    assert "no study" in ended.text
