import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from tests.simulation.generator import make_study
from tests.unit.report.hand_made_study import hostile, study

from specdyno.report import charts, html, view
from specdyno.verdict.decide import judge


def page_of(parts):
    return html.render(view.build(*parts))


@pytest.fixture(scope="module")
def page():
    return page_of(study())


def test_the_page_needs_nothing_from_elsewhere(page):
    assert "<script" not in page
    assert not re.search(r"""(?:src|href|action|data|poster)\s*=\s*["'](?!#|data:,)""", page)
    assert "@import" not in page
    assert "url(" not in page
    own = (r"http-equiv=\"Content-Security-Policy\"", r"http://127\.0\.0\.1:\{port\}")  # and a default of the plan
    assert "http" not in re.sub("|".join(own), "", page)


def test_the_page_forbids_itself_everything_but_its_style(page):
    assert f'<meta http-equiv="Content-Security-Policy" content="{html.POLICY.replace(chr(39), "&#39;")}">' in page


def test_the_page_stays_small(page):
    assert len(page.encode()) < 400_000


def test_the_verdict_comes_first_and_the_words_last(page):
    places = [
        page.index(f'<section id="{name}">') for name in ("verdict", "speed", "findings", "figures", "plan", "words")
    ]
    assert places == sorted(places)
    assert page.index("Promote eagle3-k3 for interactive") < page.index('<section id="speed">')


def test_the_same_records_give_the_same_bytes():
    assert page_of(study()) == page_of(study())


@pytest.mark.parametrize("of", [study, hostile], ids=["plain", "hostile"])
def test_every_chart_is_well_formed_and_described(of):
    shown = view.build(*of())
    axis = charts.forest_axis(shown.speed_decides)
    strips = [charts.forest_strip(row, axis, minimum_gain=0.05) for row in shown.speed_decides[0].rows]
    strips += [charts.explained_strip(row, axis) for row in shown.explained]
    panels = [charts.curve_panel(panel, longest=5) for panel in shown.curves]
    panels += [charts.throughput_panel(panel) for panel in shown.throughput]
    for chart in (*strips, *panels, charts.strip_axis(axis)):
        root = ET.fromstring(chart)
        assert root.get("role") == "img"
        assert root.find("title").text
    assert all(ET.fromstring(panel).find("desc").text for panel in panels)


def test_markup_from_outside_is_escaped_everywhere():
    page = page_of(hostile())
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_exploratory_tables_are_marked(page):
    assert page.count(">exploratory</em>") == 6
    assert page.count(">decides</em>") == 2


def test_every_interval_on_the_page_stands_beside_its_level(page):
    decides = page[page.index('<section id="speed">') : page.index("By class of traffic")]
    assert decides.count("<small>98.27\u00a0%\u00a0interval</small>") == decides.count('<tr role="row"><th scope="row"')


def test_an_arrow_says_that_an_interval_goes_on():
    records, analysis, verdict = study()
    shown = view.build(records, analysis, verdict)
    row = shown.speed_decides[0].rows[0]
    wide = replace(row, ratio=replace(row.ratio, low=0.01, high=50.0))
    axis = charts.forest_axis(shown.speed_decides)
    assert "M6 -4L0 0L6 4" in charts.forest_strip(wide, axis, minimum_gain=0.05)
    assert "M6 -4L0 0L6 4" not in charts.forest_strip(row, axis, minimum_gain=0.05)


def test_a_study_without_a_single_number_still_has_a_page():
    records = make_study(blocks=1)
    analysis, verdict = judge(records)
    bare = replace(analysis, curves=(), levels=(), contrasts=(), summaries=())
    page = page_of((records, bare, verdict))
    assert "Acceptance was not measured." in page
    assert "Throughput was not measured." in page


def test_a_crowded_chart_draws_the_longest_draft_of_each_method():
    lines = view.build(*study()).curves[0].lines
    assert charts.longest_of_each_method(lines) == lines
    drawn = charts.longest_of_each_method((*lines, *lines))
    assert [line.mark.arm for line in drawn] == ["eagle3-k5", "ngram-k3"]
