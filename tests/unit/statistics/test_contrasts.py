import math

import pytest
from tests.simulation.generator import DEFAULT_PLAN, make_study

from specdyno.plan.schema import A_A
from specdyno.records.schema import FindingCode
from specdyno.statistics.analyse import analyse
from specdyno.statistics.analysis import Level
from specdyno.statistics.contrasts import (
    a_a_finding,
    bounded_interval,
    bounds_of_log_ratios,
    contrast,
    log_ratios,
    ratio_interval,
)
from specdyno.statistics.intervals import AT_LEAST, AT_MOST, Undefined
from specdyno.statistics.measures import MEASURES


def test_a_faster_candidate_is_positive_whatever_the_direction():
    assert log_ratios({0: 2.0}, {0: 1.0}, sign=1) == ((0, math.log(2)),)
    assert log_ratios({0: 0.5}, {0: 1.0}, sign=-1) == ((0, math.log(2)),)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_a_value_without_a_logarithm_leaves_its_block_out(bad):
    assert log_ratios({0: bad, 1: 1.0}, {0: 1.0, 1: 1.0}, sign=1) == ((1, 0.0),)


def test_the_ratio_is_the_geometric_mean_of_the_blocks():
    interval = ratio_interval([math.log(1.1), math.log(1.2), math.log(1.3), math.log(1.4)], 0.95)
    assert interval.estimate == pytest.approx((1.1 * 1.2 * 1.3 * 1.4) ** 0.25)
    assert interval.low < interval.estimate < interval.high


def test_one_block_has_a_value_and_no_interval():
    one = contrast(((0, 0.1),), measure=MEASURES["jobs_per_s"], cell=("c", "l", None), decides=True)
    assert one.by_block == ((0, 0.1),)
    assert isinstance(one.ratio, Undefined)


def test_only_gated_measures_of_the_mixed_traffic_decide():
    deciding = {
        (c.load, c.measure)
        for c in analyse(make_study(blocks=2)).contrasts
        if not c.exploratory and c.class_name is None
    }
    assert deciding == {
        ("interactive", "time_per_job"),
        ("interactive", "output_tokens_per_job"),
        ("pool", "jobs_per_s"),
        ("pool", "output_tokens_per_job"),
        ("pool", "tpot"),
    }


@pytest.mark.parametrize("scopes", [True, False])
def test_classes_decide_only_where_they_may_be_promoted_apart(scopes):
    interactive, pool = DEFAULT_PLAN["objectives"]
    plan = {**DEFAULT_PLAN, "objectives": [interactive, {**pool, "scopes": scopes}]}
    contrasts = [c for c in analyse(make_study(plan, blocks=2)).contrasts if c.class_name is not None]
    deciding = {(c.load, c.measure) for c in contrasts if not c.exploratory}
    assert deciding == (
        {("pool", name) for name in ("jobs_per_s", "output_tokens_per_job", "tpot")} if scopes else set()
    )


def test_class_windows_alone_speak_of_class_throughput():
    analysis = analyse(make_study(blocks=2))
    loads = {c.load for c in analysis.contrasts if c.class_name == "code" and c.measure == "jobs_per_s"}
    assert loads == {"pool"}


def test_a_baseline_that_differs_from_itself_forbids():
    plan = {**DEFAULT_PLAN, "experiment": {"a_a": True}}
    equal = analyse(make_study(plan, blocks=6, seed=2))
    assert FindingCode.A_A_BEYOND_SPREAD not in {f.code for f in equal.findings}
    other = analyse(make_study(plan, blocks=6, seed=2, speedups={A_A: 1.1}))
    assert FindingCode.A_A_BEYOND_SPREAD in {f.code for f in other.findings}


def test_the_limit_of_the_a_a_check_by_hand():
    def made(ys, name):
        return contrast(tuple(enumerate(ys)), measure=MEASURES["jobs_per_s"], cell=(name, "pool", None), decides=True)

    others = [made([0.01, -0.01, 0.01, -0.01], "c")]  # s = 0.011547, 3 degrees: t(0.995) = 5.840909
    limit = 5.840909 * 0.011547 / 2
    assert a_a_finding(made([limit * 0.99] * 4, A_A), others) is None
    assert a_a_finding(made([limit * 1.01] * 4, A_A), others) is not None
    assert a_a_finding(made([0.5], A_A), []) is None


# ---- values of which only a side is known ----------------------------------------------------------------------------


def rates(arm, bounds):
    """The largest rates of a search: (block, carried, not carried); None where it found no such rate."""
    return Level(arm, "most", None, "largest_rate", Undefined("x"), (), tuple(bounds))


def test_what_is_known_of_y_adds_up_the_doubt_of_both_arms():
    baseline = rates("baseline", [(0, 2, 4), (1, 2, 4), (2, 8, None), (3, None, 1), (4, 8, None)])
    candidate = rates("c", [(0, 4, 8), (1, 8, None), (2, 2, 4), (3, 2, 4), (4, 8, None), (5, 8, None)])
    two = math.log(2)
    assert bounds_of_log_ratios(candidate, baseline) == (
        (0, pytest.approx(0), pytest.approx(2 * two)),  # each between two rates: from 4 / 4 to 8 / 2
        (1, pytest.approx(two), None),  # the candidate carried all, the baseline not 4: at least twice
        (2, None, pytest.approx(-two)),  # the baseline carried all, the candidate not 4: at most half
        (3, pytest.approx(two), None),  # the baseline carried none
        (4, None, None),  # both carried all: nothing is known
    )


def test_a_limit_from_bounds_is_that_of_the_bounds_and_an_unknown_side_stays_open():
    ys = [math.log(r) for r in (1.2, 1.25, 1.3, 1.22)]
    lows, highs = [y - 0.02 for y in ys], [y + 0.03 for y in ys]
    both = bounded_interval(list(zip(lows, highs, strict=True)), ys, 0.95)
    assert (both.low, both.high) == (ratio_interval(lows, 0.95).low, ratio_interval(highs, 0.95).high)
    assert (both.estimate, both.count, both.bound) == (pytest.approx(ratio_interval(ys, 0.95).estimate), 4, "")
    least = bounded_interval([(lows[0], None), *zip(lows[1:], highs[1:], strict=True)], ys[1:], 0.95)
    assert (least.low, least.bound, least.count) == (both.low, AT_LEAST, 4)
    most = bounded_interval([*zip(lows[1:], highs[1:], strict=True), (None, highs[0])], ys[1:], 0.95)
    assert (most.high, most.bound) == (pytest.approx(both.high), AT_MOST)


@pytest.mark.parametrize(
    ("last", "says"), [((None, None), "say nothing in 1 of 4 blocks"), ((None, 0.2), "point both ways of 4 blocks")]
)
def test_blocks_that_bound_no_side_or_both_leave_nothing(last, says):
    found = bounded_interval([(0.1, 0.1), (0.2, None), (0.3, 0.3), last], [], 0.95)
    assert isinstance(found, Undefined)
    assert says in found.reason
