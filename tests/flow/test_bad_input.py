"""Bad input: one clear message that says what, where and what to do, the right exit code, and nothing overwritten."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.flow.command_line import Ended, engine, plan, specdyno, write_plan
from tests.flow.conftest import KEY, Study

pytestmark = pytest.mark.timeout(600)  # whole studies on a slow, busy machine

TWENTY_MISTAKES = """\
study: ""
sed: 3
seed: -4
target: {modle: org/m}
engine:
  kind: vlm
  args: {--max-num-seqs: 32, x: [1, 2]}
  env: {A: true}
  ready_timeout: 20
  request_timeout: 20 min
  api_key_env: sk-123
candidates:
  - {method: ngram, draft: org/x, draft_tokens: three}
  - {method: eagle3, draft_tokens: [1, 500, 2.5]}
  - {method: eagel, draft_tokens: []}
  - text
workload:
  sampling: {temperature: .nan, stop: "x", extra_body: {model: a}}
  classes:
    - {name: code, prompts: builtin:code, share: 50, max_tokens: 256}
    - {name: code, prompts: "", share: 0.5, max_tokens: -1}
loads:
  - {name: interactive, concurrency: 0, window: 20s}
objectives:
  - {name: o, load: pool, measure: speed, minimum_gain: 5%}
guards: {tpot: 5 percent}
experiment: {looks: [4, 3], a_a: "yes"}
budget: 2h
"""


def refused(ended: Ended, code: int, *words: str) -> None:
    """The exit code, every word in the message, and a message that is short enough to be read."""
    assert ended.code == code, ended
    for word in words:
        assert word in ended.text, ended
    assert ended.err.strip()


def run(tmp_path: Path, content: dict[str, Any]) -> Ended:
    return specdyno("run", write_plan(tmp_path / "plan.yaml", content), "--out", tmp_path / "study")


# ---- plans -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["check", "run"])
def test_a_plan_with_twenty_mistakes_shows_them_all_at_once(tmp_path: Path, verb: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(TWENTY_MISTAKES)
    ended = specdyno(verb, path, *(["--out", tmp_path / "study"] if verb == "run" else []))
    refused(ended, 2, str(path), "problems")
    for place in (
        "study", "sed", "seed", "target.modle", "target.model", "engine.kind", "engine.args.x", "engine.env.A",
        "engine.ready_timeout", "engine.request_timeout", "engine.api_key_env", "candidates[0].draft_tokens",
        "candidates[1].draft_tokens", "candidates[2].method", "candidates[3]", "workload.sampling.temperature",
        "workload.classes[1].prompts", "workload.classes[1].max_tokens", "loads[0].concurrency",
        "objectives[0].measure", "guards.tpot", "experiment.a_a", "budget",
    ):  # fmt: skip
        assert f" {place}" in ended.text, place
    assert "line 2:" in ended.text
    assert "seed" in ended.text, "the nearest known name"
    assert "sk-123" not in ended.text
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"study: [", "line 1"),
        (b"- just\n- a list\n", "mapping"),
        (b"\xff\xfe\x00s\x00t", "UTF-8"),
        (b"study: a\nstudy: b\n", "twice"),
        (b"&a [*a]", "line 1"),
        (b"[" * 5000, "plan.yaml"),
        (b"study: " + b"{a: " * 3000, "plan.yaml"),
    ],
)
def test_a_plan_that_is_no_plan_is_refused_in_words(tmp_path: Path, content: bytes, word: str) -> None:
    (tmp_path / "plan.yaml").write_bytes(content)
    refused(specdyno("check", tmp_path / "plan.yaml"), 2, str(tmp_path / "plan.yaml"), word)


@pytest.mark.parametrize("verb", ["check", "run"])
def test_a_missing_plan_names_the_file_and_how_to_make_one(tmp_path: Path, verb: str) -> None:
    words = ["--out", tmp_path / "study"] if verb == "run" else []
    refused(specdyno(verb, tmp_path / "none.yaml", *words), 2, str(tmp_path / "none.yaml"), "specdyno init")
    refused(specdyno(verb, tmp_path, *words), 2, "directory")
    assert not (tmp_path / "study").exists()


def test_an_empty_prompt_file_is_named_with_its_class(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text("")
    content = plan()
    content["workload"]["classes"][0]["prompts"] = "mine.jsonl"
    refused(run(tmp_path, content), 2, "mine.jsonl", "workload.classes[0]")
    assert not (tmp_path / "study").exists()


def test_a_missing_prompt_file_and_an_unknown_builtin_are_named(tmp_path: Path) -> None:
    content = plan()
    content["workload"]["classes"][0]["prompts"] = "none.jsonl"
    content["workload"]["classes"][1]["prompts"] = "builtin:chatt"
    refused(run(tmp_path, content), 2, "none.jsonl", "builtin:chatt", "builtin:chat", "2 problems")


def test_more_requests_than_prompts_are_refused_before_anything_is_booted(tmp_path: Path) -> None:
    content = plan(loads=[{"name": "pool", "concurrency": 2, "window": "1s", "requests": 5000}])
    refused(run(tmp_path, content), 2, "one boot needs", "twice")
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(("kind", "model"), [("vllm", "/nowhere/model"), ("llamacpp", "./none.gguf")])
def test_a_model_path_that_is_not_there_is_a_plan_error(tmp_path: Path, kind: str, model: str) -> None:
    content = plan(engine={"kind": kind, "command": ["{python}"]}, target={"model": model})
    content["candidates"] = [{"method": "ngram", "draft_tokens": [3]}]
    refused(run(tmp_path, content), 2, "target.model", model, "does not exist")


def test_a_key_that_is_not_set_is_named_by_its_variable(tmp_path: Path) -> None:
    refused(run(tmp_path, plan(engine=engine(api_key_env="NO_SUCH_KEY"))), 2, "NO_SUCH_KEY", "export NO_SUCH_KEY=")


def test_a_flag_that_specdyno_sets_itself_is_refused(tmp_path: Path) -> None:
    refused(run(tmp_path, plan(engine=engine(args={"model": "other"}))), 2, "engine.args.model", "target.model")


# ---- engines ---------------------------------------------------------------------------------------------------------


def test_a_missing_engine_is_named_before_a_study_is_made(tmp_path: Path) -> None:
    refused(run(tmp_path, plan(engine=engine(command=["no-such-engine"]))), 3, "no-such-engine", "engine.command")
    assert not (tmp_path / "study").exists()


def test_a_taken_port_is_named_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(run(tmp_path, plan(engine=engine(args={"port": port}))), 3, f"port {port}", "taken", "engine.args.port")


def test_a_flag_that_the_engine_does_not_know_shows_the_engine_s_own_words(tmp_path: Path) -> None:
    ended = run(tmp_path, plan(engine=engine(args={"no-such-flag": True})))
    refused(ended, 3, "unrecognized arguments: --no-such-flag", "engine.args")


# ---- studies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["judge", "report", "export"])
def test_a_folder_that_is_no_study_is_refused(tmp_path: Path, verb: str) -> None:
    refused(specdyno(verb, tmp_path / "none"), 4, str(tmp_path / "none"))
    refused(specdyno(verb, tmp_path), 4, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_changed_prompts_cannot_go_on_with_a_study(tmp_path: Path) -> None:
    prompts = [{"prompt": f"Write function number {number} of the program."} for number in range(20)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    content = plan(experiment={"looks": [1]})
    content["workload"]["classes"][0]["prompts"] = "mine.jsonl"
    assert run(tmp_path, content).code == 20
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, prompts[1:])))
    ended = specdyno("run", tmp_path / "plan.yaml", "--out", tmp_path / "study", "--resume")
    refused(ended, 4, "prompts", "changed", "--out")


def test_a_study_of_a_newer_specdyno_is_left_as_it_is(promoted: Study, tmp_path: Path) -> None:
    study = promoted.copied(tmp_path)
    with closing(sqlite3.connect(study / "study.sqlite")) as database, database:
        database.execute("PRAGMA user_version = 99")
    _left_as_it_is(promoted, study, "newer")


def test_a_foreign_database_is_left_as_it_is(promoted: Study, tmp_path: Path) -> None:
    study = promoted.copied(tmp_path)
    (study / "study.sqlite").unlink()
    with closing(sqlite3.connect(study / "study.sqlite")) as database, database:
        database.execute("CREATE TABLE diary (day TEXT)")
    _left_as_it_is(promoted, study, "study.sqlite")


def test_a_file_that_is_no_database_is_left_as_it_is(promoted: Study, tmp_path: Path) -> None:
    study = promoted.copied(tmp_path)
    (study / "study.sqlite").write_bytes(b"dear diary, " * 100)
    _left_as_it_is(promoted, study, "study.sqlite")


def _left_as_it_is(promoted: Study, study: Path, word: str) -> None:
    before = (study / "study.sqlite").read_bytes()
    for words in (("judge", study), ("run", promoted.plan, "--out", study, "--resume")):
        refused(specdyno(*words, env={"FLOW_KEY": KEY}), 4, str(study), word)
        assert (study / "study.sqlite").read_bytes() == before


def test_an_out_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study").write_text("a file")
    refused(run(tmp_path, plan()), 4, str(tmp_path / "study"), "--out")
    assert (tmp_path / "study").read_text() == "a file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere: a read-only folder refuses nobody here")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    ended = specdyno("run", write_plan(tmp_path / "plan.yaml"), "--out", tmp_path / "locked" / "study")
    refused(ended, 4, "locked", "--out")


# ---- usage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["bogus"], "bogus"),
        (["run"], "PLAN"),
        (["run", "plan.yaml"], "--out"),
        (["check", "plan.yaml", "--bogus"], "--bogus"),
        (["export", "study", "--format", "xls"], "xls"),
        (["measure"], "--base-url"),
        (["init", "--engine", "ollama"], "ollama"),
        (["demo", "--engine", "simulated"], "real engine"),
    ],
)
def test_wrong_usage_ends_with_2_and_names_what_is_wrong(tmp_path: Path, words: list[str], told: str) -> None:
    refused(specdyno(*words, cwd=tmp_path), 2, told)
    assert list(tmp_path.iterdir()) == []


def test_check_names_the_rows_of_a_prompt_file_that_cannot_be_used_and_where_all_of_them_are_named(
    tmp_path: Path,
) -> None:
    good = [json.dumps({"prompt": f"say {n}"}) for n in range(40)]
    bad = ['{"prompt": ""}'] * 7 + ["[1]", '{"prompt": 3}']
    (tmp_path / "code.jsonl").write_text("\n".join([*bad, *good]))
    content = plan()
    content["workload"]["classes"][0]["prompts"] = "code.jsonl"
    ended = specdyno("check", write_plan(tmp_path / "plan.yaml", content))
    assert ended.code == 0, ended
    assert "class code, lines 1, 2, 3, 4, 5 and 2 more: `prompt` is empty" in ended.text
    assert "class code, line 8: is a list, not a JSON object" in ended.text
    assert "class code, line 9: `prompt` is a number, not text" in ended.text
    assert "class code: 2 more rows cannot be used; specdyno workload inspect FILE names them" in ended.text
    ended = specdyno("workload", "inspect", tmp_path / "code.jsonl")
    assert "lines 1, 2, 3, 4, 5, 6, 7" in ended.text


def test_requests_that_the_engine_refuses_are_rows_and_a_finding_with_their_class_and_its_words(tmp_path: Path) -> None:
    ended = run(tmp_path, plan(engine=engine(fault="http_400:0.4"), experiment={"looks": [1]}))
    assert ended.code == 20, ended
    verdict = json.loads((tmp_path / "study" / "verdict.json").read_bytes())
    details = [one["detail"] for one in verdict["findings"] if one["code"] == "requests_failed"]
    assert details
    for detail in details:
        assert "HTTP 400: refused on purpose" in detail
        assert "class code" in detail or "class chat" in detail
