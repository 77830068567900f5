import dataclasses
from dataclasses import replace

import pytest
from tests.simulation.generator import DEFAULT_PLAN, Truth, make_study
from tests.unit.report.hand_made_study import HOSTILE, analysis, hostile, study, verdict

from specdyno.records.schema import Finding, FindingCode, Severity
from specdyno.report import headlines, view
from specdyno.report.precision import power_panels, tables
from specdyno.statistics.analysis import NoiseBudget
from specdyno.verdict.decide import decide, judge
from specdyno.verdict.schema import Decision, PowerPoint, Reason

SCOPED = {
    **DEFAULT_PLAN,
    "candidates": [{"method": "ngram", "draft_tokens": [3]}],
    "loads": [DEFAULT_PLAN["loads"][1]],
    "objectives": [DEFAULT_PLAN["objectives"][1]],
    "experiment": {"looks": [4]},
}


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


def test_the_power_curve_is_read_off_at_eight_of_ten_studies():
    part = replace(
        verdict().objectives[0],
        power=(PowerPoint(0.05, 0.025, 11.9), PowerPoint(0.07, 0.79, 9.0), PowerPoint(0.08, 0.95, 7.25)),
    )
    panels = power_panels(replace(verdict(), objectives=(part, verdict().objectives[1])))
    assert [panel.title for panel in panels] == ["interactive"]
    assert panels[0].says == ("A true gain of +8.0 % is promoted in 95 % of such studies, after 7.2 blocks on average.")
    weak = replace(part, power=part.power[:2])
    assert "No gain on this curve" in power_panels(replace(verdict(), objectives=(weak,)))[0].says


def test_spread_that_windows_explain_whole_is_not_called_zero_restarts():
    noise = (
        NoiseBudget("eagle3-k3", "pool", "jobs_per_s", 0.02, 0.01, 0.03, None),
        NoiseBudget("eagle3-k3", "interactive", "time_per_job", 0.02, 0.01, 0.005, 0.0194),
    )
    shown = tables(replace(analysis(), noise=noise), verdict())[0]
    assert [[cell.text for cell in row][3:] for row in shown.rows] == [
        ["2.0 %", "1.9 %", "0.5 %", "1.0 %", "more blocks"],
        ["2.0 %", "not told apart", "3.0 %", "1.0 %", "longer windows, then more blocks"],
    ]


def test_a_scoped_promote_names_its_classes_and_their_gain_first():
    records = make_study(SCOPED, blocks=4, speedups={"ngram-k3": 1.0}, truth=Truth(boot_spread=0.003))
    analysed, judged = judge(records)
    table = {(c.load, c.class_name): c for c in analysed.contrasts if c.measure == "jobs_per_s"}
    faster = tuple(
        replace(c, by_block=tuple((b, y + 0.4) for b, y in c.by_block)) if c is table["pool", "code"] else c
        for c in analysed.contrasts
    )
    judged = decide(records, replace(analysed, contrasts=faster))
    part = judged.objectives[0]
    assert (part.decision, part.candidates[0].reason) == (Decision.PROMOTE, Reason.SCOPED_GAIN_SHOWN)
    said = headlines.headline(part, judged)
    assert said.startswith("Promote ngram-k3 for background pool, only class code (speed only: answers were not ")
    assert "code +4" in said
