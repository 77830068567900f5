"""The laws of the verdict: doubt never lifts, swapping inverts, scale is irrelevant, every input has one verdict."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.simulation.generator import DEFAULT_PLAN, Truth, make_study

from specdyno.records.schema import BootStatus, Finding, FindingCode, Severity
from specdyno.statistics.contrasts import log_ratios, ratio_interval
from specdyno.statistics.intervals import Interval, clopper_pearson, difference_of_shares, t_interval, wilson
from specdyno.verdict.decide import decide, judge, weigh
from specdyno.verdict.gates import Checked, check_ratio, settle_guards
from specdyno.verdict.schema import ORDER, Decision, Gate, GateStatus, Verdict, to_json

SLOW = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ARMS = ("eagle3-k1", "eagle3-k3", "ngram-k3")
PRIMARIES = ("time_per_job", "jobs_per_s")
logs = st.floats(-0.5, 0.5)
y_lists = st.lists(logs, min_size=4, max_size=12)


@cache
def judged():
    records = make_study(blocks=6)
    return records, *judge(records)


def with_primaries(analysis, ys):
    """The analysis with y_b replaced: `ys` maps candidate -> values by block, for the primary measures."""
    contrasts = tuple(
        replace(c, by_block=tuple(enumerate(ys[c.candidate])))
        if c.measure in PRIMARIES and c.class_name is None and c.candidate in ys
        else c
        for c in analysis.contrasts
    )
    return replace(analysis, contrasts=contrasts)


def heights(verdict: Verdict) -> list[int]:
    parts = [c.decision for o in verdict.objectives for c in o.candidates]
    return [ORDER.index(d) for d in (*parts, *(o.decision for o in verdict.objectives), verdict.outcome)]


about = st.builds(
    lambda mean, spread, shape: [mean + spread * y for y in shape],
    st.floats(-0.2, 0.4),
    st.sampled_from([0.0, 0.01, 0.05]),
    st.lists(st.floats(-1, 1), min_size=6, max_size=6),
)
blocks_of = st.fixed_dictionaries(dict.fromkeys(ARMS, about))
doubts = st.builds(
    Finding,
    st.sampled_from(FindingCode),
    st.sampled_from(Severity),
    st.just("anywhere"),
    st.just(""),
    st.sampled_from([None, "baseline", *ARMS]),
    st.sampled_from([None, "interactive", "pool"]),
)


@SLOW
@given(ys=blocks_of, doubt=doubts)
def test_a_finding_never_moves_a_verdict_up(ys, doubt):
    records, analysis, _ = judged()
    analysis = with_primaries(analysis, ys)
    before = heights(decide(records, analysis))
    after = heights(decide(records, replace(analysis, findings=(*analysis.findings, doubt))))
    assert all(new <= old for new, old in zip(after, before, strict=True))


@SLOW
@given(ys=blocks_of, drop=st.floats(0, 0.5))
def test_lowering_every_block_by_the_same_amount_never_moves_a_verdict_up(ys, drop):
    records, analysis, _ = judged()
    lower = {arm: [y - drop for y in values] for arm, values in ys.items()}
    before = heights(decide(records, with_primaries(analysis, ys)))
    after = heights(decide(records, with_primaries(analysis, lower)))
    assert all(new <= old for new, old in zip(after, before, strict=True))


@SLOW
@given(ys=blocks_of, arm=st.sampled_from(ARMS))
def test_a_failed_guard_never_moves_a_verdict_up(ys, arm):
    records, analysis, _ = judged()
    analysis = with_primaries(analysis, ys)
    failing = tuple(
        replace(c, by_block=tuple((b, -1.0 + 0.001 * b) for b, _ in c.by_block))
        if c.measure == "tpot" and c.class_name is None and c.candidate == arm
        else c
        for c in analysis.contrasts
    )
    before, after = (decide(records, a) for a in (analysis, replace(analysis, contrasts=failing)))
    assert all(new <= old for new, old in zip(heights(after), heights(before), strict=True))
    pool = next(c for c in after.objectives[1].candidates if c.candidate == arm)
    assert pool.decision is Decision.REJECT


@given(ys=y_lists)
def test_swapping_the_arms_inverts_the_ratio(ys):
    forth, back = ratio_interval(ys, 0.95), ratio_interval([-y for y in ys], 0.95)
    assert isinstance(forth, Interval)
    assert isinstance(back, Interval)
    assert (back.estimate, back.low, back.high) == pytest.approx((1 / forth.estimate, 1 / forth.high, 1 / forth.low))


@given(
    values=st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=1, max_size=8),
    scale=st.floats(1e-6, 1e6),
    sign=st.sampled_from([-1, 1]),
)
def test_a_common_scale_changes_nothing(values, scale, sign):
    sides = [{block: pair[side] for block, pair in enumerate(values)} for side in (0, 1)]
    scaled = [{block: value * scale for block, value in side.items()} for side in sides]
    first, second = log_ratios(*sides, sign=sign), log_ratios(*scaled, sign=sign)
    assert [y for _, y in first] == pytest.approx([y for _, y in second], abs=1e-9)


def test_a_host_of_half_the_speed_gives_the_same_decisions():
    slow = Truth(ttft_ms=40.0, step_ms=20.0)
    first, second = (judge(make_study(blocks=4, truth=truth))[1] for truth in (Truth(), slow))
    assert heights(first) == heights(second)


guards = st.lists(st.tuples(st.floats(0, 1), st.sampled_from(GateStatus)), min_size=1, max_size=5)


@given(parts=guards, order=st.randoms(use_true_random=False))
def test_the_order_of_the_guards_is_irrelevant(parts, order):
    primary = check_ratio("primary", "jobs_per_s", [0.1, 0.11, 0.12, 0.13], threshold=1.05, alpha=0.05)
    tested = [
        Checked(Gate(f"guard {i}", "tpot", status, Interval(1, 1, 1, 0.95, "", 4), 1, 0.05), p)
        for i, (p, status) in enumerate(parts)
    ]
    shuffled = order.sample(tested, len(tested))
    first, second = (weigh((primary, *settle_guards(gates, alpha=0.05)), blocks=4) for gates in (tested, shuffled))
    assert first == second


@given(ys=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20), level=st.floats(0.5, 0.999))
def test_an_interval_holds_its_estimate(ys, level):
    interval = t_interval(ys, level)
    assert isinstance(interval, Interval)
    assert interval.low <= interval.estimate <= interval.high


@given(data=st.data(), count=st.integers(1, 10_000), level=st.floats(0.5, 0.999))
def test_a_share_and_its_bounds_stay_within_0_and_1(data, count, level):
    successes = data.draw(st.integers(0, count))
    for interval in (wilson(successes, count, level), clopper_pearson(successes, count, level)):
        assert isinstance(interval, Interval)
        assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    both = difference_of_shares((successes, count), (count - successes, count), level)
    assert isinstance(both, Interval)
    assert -1 <= both.low <= both.estimate <= both.high <= 1


# --- any records give exactly one verdict ----------------------------------------------------------------------------

FLOATS = ("tokens", "prompt_tokens", "spec_steps", "spec_drafted", "spec_accepted")
STAMPS = ("intended_ns", "sent_ns", "first_text_ns", "last_text_ns", "ended_ns", "longest_gap_ns")
BAD = (math.nan, math.inf, -math.inf, 0.0, -1.0, 1e300)


@cache
def small(per_request):
    plan = {**DEFAULT_PLAN, "experiment": {"looks": [2, 4], "a_a": True}}
    return make_study(plan, blocks=4, truth=Truth(requests=6, per_request=per_request))


@st.composite
def damaged(draw):
    """A study with rows, boots and windows missing or wrong."""
    records = small(draw(st.booleans()))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    requests = records.requests
    hurt = rng.random(len(requests)) < draw(st.sampled_from([0.0, 0.1, 1.0]))
    columns = {}
    for name in draw(st.lists(st.sampled_from(FLOATS + STAMPS), max_size=3, unique=True)):
        column = getattr(requests, name).copy()
        column[hurt] = draw(st.sampled_from(BAD)) if name in FLOATS else draw(st.sampled_from([-1, 0, 2**62]))
        columns[name] = column
    if draw(st.booleans()):
        columns["outcome_code"] = np.where(hurt, draw(st.integers(0, 5)), requests.outcome_code).astype(np.int8)
    for name in draw(st.lists(st.sampled_from(["spec_reached", "spec_at_risk"]), unique=True)):
        columns[name] = np.full_like(getattr(requests, name), draw(st.sampled_from(BAD)))
    share = draw(st.sampled_from([1.0, 0.9, 0.3, 0.0]))
    boots = tuple(
        replace(b, status=draw(st.sampled_from(BootStatus))) if rng.random() < 0.05 else b
        for b in records.boots
        if rng.random() <= share
    )
    windows = tuple(w for w in records.windows if rng.random() <= share)
    if draw(st.booleans()):
        windows = tuple(replace(w, ended_ns=w.started_ns if rng.random() < 0.2 else w.ended_ns) for w in windows)
    if draw(st.booleans()):
        boots = tuple(replace(b, arm=draw(st.sampled_from(["x", b.arm])), identity=None) for b in boots)
    return replace(records, requests=replace(requests, **columns), boots=boots, windows=windows)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(records=damaged())
def test_any_records_give_exactly_one_verdict_and_no_number_without_data(records):
    analysis, verdict = judge(records)
    assert [o.objective for o in verdict.objectives] == ["interactive", "background pool"]
    assert all([c.candidate for c in o.candidates] == list(ARMS) for o in verdict.objectives)
    text = to_json(verdict, analysis)
    assert text == to_json(*reversed(judge(records)))
    for level in analysis.levels:
        assert level.by_block or not isinstance(level.value, Interval) or level.measure == "failed_share"
    for curve in analysis.curves:
        for estimate in (*curve.joint, *curve.conditional, curve.rate, curve.mean_accepted_length):
            assert not isinstance(estimate, Interval) or estimate.low <= estimate.estimate <= estimate.high


def test_no_boots_at_all_hold_for_want_of_blocks():
    records = replace(small(per_request=True), boots=(), windows=())
    _, verdict = judge(records)
    assert (verdict.outcome, verdict.blocks_complete) == (Decision.HOLD, 0)
