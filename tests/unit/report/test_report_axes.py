import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specdyno.report.axes import draft_axis, linear_ticks, ratio_axis, value_axis
from specdyno.statistics.intervals import Interval, Undefined


def interval(low, estimate, high):
    return Interval(estimate, low, high, 0.95, "t over blocks", 4)


def test_a_ratio_axis_is_symmetric_about_one():
    axis = ratio_axis([interval(0.5, 0.5, 0.5), interval(2.0, 2.0, 2.0)])
    assert axis.at(1.0) == pytest.approx(50.0)
    assert axis.at(2.0) - 50 == pytest.approx(50 - axis.at(0.5), abs=0.02)


def test_far_interval_ends_are_cut_and_estimates_never():
    wide = interval(0.01, 1.2, 90.0)
    axis = ratio_axis([wide])
    assert axis.holds(1.2)
    assert not axis.holds(90.0)
    assert axis.at(90.0) == axis.end


@given(st.floats(0.05, 20.0), st.floats(0.05, 20.0))
def test_every_ratio_axis_has_one_and_two_ticks_within(first, second):
    axis = ratio_axis([interval(one, one, one) for one in (first, second)])
    assert 1.0 in axis.ticks
    assert len(axis.ticks) >= 2
    assert all(axis.holds(tick) for tick in axis.ticks)


@example(8.29e-6, 30_000.0)
@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_linear_ticks_lie_within_and_are_few(low, span):
    ticks = linear_ticks(low, low + span)
    assert 1 <= len(ticks) <= 5
    slack = 1e-8 * span + 1e-6 * max(1, abs(low))  # far less than the width of a line
    assert all(low - slack <= tick <= low + span + slack for tick in ticks)


def test_a_value_axis_ignores_what_was_not_measured():
    axis = value_axis([interval(90, 100, 110), Undefined("none"), None], start=200, end=10)
    assert axis.low < 90 < 110 < axis.high


def test_long_drafts_thin_their_ticks():
    assert draft_axis(5, first=1, start=0, end=1).ticks == (1, 2, 3, 4, 5)
    assert len(draft_axis(128, first=1, start=0, end=1).ticks) <= 9
