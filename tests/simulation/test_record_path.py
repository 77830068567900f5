"""From whole records with known truth to the verdict: fewer studies than on y_b, every stage in between."""

import math

import numpy as np
import pytest
from tests.simulation.generator import DEFAULT_PLAN, Truth, make_study

from specdyno.statistics.analyse import analyse
from specdyno.verdict.decide import judge
from specdyno.verdict.schema import Decision

ONE = {
    **DEFAULT_PLAN,
    "candidates": [{"method": "eagle3", "draft": "org/draft", "draft_tokens": [3]}],
    "loads": [{"name": "pool", "concurrency": 4, "window": "20s"}],
    "objectives": [DEFAULT_PLAN["objectives"][1]],
}


def studies(speedup, count, *, blocks=4, truth=None):
    for seed in range(count):
        yield make_study(ONE, blocks=blocks, speedups={"eagle3-k3": speedup}, seed=seed, truth=truth or Truth())


def test_the_speed_up_of_the_generator_is_the_one_that_is_found():
    found = []
    for records in studies(1.20, 30):
        contrasts = [c for c in analyse(records).contrasts if c.measure == "jobs_per_s" and c.class_name is None]
        found.append(math.log(contrasts[0].ratio.estimate))
    # each study's mean has a standard error of about 0.01 sqrt(2) / 2
    assert math.exp(np.mean(found)) == pytest.approx(1.20, rel=0.01)


def test_acceptance_intervals_over_boots_cover_the_truth():
    rates = (0.7, 0.5, 0.4)
    truth = Truth(acceptance={"code": rates, "chat": rates}, requests=16)
    hits = []
    for records in studies(1.2, 60, truth=truth):
        curve = next(c for c in analyse(records).curves if c.class_name is None)
        hits += [e.low <= rate <= e.high for e, rate in zip(curve.conditional, rates, strict=True)]
    print(f"coverage of conditional acceptance from 4 boots: {np.mean(hits):.1%}")
    assert np.mean(hits) >= 0.90


def test_acceptance_intervals_within_one_boot_cover_the_truth():
    rates = (0.7, 0.5, 0.4)
    truth = Truth(acceptance={"code": rates, "chat": rates}, requests=30)
    hits = []
    for records in studies(1.2, 60, blocks=1, truth=truth):
        curve = next(c for c in analyse(records).curves if c.class_name is None)
        assert "within one boot" in curve.joint[0].method
        hits += [e.low <= rate <= e.high for e, rate in zip(curve.conditional, rates, strict=True)]
    print(f"coverage of conditional acceptance from one boot: {np.mean(hits):.1%}")
    assert np.mean(hits) >= 0.88


@pytest.mark.parametrize(
    ("speedup", "decision", "share"),
    [(1.20, Decision.PROMOTE, 0.9), (1.0, Decision.REJECT, 0.5), (0.85, Decision.REJECT, 1.0)],
)
def test_clear_cases_are_decided(speedup, decision, share):
    outcomes = [judge(records)[1].outcome for records in studies(speedup, 20)]
    assert outcomes.count(decision) >= share * len(outcomes)


def test_identical_arms_are_never_promoted():
    assert Decision.PROMOTE not in [judge(records)[1].outcome for records in studies(1.0, 30)]


def test_a_candidate_whose_true_gain_is_the_minimum_is_rarely_promoted():
    outcomes = [judge(records)[1].outcome for records in studies(1.05, 60)]
    assert outcomes.count(Decision.PROMOTE) <= 3
