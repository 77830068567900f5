import math
from dataclasses import replace

import numpy as np
import pytest
from tests.simulation.generator import Truth, make_study

from specdyno.statistics.acceptance import measure_curve, tally_counters, tally_requests
from specdyno.statistics.analyse import analyse, plan_of
from specdyno.statistics.blocks import sort_blocks
from specdyno.statistics.intervals import Interval, Undefined
from specdyno.statistics.resampling import generator_for, resampled_sums
from specdyno.statistics.shares import Share, share_interval
from specdyno.statistics.survival import Exposure, survival
from specdyno.statistics.windows import view_windows


def views_of(records, arm, load="interactive"):
    boots = [boots[arm] for boots in sort_blocks(records, plan_of(records)).scored.values()]
    return [v for v in view_windows(records, boots) if v.record.load == load and v.record.class_name is None]


def curve_of(analysis, arm, load="interactive", class_name=None):
    return next(c for c in analysis.curves if (c.arm, c.load, c.class_name) == (arm, load, class_name))


def test_joint_rates_add_up_to_the_mean_accepted_length():
    for curve in analyse(make_study(blocks=4)).curves:
        total = 1 + math.fsum(q.estimate for q in curve.joint)
        assert curve.mean_accepted_length.estimate == pytest.approx(total)


def test_pooled_rates_equal_the_counts_by_hand():
    records = make_study(blocks=4)
    curve = curve_of(analyse(records), "eagle3-k3")
    rows = np.concatenate([view.rows for view in views_of(records, "eagle3-k3")])
    table = records.requests
    steps, reached, at_risk = (
        np.nansum(t[rows], axis=0) for t in (table.spec_steps, table.spec_reached, table.spec_at_risk)
    )
    assert [q.estimate for q in curve.joint] == pytest.approx((reached / steps).tolist())
    assert [c.estimate for c in curve.conditional] == pytest.approx((reached / at_risk).tolist())
    assert curve.rate.estimate == pytest.approx(
        np.nansum(table.spec_accepted[rows]) / np.nansum(table.spec_drafted[rows])
    )


def test_answers_and_counters_tell_the_same():
    views = views_of(make_study(blocks=4), "ngram-k3")
    reported, counted = tally_requests(views, 3), tally_counters(views, 3)
    for name in ("steps", "drafted", "accepted", "reached", "emitted"):
        assert np.sum(getattr(reported, name)) == np.sum(getattr(counted, name)), name
    # the estimate of all steps from one answer misses its trimmed tail, at most K tokens each
    assert 0 <= np.sum(counted.decode_steps) - np.sum(reported.decode_steps) <= 3 * reported.requests


@pytest.mark.parametrize("per_request", [True, False])
def test_the_true_rates_lie_within_twice_the_interval(per_request):
    truth = Truth(acceptance={"code": (0.7, 0.5, 0.4), "chat": (0.7, 0.5, 0.4)}, per_request=per_request, requests=60)
    curve = curve_of(analyse(make_study(blocks=6, truth=truth)), "eagle3-k3")
    assert curve.source == ("per-request detailed" if per_request else "counters")
    for estimate, true in zip(curve.conditional, (0.7, 0.5, 0.4), strict=True):
        assert abs(estimate.estimate - true) < estimate.high - estimate.low


def test_coverage_of_a_drafter_that_does_not_always_draft():
    curve = curve_of(analyse(make_study(blocks=4)), "ngram-k3")
    assert curve.coverage.estimate == pytest.approx(0.4, abs=0.05)
    assert curve.tokens_per_step.estimate < curve.mean_accepted_length.estimate


def test_four_boots_are_the_replicates_and_fewer_are_not():
    methods = {b: curve_of(analyse(make_study(blocks=b)), "eagle3-k3").joint[0].method for b in (1, 3, 4)}
    assert methods == {
        1: "bootstrap over requests, within one boot",
        3: "bootstrap over requests, within 3 boots",
        4: "t over boot-level logits",
    }


def test_counters_know_no_classes():
    analysis = analyse(make_study(blocks=4, truth=Truth(per_request=False)))
    curve = curve_of(analysis, "eagle3-k3", class_name="code")
    assert isinstance(curve.mean_accepted_length, Undefined)


def test_what_was_never_drafted_is_undefined_with_a_reason():
    share = Share(np.zeros(3), np.zeros(3), np.arange(3), units="requests")
    assert share_interval(share, seed=1, name="x/rate") == Undefined("nothing was drafted")


def test_conditional_rates_need_the_length_of_each_draft():
    records = make_study(blocks=4)
    requests = replace(
        records.requests,
        spec_at_risk=np.full_like(records.requests.spec_at_risk, np.nan),
        spec_drafted=records.requests.spec_drafted * 0.9,
    )
    curve = measure_curve(
        views_of(replace(records, requests=requests), "eagle3-k3"), ("eagle3-k3", "interactive", "code"), k=3, seed=1
    )
    assert isinstance(curve.joint[0], Interval)
    assert curve.conditional[0] == Undefined("the length of each draft is not reported", curve.requests)


def test_an_acceptance_of_one_keeps_an_interval():
    part = np.full(6, 20.0)
    interval = share_interval(Share(part, part, np.array([0, 0, 0, 1, 1, 1]), units="requests"), seed=1, name="x/joint")
    assert (interval.estimate, interval.high) == (1.0, 1.0)
    assert interval.low == pytest.approx(0.969, abs=1e-3)


def test_resampling_is_deterministic_and_has_the_textbook_spread():
    columns = np.random.default_rng(5).normal(10, 2, (200, 1))
    sums = resampled_sums(columns, generator_for(7, "a"), resamples=4000)
    assert np.array_equal(sums, resampled_sums(columns, generator_for(7, "a"), resamples=4000))
    assert not np.array_equal(sums[:10], resampled_sums(columns, generator_for(7, "b"), resamples=10))
    assert sums.std() == pytest.approx(columns.std() * math.sqrt(200), rel=0.05)


def test_the_product_of_conditional_rates_equals_the_joint_ones_at_a_fixed_draft_length():
    for curve in analyse(make_study(blocks=4)).curves:
        if curve.arm.startswith("eagle3"):
            for p, q in zip(curve.survival, curve.joint, strict=True):
                assert (p.estimate, p.low, p.high) == pytest.approx((q.estimate, q.low, q.high))


def test_drafts_cut_short_at_random_lower_the_joint_rate_but_not_the_corrected_one():
    rng = np.random.default_rng(5)
    true, boots, steps = np.array([0.8, 0.7, 0.6]), 6, 4000
    reached, at_risk = np.zeros((boots, 3)), np.zeros((boots, 3))
    for boot in range(boots):
        accepted = np.cumprod(rng.random((steps, 3)) < true, axis=1).sum(axis=1)
        drafted = rng.integers(1, 4, steps)
        accepted = np.minimum(accepted, drafted)
        reached[boot] = [(accepted > i).sum() for i in range(3)]
        at_risk[boot] = [((drafted > i) & (accepted >= i)).sum() for i in range(3)]
    found = survival(Exposure(reached, at_risk, np.arange(boots), "boots"), seed=1, name="x")
    assert [p.estimate for p in found] == pytest.approx(np.cumprod(true).tolist(), abs=0.015)
    assert all(p.low < t < p.high for p, t in zip(found, np.cumprod(true), strict=True))
    assert reached[:, 2].sum() / (boots * steps) < 0.2 < found[2].low


@pytest.mark.parametrize(("rows", "method"), [(1, "Wilson"), (40, "bootstrap over requests, within one boot")])
def test_one_boot_gives_a_corrected_rate_that_says_so(rows, method):
    rng = np.random.default_rng(6)
    reached = np.column_stack([rng.integers(5, 9, rows), rng.integers(1, 5, rows)]).astype(float)
    exposure = Exposure(reached, np.column_stack([np.full(rows, 10.0), reached[:, 0]]), np.zeros(rows), "requests")
    assert all(p.method.startswith(method) for p in survival(exposure, seed=1, name="x"))


def test_without_lengths_or_without_any_step_there_is_no_corrected_rate():
    unknown = survival(Exposure(np.ones((3, 2)), np.full((3, 2), np.nan), np.arange(3), "requests"), seed=1, name="x")
    never = survival(Exposure(np.zeros((3, 2)), np.zeros((3, 2)), np.arange(3), "requests"), seed=1, name="x")
    assert all(isinstance(p, Undefined) for p in (*unknown, *never))
