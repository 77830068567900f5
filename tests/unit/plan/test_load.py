"""Ways to arrive: exactly one per load, ladders as rungs, and what goes with which measure and class."""

from __future__ import annotations

import pytest

from specdyno.errors import PlanError
from specdyno.plan import parse

PLAN = """
study: arrivals
target: {{model: org/model}}
engine: {{kind: simulated}}
candidates: [{{method: ngram, draft_tokens: [3]}}]
workload:
  sampling: {{temperature: 0.0}}
  classes: [{classes}]
loads: [{load}]
objectives: [{objective}]
"""
CODE = "{name: code, prompts: builtin:code, share: 1, max_tokens: 64}"
AGENT = "{name: agent, sessions: builtin:agent, share: 1, max_tokens: 64}"


def plan(load: str, *, objective: str = "", classes: str = CODE):
    objective = objective or "{name: o, load: x, measure: jobs_per_s}"
    text = PLAN.format(classes=classes, load=f"{{name: x, window: 10s, {load}}}", objective=objective)
    return parse.parse(text)


def refused(*args, **kwargs) -> str:
    with pytest.raises(PlanError) as caught:
        plan(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize(
    "load",
    ["concurrency: 4", "rate: 2.5", "rate: 2, burstiness: 0.5", "rate: 4, ramp_from: 1", "trace: a.csv",
     "trace: a.csv, rate: 3"],
)  # fmt: skip
def test_each_way_to_arrive_is_a_load(load):
    assert plan(load).measured_loads[0].name == "x"


def test_a_ladder_is_one_closed_loop_per_rung():
    read = plan("ladder: [1, 2, 8], requests: 40", objective="{name: o, load: x@8, measure: jobs_per_s}")
    assert [(load.name, load.concurrency, load.requests) for load in read.measured_loads] == [
        ("x@1", 1, 40), ("x@2", 2, 40), ("x@8", 8, 40),
    ]  # fmt: skip
    assert read.load("x@2").in_flight == 2


def test_an_objective_names_a_rung_not_the_ladder():
    message = refused("ladder: [1, 8]")
    assert '"x" is a ladder' in message
    assert "x@1, x@8" in message


@pytest.mark.parametrize(
    ("load", "says"),
    [
        ("requests: 3", "does not say how requests arrive"),
        ("concurrency: 2, rate: 3", "says concurrency and rate"),
        ("trace: a, concurrency: 1", "says concurrency and trace"),
        ("ladder: [4, 2]", "does not rise"),
        ("rates: [3, 1]", "is no range of rates"),
        ("ramp_from: 1, concurrency: 2", "without a rate to go to"),
        ("rate: 2, class_windows: true", "needs a closed loop"),
    ],
)
def test_what_contradicts_itself_is_refused_with_the_reason(load, says):
    assert says in refused(load)


def test_sessions_need_a_class_of_sessions_and_the_other_way_round():
    assert plan("sessions: 2", classes=AGENT).measured_loads[0].in_flight == 2
    assert "no class holds sessions" in refused("sessions: 2")
    assert "no load asks this class" in refused("concurrency: 2", classes=AGENT)
    assert "prompts or sessions" in refused("concurrency: 2", classes="{name: c, share: 1, max_tokens: 4}")


def test_shares_add_up_among_classes_of_the_same_kind():
    half = CODE.replace("share: 1", "share: 0.5")
    assert "classes with prompts add up to 0.5" in refused("concurrency: 2", classes=f"{half}, {AGENT}")


@pytest.mark.parametrize(
    ("load", "measure", "says"),
    [
        ("rate: 3", "goodput", "counts requests that meet a service level"),
        ("rates: [1, 4]", "jobs_per_s", "do not go together"),
        ("rate: 3", "largest_rate, service_level: {ttft: 1s}", "do not go together"),
        ("rate: 3", "sessions_per_h", "replays no sessions"),
    ],
)
def test_a_measure_needs_its_load_and_its_level(load, measure, says):
    assert says in refused(load, objective=f"{{name: o, load: x, measure: {measure}}}")


def test_the_service_level_of_a_load_is_its_objectives():
    objective = "{name: o, load: x, measure: goodput, service_level: {ttft: 500ms, tpot: 50ms}}"
    level = plan("rate: 3", objective=objective).service_level("x")
    assert (level.ttft, level.tpot, level.e2el) == (0.5, 0.05, None)
    assert plan("rate: 3").service_level("x").empty


def test_a_warm_up_asks_no_more_than_its_window():
    assert plan("rate: 200").load("x").in_flight == 64
    assert plan("rate: 200, requests: 24").load("x").in_flight == 24
    assert plan("rate: 2, requests: 24").load("x").in_flight == 2
    assert plan("concurrency: 4, requests: 2").load("x").in_flight == 4
