"""Ladders and sessions as people read them: panels, crossings, phases; nothing where nothing was measured."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.statistics.test_ladder import LADDER, contrasts, falling

from specdyno.report import charts, traffic
from specdyno.report.marks import Mark
from specdyno.report.tables import DASH
from specdyno.statistics.analysis import Analysis, Level, OpenWindow, PhaseSummary
from specdyno.statistics.intervals import Interval, Undefined
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


def test_what_only_the_means_say_is_not_said_to_be_shown():
    sure = with_ladder({rung: [0.2 + place / 1000 for place in range(4)] for rung in (1, 2, 4, 8, 16)})
    assert traffic.crossovers(sure).rows[0][3].text == "pays at every rung"
    doubtful = {rung: [0.1, -0.08, 0.1, -0.08] if rung > 4 else [0.2, 0.201, 0.2, 0.201] for rung in (1, 2, 4, 8, 16)}
    text = "pays at every rung in the mean, not shown at 2 of 5"
    assert traffic.crossovers(with_ladder(doubtful)).rows[0][3].text == text
    assert traffic.crossing_sentences(with_ladder(doubtful)) == (f"c over pool: {text}",)


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


def opened(block: int, **keys) -> OpenWindow:
    """One open window that met nothing remarkable; `keys` replace parts of it."""
    return replace(
        OpenWindow("c", "shared", block, False, 20.0, 20.4, 20.3, 18.0, 0.01 * (block + 1), 4.0, "no", 0.9, None),
        **keys,
    )


def test_open_loops_are_told_by_offered_and_achieved_rate_lateness_and_queue():
    windows = (opened(0), opened(1, achieved_per_s=19.0, saturated="yes"), opened(2, saturated="unknown"))
    (shown,) = traffic.arrivals(replace(EMPTY, open_windows=windows))
    (row,) = shown.rows
    assert [cell.text for cell in row] == [
        "shared", "c", "3", "20.4", "20.3", "18.3", "30.0 ms", "4.00", "in 1 of 3, not known in 1", "90.0 %",
    ]  # fmt: skip
    (shown,) = traffic.arrivals(replace(EMPTY, open_windows=(opened(0, in_flight=None, attained=None),)))
    assert [cell.text for cell in shown.rows[0]][-3:] == ["not measured", "in 0 of 1", DASH]


def test_the_steps_of_a_search_are_told_with_the_edge_or_what_is_known_of_it():
    steps = [
        opened(block, search=True, planned_per_s=rate, carried=held, attained=0.95 if held else 0.5)
        for block, rate, held in ((0, 8.0, True), (0, 16.0, False), (1, 8.0, True), (1, 32.0, True), (2, 8.0, False))
    ]
    level = Level("c", "shared", None, "largest_rate", Undefined("x"), ((0, 11.0),), ((1, 32.0, None), (2, None, 8.0)))
    (shown,) = traffic.arrivals(replace(EMPTY, open_windows=tuple(steps), levels=(level,)))
    assert [[cell.text for cell in row][2:] for row in shown.rows] == [
        ["1", "8.00 carried (95 %); 16.0 not carried (50 %)", "11.0"],
        ["2", "8.00 carried (95 %); 32.0 carried (95 %)", "above 32.0"],
        ["3", "8.00 not carried (50 %)", "below 8.00"],
    ]


def test_without_an_open_loop_no_arrivals_are_told():
    assert traffic.arrivals(EMPTY) == ()


def summary(phase: str | None, turn: int | None) -> PhaseSummary:
    length, rate = (Interval(value, value - 0.1, value + 0.1, 0.95, "t", 4) for value in (2.5, 0.5))
    return PhaseSummary("c", "agents", phase, turn, 10, 9, 200.0, 0.5, 0.02, 1.5, None, length, rate, (rate,), 80.0, 4)


def test_phases_and_turns_are_tables_of_their_own_and_what_was_not_measured_is_said():
    analysis = replace(EMPTY, phases=(summary("plan", None), summary(None, 0), summary(None, LATE)))
    by_phase, by_turn = traffic.phases(analysis)
    assert by_phase.title == "Agent sessions by phase, load agents"
    assert [cell.text for cell in by_phase.rows[0]][:4] == ["plan", "c", "10", "200"]
    assert by_phase.rows[0][2].small == "1 failed"
    assert by_phase.rows[0][7].text == "not measured"
    assert [(cell.text, cell.small) for cell in by_phase.rows[0][8:]] == [
        ("2.50", "2.40 to 2.60"),
        ("50.0 %", "40.0 % to 60.0 %"),
    ]
    assert [row[0].text for row in by_turn.rows] == ["1", f"{LATE + 1} and later"]
