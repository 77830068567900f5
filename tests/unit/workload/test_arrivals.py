"""Intended times: the asked distribution at the asked mean rate, the same in every arm, the integral of a ramp met."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specdyno.plan.load import Load
from specdyno.workload.arrivals import count_of, mean_rate, offsets, open_loop, replayed, step_rates, step_sizes

RATES = st.floats(0.01, 5000)
SHAPES = st.floats(0.05, 50)


def load(**keys: object) -> Load:
    return Load.model_validate({"name": "x", "window": "10s", **keys})


@given(count=st.integers(1, 400), rate=RATES, burstiness=SHAPES, label=st.text(max_size=20))
@settings(deadline=None, max_examples=60)
def test_times_rise_lie_in_the_window_and_are_the_same_again(count, rate, burstiness, label):
    times = open_loop(count, label=label, rate=rate, burstiness=burstiness)
    assert times == open_loop(count, label=label, rate=rate, burstiness=burstiness)
    assert len(times) == count
    assert all(isinstance(time, int) for time in times)
    assert all(earlier <= later for earlier, later in pairwise(times))
    assert times[0] >= 0
    assert times[-1] <= count / rate * 1e9 + 1


@pytest.mark.parametrize("burstiness", [0.3, 1.0, 4.0])
def test_gaps_follow_the_gamma_distribution_of_the_plan(burstiness):
    gaps = np.diff(np.array([0, *open_loop(4000, label="ks", rate=8.0, burstiness=burstiness)])) / 1e9
    found = stats.kstest(gaps, stats.gamma(burstiness, scale=1 / (8.0 * burstiness)).cdf)
    assert found.pvalue > 0.01
    assert np.mean(gaps) == pytest.approx(1 / 8.0, rel=0.05)


def test_poisson_arrivals_of_a_known_number_are_spread_evenly_over_the_window():
    times = np.concatenate([open_loop(20, label=f"block {block}", rate=2.0) for block in range(200)]) / 1e9
    assert stats.kstest(times, stats.uniform(0, 10.0).cdf).pvalue > 0.01


def test_a_ramp_is_met_where_its_integral_says():
    count, first, last = 20_000, 2.0, 6.0
    window = 2 * count / (first + last)
    times = np.array(open_loop(count, label="ramp", rate=last, ramp_from=first)) / 1e9
    assert times[-1] <= window
    for moment in (0.25, 0.5, 0.75):
        t = moment * window
        expected = first * t + (last - first) * t * t / (2 * window)
        assert np.searchsorted(times, t) == pytest.approx(expected, abs=4 * np.sqrt(count))
    unit = first * times + (last - first) * times**2 / (2 * window)
    assert stats.kstest(np.diff(unit), stats.expon.cdf).pvalue > 0.01


@given(first=RATES, last=RATES)
@settings(deadline=None)
def test_ramps_up_and_down_stay_in_their_window(first, last):
    times = open_loop(50, label="r", rate=last, ramp_from=first)
    assert all(earlier <= later for earlier, later in pairwise(times))
    assert times[-1] <= 100 / (first + last) * 1e9 * (1 + 1e-9) + 1


def test_blocks_and_loads_have_their_own_times_and_one_label_the_same():
    a, b = (open_loop(50, label=label, rate=3.0) for label in ("1/block/0", "1/block/1"))
    assert a != b
    assert a == offsets(load(rate=3), 50, label="1/block/0")


def test_a_trace_is_replayed_as_recorded_or_scaled_to_a_mean_rate():
    times = [5.0, 6.0, 9.0, 9.0, 20.0]
    assert replayed(times, 4) == (0, 10**9, 4 * 10**9, 4 * 10**9)
    scaled = offsets(load(trace="t.csv", rate=2), 4, label="", trace=times)
    assert scaled == (0, 375_000_000, 1_500_000_000, 1_500_000_000)
    assert replayed(times, 0) == ()
    with pytest.raises(ValueError, match="all the same"):
        replayed([3.0, 3.0, 3.0], 3, rate=1.0)


def test_windows_hold_as_many_requests_as_rate_and_window_say():
    assert count_of(load(rate=2.5)) == 25
    assert count_of(load(rate=4, ramp_from=1)) == 25
    assert mean_rate(load(rate=4, ramp_from=1)) == 2.5
    assert count_of(load(rate=4, requests=7)) == 7
    assert count_of(load(concurrency=4)) is None
    assert count_of(load(concurrency=4, requests=9)) == 9
    times = [0.0, 1.0, 9.9, 10.0, 30.0]
    assert count_of(load(trace="t"), times) == 3
    assert count_of(load(trace="t", rate=100), times) == 5
    assert count_of(load(trace="t", requests=2), times) == 2


def test_a_search_keeps_prompts_for_the_largest_rate_that_each_step_can_come_to():
    asked = load(rates=[1, 16], steps=4)
    assert step_rates(asked) == pytest.approx((4.0, 8.0, 2**3.5, 16.0))
    assert step_sizes(asked) == (40, 80, 113, 160)
    assert count_of(asked) == 393
    assert step_sizes(load(rates=[1, 16], steps=3, requests=30)) == (30, 30, 30)
