"""The cost of a step: measured, interpolated with a label, or refused."""

from __future__ import annotations

import pytest

from specdyno.statistics.intervals import Undefined
from specdyno.statistics.stepcost import Marginal, Modelled, Point, WidthBound, depth_sweep, width_bound

LENGTHS = (1.000, 1.809, 2.377, 2.764)
RATES = (64.157, 93.092, 110.088, 110.675)
STEPS_MS = (15.59, 19.43, 21.59, 24.97)
WIDTHS = {1: 8.47e-3, 2: 13.49e-3, 3: 15.64e-3, 5: 20.67e-3, 8: 28.13e-3}


def sweep(*, rates=True, steps=False, depths=(0, 1, 2, 3)):
    return depth_sweep(
        Point(k, LENGTHS[k], RATES[k] if rates else None, STEPS_MS[k] / 1000 if steps else None) for k in depths
    )


@pytest.mark.parametrize(("rates", "steps"), [(True, False), (False, True), (True, True)])
def test_a_depth_sweep_gives_marginal_lengths_and_the_best_depth(rates, steps):
    found = sweep(rates=rates, steps=steps)
    assert [step.gain for step in found.marginal] == pytest.approx([0.809, 0.568, 0.387])
    assert found.fastest == 3
    assert found.within(0.006) == (2, 3)
    assert found.best() == 2
    assert found.within(0.2) == (1, 2, 3)


def test_the_step_cost_is_over_the_plain_step():
    costs = [sweep().step_cost(k) for k in range(4)]
    assert [cost.value for cost in costs] == pytest.approx([ms / 15.59 for ms in STEPS_MS], rel=1e-3)
    assert all(cost.measured for cost in costs)


def test_speed_up_is_length_over_cost():
    assert sweep().speed_up(2).value == pytest.approx(110.088 / 64.157)


@pytest.mark.parametrize("k", [4, 9, -1])
def test_outside_the_measured_range_nothing_is_extrapolated(k):
    for answer in (sweep().step_cost(k), sweep().speed_up(k), sweep().tokens_per_step(k)):
        assert isinstance(answer, Undefined)
        assert "outside the measured range 0 to 3" in answer.reason


def test_between_measured_depths_a_value_is_interpolated_and_labelled():
    found = sweep(depths=(0, 1, 3))
    assert found.tokens_per_step(2) == Modelled(pytest.approx((1.809 + 2.764) / 2), measured=False)
    assert found.step_cost(2).measured is False
    assert found.marginal[1] == Marginal(1, 3, pytest.approx(0.955))


def test_between_plain_decoding_and_the_first_depth_nothing_is_interpolated():
    answer = sweep(depths=(0, 2, 3)).step_cost(1)
    assert isinstance(answer, Undefined)
    assert "not interpolated" in answer.reason


def test_without_plain_decoding_there_is_no_cost():
    found = sweep(depths=(1, 2, 3))
    assert isinstance(found.step_cost(2), Undefined)
    assert isinstance(found.speed_up(2), Undefined)
    assert found.fastest == 3


def test_plain_decoding_is_the_best_depth_where_speculation_loses():
    assert depth_sweep([Point(1, 1.3, 40.0), Point(0, 1.0, 50.0)]).best() == 0


@pytest.mark.parametrize(
    "points",
    [
        [],
        [Point(1, 1.5, 10.0), Point(1, 1.6, 11.0)],
        [Point(1, 2.5, 10.0)],
        [Point(1, 0.5, 10.0)],
        [Point(-1, 1.0, 10.0)],
        [Point(1, 1.5)],
        [Point(1, 1.5, 0.0)],
        [Point(1, 1.5, float("nan"))],
        [Point(1, 1.5, 100.0, 0.030)],
    ],
)
def test_impossible_sweeps_are_refused(points):
    with pytest.raises(ValueError, match=r"sweep|impossible|rate|make a step of"):
        depth_sweep(points)


def test_the_verify_width_bounds_the_speed_up():
    bound = width_bound(WIDTHS, 4.20, draft_tokens=7)
    assert isinstance(bound, WidthBound)
    assert bound.token_s == pytest.approx(6.70e-3, abs=5e-6)
    assert bound.plain_token_s == 8.47e-3
    assert bound.speed_up == pytest.approx(1.26, abs=0.005)
    assert bound.measured_width


@pytest.mark.parametrize("measured", [0.70, 0.87])
def test_a_speed_up_far_below_the_bound_is_paid_to_draft_and_host(measured):
    bound = width_bound(WIDTHS, 4.20, draft_tokens=7)
    assert bound.cost_beside_verification(measured) == pytest.approx(1 - measured / (8.47 * 4.2 / 28.13))
    assert bound.cost_beside_verification(bound.speed_up) == pytest.approx(0)


def test_an_unmeasured_width_is_interpolated_and_labelled():
    bound = width_bound(WIDTHS, 2.0, draft_tokens=3)
    assert bound.token_s == pytest.approx((15.64e-3 + 20.67e-3) / 2 / 2.0)
    assert not bound.measured_width


@pytest.mark.parametrize(
    ("widths", "length", "k", "reason"),
    [
        (WIDTHS, 4.2, 8, "not extrapolated"),
        (WIDTHS, 9.2, 7, "impossible"),
        (WIDTHS, 0.2, 7, "impossible"),
        ({2: 0.01, 8: 0.02}, 4.2, 7, "no plain step"),
        ({1: 0.0, 8: 0.02}, 4.2, 7, "not positive"),
        ({}, 1.0, 0, "no plain step"),
    ],
)
def test_a_bound_that_cannot_be_told_is_refused(widths, length, k, reason):
    answer = width_bound(widths, length, draft_tokens=k)
    assert isinstance(answer, Undefined)
    assert reason in answer.reason
