"""What `check`, `measure` and `read` show: every fact named, nothing invented, no engine's text taken as markup."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from tests.unit.report import hand_made_study

from specdyno import flow, screens
from specdyno.engine.reading import detect
from specdyno.engine.reading.schema import Reading
from specdyno.records.schema import Identity

CASES = Path(__file__).parents[1] / "data" / "cases"
PLAN = """
study: screens
target: {model: sim/model}
engine: {kind: simulated}
candidates: [{method: eagle3, draft: "org/[red]draft", draft_tokens: [1, 3]}]
workload:
  sampling: {temperature: 0.0}
  classes: [{name: code, prompts: "builtin:code", share: 1, max_tokens: 16}]
loads: [{name: one, concurrency: 1, window: 10s@REQUESTS@}]
objectives: [{name: one, load: one, measure: time_per_job}]
experiment: {looks: @LOOKS@}
budget: {time: 10s}
"""


def shown(part: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=240, color_system=None)
    console.print(part)
    return console.file.getvalue()


@pytest.fixture
def check(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 1.0)

    def run(looks: str = "[4, 6]", requests: str = "") -> str:
        (tmp_path / "plan.yaml").write_text(PLAN.replace("@LOOKS@", looks).replace("@REQUESTS@", requests))
        return shown(screens.checked(flow.check(tmp_path / "plan.yaml")))

    return run


def test_check_shows_arms_schedule_time_gain_prompts_and_all_values(check):
    text = check()
    for word in ("Arms", "Schedule", "Time", "What it can see", "Prompts", "Values in force"):
        assert word in text
    assert "org/[red]draft" in text  # a name is no markup
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "baseline none" in lines
    assert "eagle3-k3 eagle3 3 org/[red]draft" in lines
    assert sum(" → " in line for line in lines) == 6
    assert "ends before the first look: this plan can only hold" in text
    assert "(level 9" in text
    assert any(line.startswith("workload.sampling.temperature 0") and "·" not in line for line in lines)
    assert any(line.startswith("seed 1") and line.endswith("·") for line in lines)


def test_check_says_where_windows_are_sized_later(check):
    assert "windows sized after the first warm-up" in check()
    assert "windows sized after" not in check(requests=", requests: 5")


def test_check_says_that_few_blocks_cannot_promote(check):
    assert "fewer than four blocks never promote" in check("[2]")
    assert "fewer than four blocks never promote" not in check("[2, 4]")


def test_check_promises_no_interval_of_a_single_block(check):
    assert "one block gives no interval" in check("[1]")
    assert "at 1 blocks" not in check("[1, 4]")
    assert "to either side at 4 blocks" in check("[1, 4]")


def measured(**identity) -> str:
    records = hand_made_study.records()
    last = replace(records.boots[-1], identity=Identity(engine="vllm", version="0.32.0", **identity))
    return shown(screens.measured(replace(records, boots=(*records.boots[:-1], last)), hand_made_study.analysis()))


def test_measure_shows_acceptance_and_latency_and_is_no_verdict():
    text = measured(speculation=True, method="eagle3", draft_tokens=3)
    assert text.startswith("vllm 0.32.0, method eagle3, K 3")
    for word in ("Acceptance", "mean length", "q1", "Latency and throughput", "no verdict"):
        assert word in text
    assert "[" in text  # intervals


def test_measure_says_what_the_server_does_not_report():
    assert measured(speculation=None).startswith("vllm 0.32.0, method not reported, K not reported")
    assert measured(speculation=False).startswith("vllm 0.32.0, no speculation")


def test_measure_without_drafts_has_no_acceptance():
    analysis = replace(hand_made_study.analysis(), curves=())
    text = shown(screens.measured(hand_made_study.records(), analysis))
    assert "Acceptance: not measured" in text


def test_a_reading_shows_what_was_read_and_nothing_else():
    part = Reading(kind="vllm_log", label="rank 1\x1b[2J", steps=10.0, mean_accepted_length=1.0)
    found = Reading(
        kind="vllm_log",
        source="[bold]log",
        steps=1234.0,
        draft_tokens=3702.0,
        accepted_tokens=0.0,
        draft_tokens_k=3,
        acceptance_rate=0.0,
        joint={0: 0.5, 2: 0.25},
        active=False,
        estimated=True,
        length_range=(1.5, 2.0),
        notes=("a note",),
        problems=("a [doubt]",),
        parts=(part,),
    )
    text = shown(screens.reading(found))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0].endswith("(estimated)")
    assert "source [bold]log" in lines
    assert "drafted steps 1,234" in lines
    assert "accepted tokens 0" in lines
    assert "joint acceptance by position 1: 0.500, 3: 0.250" in lines
    assert "speculation active no" in lines
    assert "range of mean lengths 1.50 to 2.00" in lines
    assert {"a note", "a [doubt]"} <= set(lines)
    assert not any(line.startswith("tokens per step") for line in lines)
    assert "\x1b" not in text
    assert any("rank 1" in line for line in lines)


@pytest.mark.parametrize("path", sorted(CASES.iterdir()), ids=lambda path: path.name)
def test_every_recorded_text_can_be_shown(path):
    text = shown(screens.reading(detect.read(path.read_text(encoding="utf-8"))))
    assert text.strip()
    assert "None" not in text
    assert "nan" not in text.lower().split()
