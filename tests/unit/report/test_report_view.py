import dataclasses
from dataclasses import replace

import pytest
from tests.simulation.generator import make_study
from tests.unit.report.hand_made_study import HOSTILE, hostile, study

from specdyno.records.schema import Finding, FindingCode, Severity
from specdyno.report import view
from specdyno.verdict.decide import judge


def texts(value):
    """Every string anywhere in a view."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from texts(part)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from texts(getattr(value, field.name))


@pytest.fixture(scope="module")
def shown():
    return view.build(*study())


def test_deciding_rows_carry_the_gates_own_interval(shown):
    group = shown.speed_decides[0]
    assert (group.decides, group.minimum_gain, group.level) == (True, 0.05, "98.27 % interval")
    row = next(row for row in group.rows if row.mark.arm == "eagle3-k1")
    assert (row.change, row.interval, row.decision) == ("+11.8 %", "+6.3 % to +17.5 %", "promote")


def test_every_class_and_load_is_explored_and_never_decides(shown):
    assert {(group.load, group.class_name) for group in shown.speed_explores} == {
        (load, name) for load in ("interactive", "pool") for name in ("code", "chat", "tools")
    }
    assert not any(group.decides for group in shown.speed_explores)


def test_an_undefined_cell_shows_its_reason(shown):
    tools = next(group for group in shown.speed_explores if (group.load, group.class_name) == ("pool", "tools"))
    row = next(row for row in tools.rows if row.mark.arm == "ngram-k3")
    assert row.change == "not measured (fewer than two blocks with this class)"
    assert (row.times, row.interval, row.units) == ("", "", "")


def test_a_method_looks_the_same_in_every_chart(shown):
    styles = {}
    rows = [row for group in (*shown.speed_decides, *shown.speed_explores) for row in group.rows]
    lines = [line for panel in shown.curves for line in panel.lines]
    for mark in (part.mark for part in (*rows, *lines, *shown.explained)):
        assert styles.setdefault(mark.method, (mark.style, mark.shape)) == (mark.style, mark.shape)
    assert len(set(styles.values())) == 2


def test_findings_are_grouped_and_the_gravest_comes_first():
    busy = [Finding(FindingCode.HOST_BUSY, Severity.DOUBT, f"block {i}") for i in (1, 2, 1)]
    forbids = Finding(FindingCode.FOREIGN_TRAFFIC, Severity.FORBIDS, "block 3", "12 tokens")
    shown = view.findings([*busy, forbids])
    assert [one.severity for one in shown] == ["forbids", "doubt"]
    assert shown[0].places == ("block 3: 12 tokens",)
    assert shown[1].places == ("block 1", "block 2")


def test_the_step_cost_is_tokens_per_step_over_speed_up(shown):
    row = next(row for row in shown.explained if (row.mark.arm, row.load) == ("eagle3-k1", "interactive"))
    assert row.cost_text == f"{row.tokens_per_step.estimate / row.speed_up.estimate:.2f}"


def test_the_plan_shows_every_value_and_where_it_comes_from(shown):
    rows = {row[0].text: (row[1].text, row[2].text) for row in shown.plan.rows}
    assert rows["seed"] == ("1", "default")
    assert rows["candidates[0].draft_tokens"] == ("1, 3, 5", "plan")
    assert rows["experiment.looks"] == ("4, 6, 8, 12", "default")
    assert rows["workload.classes[1].max_tokens"] == ("96", "plan")


def test_a_boot_that_failed_is_shown_with_its_reason(shown):
    failed = [row for row in shown.boots.rows if row[4].text == "failed"]
    assert [row[-1].text for row in failed] == ["the engine died: out of memory"]
    assert shown.blocks[-1].state == "incomplete"


def test_nothing_shown_is_nan_or_none_or_a_control_character():
    for said in texts(view.build(*hostile())):
        assert "nan" not in said.lower().split()
        assert said != "None"
        assert said.isprintable(), said


def test_markup_from_outside_stays_text_and_loses_its_control_characters():
    said = list(texts(view.build(*hostile())))
    assert not any(HOSTILE in one for one in said)
    assert any("<script>alert(1)</script>" in one for one in said)


def test_a_load_without_an_objective_is_shown_and_decides_nothing():
    records, analysis, verdict = study()
    shown = view.build(records, analysis, replace(verdict, objectives=verdict.objectives[:1]))
    pool = [group for group in shown.speed_decides if group.load == "pool"]
    assert [group.decides for group in pool] == [False]
    assert all(row.decision is None for row in pool[0].rows)


def test_a_judged_study_can_be_shown_whole():
    records = make_study(blocks=4)
    shown = view.build(records, *judge(records))
    assert [part.decision for part in shown.objectives] == ["promote", "promote"]
    assert {panel.load for panel in shown.throughput} == {"interactive", "pool"}
    assert all(row.cost_text != "not measured" for row in shown.explained)


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_study_that_has_hardly_begun_is_shown_as_a_hold(blocks):
    records = make_study(blocks=blocks)
    shown = view.build(records, *judge(records))
    assert {part.decision for part in shown.objectives} == {"hold"}
    assert "first look is at 4" in shown.objectives[0].headline
