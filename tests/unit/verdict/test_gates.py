import math

import pytest
from scipy import stats

from specdyno.statistics.intervals import Undefined
from specdyno.verdict.decide import blocks_needed
from specdyno.verdict.gates import check_bounds, check_equivalence, check_failures, check_ratio, settle_guards
from specdyno.verdict.levels import nominal_level
from specdyno.verdict.schema import GateStatus

SPREAD = (-0.03, -0.01, 0.01, 0.03)  # mean 0, s = 0.0258199, half of the 95 % interval 0.041085
HALF = 0.041085


def around(mean):
    return [mean + deviation for deviation in SPREAD]


@pytest.mark.parametrize(
    ("mean", "status"),
    [
        (math.log(1.05) + HALF + 1e-4, GateStatus.MET),
        (math.log(1.05) + HALF - 1e-4, GateStatus.UNDECIDED),
        (math.log(1.05) - HALF + 1e-4, GateStatus.UNDECIDED),
        (math.log(1.05) - HALF - 1e-4, GateStatus.MISSED),
    ],
)
def test_the_primary_gate_by_hand(mean, status):
    tested = check_ratio("primary", "jobs_per_s", around(mean), threshold=1.05, alpha=0.05)
    assert tested.gate.status is status


def test_the_p_value_is_scipys():
    ys = around(-0.03)
    tested = check_ratio("tpot", "tpot", ys, threshold=1 / 1.05, alpha=0.05)
    expected = stats.ttest_1samp(ys, math.log(1 / 1.05), alternative="less").pvalue
    assert tested.p_missed == pytest.approx(expected)


def test_what_was_not_measured_is_undecided():
    tested = check_ratio("tpot", "tpot", Undefined("measured in 3 of 4 blocks", 3), threshold=0.95, alpha=0.05)
    assert (tested.gate.status, tested.p_missed) == (GateStatus.UNDECIDED, 1.0)


@pytest.mark.parametrize(
    ("mean", "s", "status"),
    [
        (0.0, 0.005, GateStatus.MET),
        (0.025, 0.001, GateStatus.MET),
        (0.025, 0.02, GateStatus.UNDECIDED),
        (0.06, 0.005, GateStatus.MISSED),
        (-0.06, 0.005, GateStatus.MISSED),
    ],
)
def test_equivalence_of_lengths_either_way(mean, s, status):
    ys = [mean + s * deviation for deviation in (-1, 1, -1, 1)]
    assert check_equivalence("output_length", "x", ys, margin=0.03, alpha=0.05).gate.status is status


def test_equivalence_uses_two_one_sided_tests_at_95():
    # s = 0.0115470 with n = 4: half of the 90 % interval is 2.353363 s / 2 = 0.013587; the margin is log 1.03
    centre = math.log(1.03) - 0.013587
    for shift, status in ((-1e-5, GateStatus.MET), (1e-5, GateStatus.UNDECIDED)):
        ys = [centre + shift + deviation for deviation in (-0.01, 0.01, -0.01, 0.01)]
        assert check_equivalence("output_length", "x", ys, margin=0.03, alpha=0.05).gate.status is status


@pytest.mark.parametrize(
    ("candidate", "baseline", "status"),
    [
        ((0, 40), (0, 40), GateStatus.MET),  # nothing failed: see the gate's docstring
        ((1, 40), (1, 40), GateStatus.UNDECIDED),
        ((3, 5000), (3, 5000), GateStatus.MET),
        ((20, 100), (0, 100), GateStatus.MISSED),
        ((0, 0), (0, 40), GateStatus.UNDECIDED),
    ],
)
def test_failed_requests(candidate, baseline, status):
    assert check_failures(candidate, baseline, margin=0.005, alpha=0.05).gate.status is status


def test_the_p_value_of_failures_is_where_the_bound_touches_the_margin():
    met = check_failures((20, 100), (2, 100), margin=0.005, alpha=0.05)
    for factor, status in ((0.99, GateStatus.UNDECIDED), (1.01, GateStatus.MISSED)):
        again = check_failures((20, 100), (2, 100), margin=0.005, alpha=2 * met.p_missed * factor)
        assert again.gate.status is status


def test_holm_spares_a_guard_that_only_its_own_test_would_break():
    # one-sided p = 0.02 each: below 0.025 alone, above 0.0125 as the smaller of two
    def guard(name):
        t = stats.t.ppf(0.02, 3)
        s = 0.0258199
        ys = [math.log(1 / 1.05) + t * s / 2 + deviation for deviation in SPREAD]
        return check_ratio(name, "tpot", ys, threshold=1 / 1.05, alpha=0.05)

    assert settle_guards([guard("tpot")], alpha=0.05)[0].gate.status is GateStatus.MISSED
    both = settle_guards([guard("tpot"), guard("other")], alpha=0.05)
    assert [tested.gate.status for tested in both] == [GateStatus.UNDECIDED] * 2


@pytest.mark.parametrize(("looks", "m", "level"), [((4,), 1, 0.05), ((4,), 5, 0.01), ((4, 6, 8, 12), 1, 0.0173)])
def test_the_level_is_shared_by_candidates_and_looks(looks, m, level):
    assert nominal_level(looks, 0.05, m) == pytest.approx(level)


@pytest.mark.parametrize(
    ("candidate", "ratio", "status", "blocks"),
    [
        ((1.150, 1.140, 1.152, 1.150), (1.154, 1.129, 1.180), GateStatus.MET, None),
        ((1.085, 1.035, 1.120, 1.055), (1.079, 1.024, 1.136), GateStatus.UNDECIDED, (6, 36)),
    ],
)
def test_the_worked_examples_of_the_documentation(candidate, ratio, status, blocks):
    baseline = (1.000, 0.980, 1.010, 0.990)
    ys = [math.log(theirs / ours) for theirs, ours in zip(candidate, baseline, strict=True)]
    level = nominal_level((4, 6, 8, 12), 0.05, 1)
    checked = check_ratio("primary", "jobs_per_s", ys, threshold=1.05, alpha=level)
    shown = checked.gate.ratio
    assert tuple(round(part, 3) for part in (shown.estimate, shown.low, shown.high)) == ratio
    assert checked.gate.status is status
    assert blocks_needed([checked]) == blocks


@pytest.mark.parametrize(
    ("sides", "status"),
    [
        ([(0.1, None), (0.11, 0.11), (0.12, 0.12), (0.11, 0.11)], GateStatus.MET),
        ([(-0.1, None), (-0.11, -0.11), (-0.12, -0.12), (-0.11, -0.11)], GateStatus.UNDECIDED),
        ([(None, -0.1), (-0.11, -0.11), (-0.12, -0.12), (-0.11, -0.11)], GateStatus.MISSED),
        ([(None, 0.1), (0.11, 0.11), (0.12, 0.12), (0.11, 0.11)], GateStatus.UNDECIDED),
        ([(0.1, None), (None, 0.11), (0.12, 0.12), (0.11, 0.11)], GateStatus.UNDECIDED),
        ([(None, None), (0.11, 0.11), (0.12, 0.12), (0.11, 0.11)], GateStatus.UNDECIDED),
    ],
)
def test_bounds_meet_a_gate_from_below_and_miss_it_from_above_only(sides, status):
    assert (
        check_bounds("primary", "largest_rate", sides, Undefined("x"), threshold=1.05, alpha=0.05).gate.status is status
    )
