"""What makes a plan impossible on this host is told before anything is booted, all at once."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from specdyno.errors import EngineError, PlanError, RecordError
from specdyno.plan import parse
from specdyno.preflight import host

PLAN = """
study: s
target: {{model: "{model}"}}
engine: {{kind: {kind}{engine}}}
candidates: [{{method: eagle3, draft: "{draft}", draft_tokens: [2]}}]
workload:
  sampling: {{temperature: 0.0}}
  classes: [{{name: code, prompts: "builtin:code", share: 1, max_tokens: 16}}]
loads: [{{name: one, concurrency: 2, window: 1s}}]
objectives: [{{name: one, load: one, measure: time_per_job}}]
"""


@pytest.fixture(autouse=True)
def _idle(monkeypatch):
    monkeypatch.setattr(host.psutil, "cpu_percent", lambda interval: 3.0)


def check(tmp_path, *, model="org/model", draft="org/draft", kind="vllm", engine="", argv0=sys.executable) -> list[str]:
    plan = parse.parse(PLAN.format(model=model, draft=draft, kind=kind, engine=engine))
    return host.check(plan, study=tmp_path / "not" / "there" / "yet", argv0=argv0)


def problems(tmp_path, **keys) -> list[str]:
    with pytest.raises(PlanError) as caught:
        check(tmp_path, **keys)
    return [problem.place for problem in caught.value.problems]


def test_an_idle_host_with_all_it_needs_has_nothing_to_say(tmp_path):
    assert check(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_local_files_that_are_missing_are_told_together(tmp_path):
    assert problems(tmp_path, model="/no/such/model", draft="./no-draft") == ["target.model", "candidates[0].draft"]
    assert problems(tmp_path, model="missing.gguf") == ["target.model"]


def test_files_that_are_there_and_names_on_a_hub_are_fine(tmp_path):
    (tmp_path / "model.gguf").touch()
    assert check(tmp_path, model=str(tmp_path / "model.gguf")) == []


def test_the_simulated_engine_needs_no_files(tmp_path):
    assert check(tmp_path, model="/no/such/model", kind="simulated") == []


@pytest.mark.parametrize("value", [None, "", "  "])
def test_an_api_key_that_is_not_set_is_told(tmp_path, monkeypatch, value):
    monkeypatch.delenv("MY_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    assert problems(tmp_path, engine=", api_key_env: MY_KEY") == ["engine.api_key_env"]
    monkeypatch.setenv("MY_KEY", "k")
    assert check(tmp_path, engine=", api_key_env: MY_KEY") == []


@pytest.mark.parametrize("name", ["VLLM_API_KEY", "HF_TOKEN", "my_secret", "DB_PASSWORD"])
def test_a_secret_written_into_the_plan_is_refused_without_repeating_it(tmp_path, name):
    with pytest.raises(PlanError) as caught:
        check(tmp_path, engine=f", env: {{{name}: sk-123}}")
    assert name in str(caught.value)
    assert "sk-123" not in str(caught.value)


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "VLLM_CPU_KVCACHE_SPACE", "KEYBOARD"])
def test_other_variables_of_the_plan_are_fine(tmp_path, name):
    assert check(tmp_path, engine=f', env: {{{name}: "1"}}') == []


def test_an_engine_that_is_not_installed_is_told(tmp_path):
    with pytest.raises(EngineError, match='cannot start "no-such-engine"') as caught:
        check(tmp_path, argv0="no-such-engine")
    assert "engine.command" in caught.value.remedy


def test_too_little_space_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(host.shutil, "disk_usage", lambda _path: SimpleNamespace(free=50_000_000))
    with pytest.raises(RecordError, match=f"{tmp_path}: 50 MB free"):
        check(tmp_path)


def test_a_busy_host_is_remarked(tmp_path, monkeypatch):
    monkeypatch.setattr(host.psutil, "cpu_percent", lambda interval: 80.0)
    (remark,) = check(tmp_path)
    assert "80% busy" in remark
