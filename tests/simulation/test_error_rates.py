"""Error rates of the verdict with the truth known, on y_b directly; tolerances from the binomial, seeds explicit.

Every simulated study goes through the verdict's own code (`decide_objective`): looks, family, gates and all. y_b of
candidate c in block b is truth + candidate's boot - baseline's boot, so candidates share the baseline's luck.
"""

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats
from tests.simulation.generator import DEFAULT_PLAN

from specdyno.plan.schema import Plan
from specdyno.statistics.analysis import Analysis
from specdyno.statistics.contrasts import contrast, ratio_interval
from specdyno.statistics.measures import MEASURES
from specdyno.verdict.decide import Evidence, decide_objective
from specdyno.verdict.schema import Decision

S = 0.02  # standard deviation of y_b


def plan_with(m, looks, minimum_gain=0.05):
    return Plan.model_validate(
        {
            **DEFAULT_PLAN,
            "candidates": [{"method": "ngram", "draft_tokens": list(range(1, m + 1))}],
            "objectives": [{**DEFAULT_PLAN["objectives"][1], "minimum_gain": minimum_gain}],
            "guards": {"tpot": None, "failed_requests": None, "output_length": None},
            "experiment": {"looks": looks},
        }
    )


def simulate(plan, *, truth, studies, seed, errors=None):
    """Decisions of `studies` studies: a count of each, and the mean number of blocks at the deciding look."""
    rng = np.random.default_rng(seed)
    arms = [arm.name for arm in plan.arms()][1:]
    blocks = tuple(range(plan.experiment.looks[-1]))
    draw = errors or (lambda shape: rng.normal(0.0, S / math.sqrt(2), shape))
    measure = MEASURES["jobs_per_s"]
    decisions, looks = Counter(), []
    for _ in range(studies):
        boots = draw((len(blocks), len(arms) + 1))
        ys = truth + boots[:, 1:] - boots[:, :1]
        contrasts = tuple(
            contrast(tuple(enumerate(ys[:, i].tolist())), measure=measure, cell=(arm, "pool", None), decides=True)
            for i, arm in enumerate(arms)
        )
        analysis = Analysis((), ("baseline", *arms), ("pool",), (), (), (), contrasts, (), (), ())
        verdict = decide_objective(Evidence(plan, analysis, blocks, frozenset()), plan.objectives[0])
        decisions[verdict.decision] += 1
        looks += [c.look for c in verdict.candidates if c.decision is Decision.PROMOTE]
    return decisions, float(np.mean(looks)) if looks else math.nan


def at_most(count, studies, rate):
    """Whether `count` of `studies` fits a true rate of at most `rate`, at 99.9 %."""
    return count <= stats.binom.ppf(0.999, studies, rate)


@pytest.mark.parametrize(("m", "studies"), [(1, 8000), (3, 4000), (8, 2000)])
@pytest.mark.parametrize("looks", [(4,), (4, 6, 8, 12)])
def test_at_the_minimum_gain_itself_a_wrong_promote_stays_within_2_5_percent(m, studies, looks):
    studies = studies if len(looks) == 1 else studies // 2
    decisions, _ = simulate(plan_with(m, looks), truth=math.log(1.05), studies=studies, seed=100 * m + len(looks))
    print(f"m={m} looks={looks} wrong promotes {decisions[Decision.PROMOTE] / studies:.2%} of {studies}")
    assert at_most(decisions[Decision.PROMOTE], studies, 0.025)


def test_one_comparison_at_one_look_errs_at_its_nominal_rate():
    studies = 4000
    decisions, _ = simulate(plan_with(1, (4,)), truth=math.log(1.05), studies=studies, seed=11)
    low, high = stats.binom.ppf([0.0005, 0.9995], studies, 0.025)
    assert low <= decisions[Decision.PROMOTE] <= high
    assert low <= decisions[Decision.REJECT] <= high


def test_identical_arms_are_not_promoted():
    # the minimum gain of 5 % is 2.4 s here
    studies = 800
    decisions, _ = simulate(plan_with(3, (4, 6, 8, 12)), truth=0.0, studies=studies, seed=12)
    assert at_most(decisions[Decision.PROMOTE], studies, 0.005)


def test_a_large_gain_is_found_early_and_a_larger_one_earlier():
    found = {}
    for gap in (1.5, 3.0):
        truth = math.log(1.05) + gap * S
        found[gap] = simulate(plan_with(1, (4, 6, 8, 12)), truth=truth, studies=400, seed=13)
        share = found[gap][0][Decision.PROMOTE] / 400
        print(f"gap {gap} s: promoted {share:.1%}, {found[gap][1]:.1f} blocks on average")
    # statistics of the exact table: 98.5 % at 1.5 s; Bonferroni over four looks is a little weaker
    assert found[1.5][0][Decision.PROMOTE] >= 0.93 * 400
    assert found[3.0][0][Decision.PROMOTE] >= 0.99 * 400
    assert found[3.0][1] < found[1.5][1] < 9


@pytest.mark.parametrize("n", [3, 4, 6, 12])
def test_t_intervals_cover_at_their_nominal_level(n):
    rng = np.random.default_rng(14)
    studies = 4000
    ys = rng.normal(0.1, S, (studies, n))
    hits = 0
    for row in ys:
        interval = ratio_interval(row.tolist(), 0.95)
        hits += interval.low <= math.exp(0.1) <= interval.high
    assert abs(hits / studies - 0.95) < 0.01 + 3 * math.sqrt(0.95 * 0.05 / studies)


@pytest.mark.parametrize("name", ["heavy tails", "skewed", "one bad block in ten"])
def test_promotes_stay_rare_where_boots_are_not_normal(name):
    rng = np.random.default_rng(15)
    draws = {
        "heavy tails": lambda shape: rng.standard_t(4, shape) * S / 2,
        "skewed": lambda shape: (rng.exponential(1.0, shape) - 1) * S / math.sqrt(2),
        "one bad block in ten": lambda shape: (
            rng.normal(0, S / math.sqrt(2), shape) * rng.choice([1, 5], shape, p=[0.9, 0.1])
        ),
    }
    studies = 1500
    decisions, _ = simulate(plan_with(1, (4,)), truth=math.log(1.05), studies=studies, seed=16, errors=draws[name])
    rate = decisions[Decision.PROMOTE] / studies
    print(f"{name}: wrong promotes {rate:.2%} (nominal 2.5 %)")
    assert at_most(decisions[Decision.PROMOTE], studies, 0.04)
