"""The program's whole job on real engines: from a plan to a verdict, through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.live import why_not

from specdyno.demo import checkpoints
from specdyno.records.schema import BootStatus, WindowKind
from specdyno.records.store import Store

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

LLAMACPP_PLAN = """
study: live-llamacpp
target: {model: "@target@"}
engine: {kind: llamacpp, args: {ctx-size: 8192, parallel: 4, threads: 1, no-cache-prompt: true}}
candidates:
  - {method: ngram, draft_tokens: [3], options: {spec-ngram-simple-size-n: 3}}
workload:
  sampling: {temperature: 0.0}
  classes:
    - {name: code, prompts: "builtin:code", share: 0.5, max_tokens: 12}
    - {name: chat, prompts: "builtin:chat", share: 0.5, max_tokens: 12}
loads:
  - {name: one, concurrency: 1, window: 10s, requests: 4}
  - {name: four, concurrency: 4, window: 10s, requests: 8}
objectives:
  - {name: interactive, load: one, measure: time_per_job}
  - {name: pool, load: four, measure: jobs_per_s}
experiment: {looks: [4]}
"""


def _specdyno(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "specdyno", *args], capture_output=True, text=True, check=False)


def _measured(study: Path):
    with Store.open(study / "study.sqlite", write=False) as store:
        return store.read_study()


def test_llamacpp_from_plan_to_verdict_in_four_blocks(tmp_path: Path):
    if reason := why_not("llamacpp"):
        pytest.skip(reason)
    plan, study = tmp_path / "plan.yaml", tmp_path / "study"
    plan.write_text(LLAMACPP_PLAN.replace("@target@", str(checkpoints.target_gguf())), encoding="utf-8")
    done = _specdyno("run", str(plan), "--out", str(study))
    assert done.returncode in (0, 10, 20), done.stdout + done.stderr
    records = _measured(study)
    assert [boot.status for boot in records.boots] == [BootStatus.COMPLETE] * 8
    verdict = json.loads((study / "verdict.json").read_text(encoding="utf-8"))
    assert (study / "report.html").stat().st_size > 20_000
    assert f"{study / 'report.html'}".split("/")[-1] in done.stdout
    assert verdict
    scored = [window for window in records.windows if window.kind is WindowKind.MIXED]
    assert len(scored) == 16
    assert all(window.before is not None and window.after is not None for window in scored)


def test_the_vllm_demo_ends_in_an_honest_hold(tmp_path: Path):
    if reason := why_not("vllm"):
        pytest.skip(reason)
    study = tmp_path / "demo"
    done = _specdyno("demo", "--quick", "--out", str(study))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Hold" in done.stdout
    records = _measured(study)
    assert sorted(boot.arm for boot in records.boots) == ["baseline", "eagle3-k1", "eagle3-k3", "ngram-k3"]
    assert {boot.status for boot in records.boots} == {BootStatus.COMPLETE}
    report = json.loads((study / "report.json").read_text(encoding="utf-8"))
    # Arms of a real vLLM differ in consequences of speculation only.
    assert not [row for row in report["analysis"]["settings_differences"] if row[4] is False]
    curves = report["analysis"]["curves"]
    assert {curve["source"] for curve in curves} == {"per-request detailed"}
