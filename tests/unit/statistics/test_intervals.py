import doctest
import importlib
import math

import numpy as np
import pytest
from scipy import stats

from specdyno.statistics.intervals import (
    Interval,
    Undefined,
    clopper_pearson,
    difference_of_shares,
    exponentiated,
    spread_interval,
    t_interval,
    wilson,
)

DOCUMENTED = (
    "specdyno.statistics.intervals",
    "specdyno.statistics.contrasts",
    "specdyno.plan.looks",
    "specdyno.plan.power",
    "specdyno.records.confounds",
)


def test_t_interval_equals_the_hand_worked_one():
    # mean 0.25, s = 0.1290994, t(0.975, 3) = 3.182446, half = 3.182446 * 0.1290994 / 2
    interval = t_interval([0.1, 0.2, 0.3, 0.4], 0.95)
    assert interval.estimate == pytest.approx(0.25)
    assert interval.high - interval.estimate == pytest.approx(0.205426, abs=1e-6)
    assert (interval.count, interval.level) == (4, 0.95)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.9958])
def test_t_interval_equals_scipys(level):
    values = np.random.default_rng(3).normal(0.1, 0.02, 7)
    expected = stats.t.interval(level, 6, loc=values.mean(), scale=stats.sem(values))
    mine = t_interval(values.tolist(), level)
    assert (mine.low, mine.high) == pytest.approx(expected)


def test_identical_values_are_not_believed_below_the_floor():
    bare, floored = t_interval([0.1] * 4, 0.95), t_interval([0.1] * 4, 0.95, floor=0.002)
    assert bare.high == bare.low
    assert floored.high - floored.estimate == pytest.approx(3.182446 * 0.002 / 2, rel=1e-6)


@pytest.mark.parametrize("values", [[], [0.3], [math.inf, 1.0], [math.nan, 1.0]])
def test_too_little_or_bad_data_gives_no_number(values):
    with np.errstate(invalid="ignore"):
        assert isinstance(t_interval(values, 0.95), Undefined)


@pytest.mark.parametrize(("successes", "count"), [(0, 10), (3, 10), (10, 10), (17, 240)])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_share_intervals_equal_scipys(successes, count, level):
    test = stats.binomtest(successes, count)
    for mine, method in (
        (clopper_pearson(successes, count, level), "exact"),
        (wilson(successes, count, level), "wilson"),
    ):
        expected = test.proportion_ci(level, method=method)
        assert (mine.low, mine.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_newcombe_equals_the_published_example():
    # Newcombe 1998, table II, row (a): 56/70 - 48/80, method 10
    interval = difference_of_shares((56, 70), (48, 80), 0.95)
    assert (interval.estimate, interval.low, interval.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_spread_interval_equals_the_chi_square_one():
    low, high = spread_interval(1.0, 4, 0.80)
    assert (low, high) == pytest.approx((math.sqrt(3 / 6.251389), math.sqrt(3 / 0.584374)), rel=1e-5)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_examples_in_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert (result.failed, result.attempted > 0) == (0, True)


def test_a_ratio_beyond_all_numbers_is_undefined_and_no_warning():
    wide = Interval(1.0, -2_000.0, 2_000.0, 0.95, "t over blocks", 2)
    assert isinstance(exponentiated(wide), Undefined)
