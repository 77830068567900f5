"""Where spread comes from, with the truth known: order in a block, windows, restarts; and rates that did not settle."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.simulation.generator import DEFAULT_PLAN, Truth, make_study

from specdyno.records.audit import audit_records
from specdyno.records.schema import FindingCode, Severity
from specdyno.statistics.analyse import analyse, plan_of
from specdyno.statistics.analysis import Drift
from specdyno.statistics.intervals import Interval, Undefined
from specdyno.statistics.noise import drift, drift_finding
from specdyno.statistics.steadiness import front_effect, mser_cut

ONE = {
    **DEFAULT_PLAN,
    "candidates": [{"method": "eagle3", "draft": "org/draft", "draft_tokens": [3]}],
    "loads": [{"name": "pool", "concurrency": 4, "window": "20s"}],
    "objectives": [DEFAULT_PLAN["objectives"][1]],
}


def boots(slope, *, blocks=8, arms=3, seed=1, noise=0.005):
    """Values and places of a study in which each place later changes a rate by `slope`."""
    rng = np.random.default_rng(seed)
    values, places = {str(arm): {} for arm in range(arms)}, {}
    for block in range(blocks):
        host = rng.normal(0, 0.05)
        for place, arm in enumerate(rng.permutation(arms)):
            places[block, str(arm)] = place
            values[str(arm)][block] = math.exp(0.2 * arm + host + slope * place + rng.normal(0, noise))
    return values, places


def test_a_drift_is_found_apart_from_blocks_and_arms():
    found = drift(*boots(-0.03), sign=1)
    assert found.low < -0.03 < found.high
    assert found.high < 0
    turned = drift(*boots(-0.03), sign=-1)
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))


def test_an_interval_of_a_drift_covers_the_truth():
    found = [drift(*boots(0.01, blocks=4, seed=seed), sign=1) for seed in range(300)]
    hits = [e.low <= 0.01 <= e.high for e in found if isinstance(e, Interval)]  # by chance all orders are one
    assert len(hits) > 290
    assert 0.91 <= np.mean(hits) <= 0.985


def test_one_block_or_always_the_same_order_tells_no_drift():
    values, places = boots(0.01)
    assert isinstance(drift({arm: {0: v[0]} for arm, v in values.items()}, places, sign=1), Undefined)
    fixed = {(block, arm): int(arm) for block, arm in places}
    assert isinstance(drift(values, fixed, sign=1), Undefined)


@pytest.mark.parametrize(("slope", "half", "doubt"), [(-0.03, 0.01, True), (-0.03, 0.04, False), (0.01, 0.001, False)])
def test_a_shown_and_large_drift_is_a_doubt(slope, half, doubt):
    found = drift_finding(Drift("pool", "jobs_per_s", Interval(slope, slope - half, slope + half, 0.95, "", 9)), 3)
    assert (found is not None) == doubt
    if found:
        assert (found.code, found.severity) == (FindingCode.ORDER_DRIFT, Severity.DOUBT)
        assert "\u22125.8" in found.detail or "-5.8" in found.detail


def test_the_spread_of_restarts_is_told_from_that_of_windows():
    steady = analyse(make_study(ONE, blocks=10, seed=3, truth=Truth(boot_spread=0.0005, requests=24))).noise[0]
    shaky = analyse(make_study(ONE, blocks=10, seed=3, truth=Truth(boot_spread=0.05, requests=24))).noise[0]
    assert steady.window == pytest.approx(shaky.window, rel=0.3)
    assert shaky.boot == pytest.approx(0.05 * math.sqrt(2), rel=0.5)
    assert (steady.boot or 0.0) < 0.02 < shaky.boot
    assert shaky.total**2 == pytest.approx(shaky.boot**2 + shaky.window**2)


def test_one_block_has_no_noise_budget_and_no_drift():
    analysis = analyse(make_study(ONE, blocks=1))
    assert analysis.noise == ()
    assert all(isinstance(one.per_position, Undefined) for one in analysis.drifts)


def test_mser_cuts_a_slow_start_and_leaves_a_steady_rate_alone():
    rng = np.random.default_rng(2)
    rate = rng.normal(100, 5, 200)
    slow = rate.copy()
    slow[:40] *= 0.5
    assert mser_cut(slow) == 8
    assert front_effect(slow) == pytest.approx(-0.1, abs=0.02)
    assert front_effect(rate) is None
    assert sum(front_effect(rng.normal(100, 20, 200)) is not None for _ in range(300)) <= 3


@pytest.mark.parametrize(("cached", "doubt"), [(10.0, True), (1.0, False), (math.nan, False)])
def test_prefix_cache_hits_that_differ_between_arms_are_a_doubt(cached, doubt):
    records = make_study(ONE, blocks=4)
    mine = {boot.id for boot in records.boots if boot.arm == "eagle3-k3"}
    windows = [window.id for window in records.windows if window.boot_id in mine]
    hits = np.where(np.isin(records.requests.window_id, windows), cached, 0.0)
    changed = replace(records, requests=replace(records.requests, cached_tokens=hits))
    codes = [finding.code for finding in audit_records(changed, plan_of(records)).findings]
    assert (FindingCode.PREFIX_HITS_DIFFER in codes) == doubt
