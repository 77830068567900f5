"""Ladders and sessions as people read them: panels, crossings, phases; nothing where nothing was measured."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.statistics.test_ladder import LADDER, contrasts, falling

from specdyno.report import charts, traffic
from specdyno.report.marks import Mark
from specdyno.statistics.analysis import Analysis, PhaseSummary
from specdyno.statistics.ladder import ladders
from specdyno.statistics.phases import LATE

MARKS = {"c": Mark("c", "eagle3", 3, 1, "circle")}
EMPTY = Analysis((), ("baseline", "c"), ("pool@1",), ("code",), (), (), (), (), (), ())


def with_ladder(by_rung) -> Analysis:
    found = ladders([LADDER], contrasts(by_rung) + contrasts(by_rung, name="code"))
    return replace(EMPTY, ladders=found)


def test_a_crossing_is_told_with_its_interval_in_table_and_sentence():
    analysis = with_ladder(falling(0.1, 5.0))
    rows = traffic.crossovers(analysis).rows
    assert [row[1].text for row in rows] == ["all, mixed", "code"]
    assert rows[0][3].text == "pays below, loses above"
    assert rows[0][4].text == "4"
    assert rows[0][5].text == "5.0"
    assert "95 %" in rows[0][5].small
    (line,) = traffic.crossing_sentences(analysis)
    assert line.startswith("c over pool: pays below, loses above, at 5.0 in flight (")


def test_a_panel_per_class_draws_every_rung_with_its_whisker():
    panels = traffic.ladder_panels(with_ladder(falling(0.1, 5.0)), MARKS)
    assert [panel.title for panel in panels] == ["all classes, mixed", "code"]
    drawn = charts.ladder_panel(panels[0])
    assert drawn.count('class="mark"') == 5
    assert drawn.count('class="whisker"') == 5
    assert "8 in flight" in drawn


def test_without_ladders_and_sessions_nothing_is_said():
    assert traffic.ladder_panels(EMPTY, MARKS) == []
    assert traffic.crossovers(EMPTY).rows == ()
    assert traffic.phases(EMPTY) == ()


def summary(phase: str | None, turn: int | None) -> PhaseSummary:
    return PhaseSummary("c", "agents", phase, turn, 10, 9, 200.0, 0.5, 0.02, 1.5, None, 2.5, 80.0)


def test_phases_and_turns_are_tables_of_their_own_and_what_was_not_measured_is_said():
    analysis = replace(EMPTY, phases=(summary("plan", None), summary(None, 0), summary(None, LATE)))
    by_phase, by_turn = traffic.phases(analysis)
    assert [cell.text for cell in by_phase.rows[0]][:5] == ["agents", "plan", "c", "10", "1"]
    assert by_phase.rows[0][9].text == "not measured"
    assert [row[1].text for row in by_turn.rows] == ["1", f"{LATE + 1} and later"]
