"""From whole records with known truth to the verdict: fewer studies than on y_b, every stage in between."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.simulation.generator import DEFAULT_PLAN, Truth, make_study

from specdyno.statistics.analyse import analyse
from specdyno.verdict.decide import judge
from specdyno.verdict.schema import Decision, Reason

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


SCOPED = {**ONE, "loads": [{**ONE["loads"][0], "class_windows": True}]}


def scoped_studies(code, chat, count, *, blocks=6):
    for seed in range(count):
        speedups = {"eagle3-k3": {"pool": {"code": code, "chat": chat}}}
        yield make_study(SCOPED, blocks=blocks, speedups=speedups, seed=seed, truth=Truth(boot_spread=0.005))


def test_a_class_that_wins_while_the_whole_traffic_loses_is_promoted_alone():
    seen = [judge(records)[1].objectives[0].candidates[0] for records in scoped_studies(1.6, 0.75, 10)]
    scoped = [one for one in seen if one.reason is Reason.SCOPED_GAIN_SHOWN]
    assert len(scoped) >= 8
    assert {one.scope.classes for one in scoped} == {("code",)}
    assert all(one.gates[0].ratio.estimate < 1.05 for one in scoped)


def test_a_class_whose_gain_is_the_minimum_is_not_promoted_alone():
    outcomes = [judge(records)[1].objectives[0] for records in scoped_studies(1.05, 0.75, 25)]
    assert [one.decision for one in outcomes].count(Decision.PROMOTE) <= 2


def test_arms_that_are_missing_from_blocks_at_random_promote_nothing_that_they_should_not():
    rng, promoted = np.random.default_rng(3), 0
    for records in studies(1.05, 40, blocks=6):
        lost = {boot.id for boot in records.boots if rng.random() < 0.1}
        boots = tuple(boot for boot in records.boots if boot.id not in lost)
        promoted += judge(replace(records, boots=boots))[1].outcome is Decision.PROMOTE
    assert promoted <= 4
