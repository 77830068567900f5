"""The laws where classes may be promoted apart and candidates race: doubt and lower gains still lift nothing."""

from dataclasses import replace
from functools import cache

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.simulation.generator import DEFAULT_PLAN, make_study

from specdyno.records.schema import Finding, FindingCode, Severity
from specdyno.verdict.decide import decide, judge
from specdyno.verdict.schema import ORDER, Decision

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ARMS = ("eagle3-k1", "eagle3-k3")
CLASSES = ("code", "chat")
BLOCKS = 8
PLAN = {
    **DEFAULT_PLAN,
    "candidates": [{"method": "eagle3", "draft": "org/draft", "draft_tokens": [1, 3]}],
    "loads": [DEFAULT_PLAN["loads"][1]],
    "objectives": [DEFAULT_PLAN["objectives"][1]],
    "experiment": {"looks": [4, 6, 8]},
}


@cache
def judged():
    records = make_study(PLAN, blocks=BLOCKS)
    return records, judge(records)[0]


def with_ys(analysis, ys, *, drop=0.0):
    """y of the primary measure by (arm, class or None) replaced, all lowered by `drop`."""
    contrasts = tuple(
        replace(c, by_block=tuple((b, y - drop) for b, y in enumerate(ys[c.candidate, c.class_name])))
        if c.measure == "jobs_per_s"
        else c
        for c in analysis.contrasts
    )
    return replace(analysis, contrasts=contrasts)


def about():
    shape = st.lists(st.floats(-1, 1), min_size=BLOCKS, max_size=BLOCKS)
    return st.builds(
        lambda mean, spread, shape: [mean + spread * y for y in shape],
        st.floats(-0.1, 0.4),
        st.sampled_from([0.002, 0.01, 0.04]),
        shape,
    )


studies = st.fixed_dictionaries({(arm, name): about() for arm in ARMS for name in (None, *CLASSES)})


def heights(verdict):
    objective = verdict.objectives[0]
    return [ORDER.index(part.decision) for part in (*objective.candidates, objective)]


def never_up(before, after):
    assert all(new <= old for new, old in zip(heights(after), heights(before), strict=True))


@SLOW
@given(ys=studies, drop=st.floats(0, 0.5))
def test_lowering_every_y_never_lifts_a_verdict_or_opens_a_scope(ys, drop):
    records, analysis = judged()
    before, after = (decide(records, with_ys(analysis, ys, drop=d)) for d in (0.0, drop))
    never_up(before, after)
    for old, new in zip(before.objectives[0].candidates, after.objectives[0].candidates, strict=True):
        if old.scope is not None and new.scope is not None:
            assert {*new.scope.classes, *new.scope.to_confirm} <= {*old.scope.classes, *old.scope.to_confirm}


@SLOW
@given(ys=studies, lower=st.floats(0, 0.5), arm=st.sampled_from(ARMS))
def test_lowering_the_whole_traffic_alone_lifts_nothing_either(ys, lower, arm):
    records, analysis = judged()
    changed = {**ys, (arm, None): [y - lower for y in ys[arm, None]]}
    never_up(*(decide(records, with_ys(analysis, values)) for values in (ys, changed)))


@SLOW
@given(ys=studies, code=st.sampled_from(FindingCode), severity=st.sampled_from(Severity), arm=st.sampled_from(ARMS))
def test_a_finding_about_the_leader_lifts_no_laggard(ys, code, severity, arm):
    records, analysis = judged()
    analysis = with_ys(analysis, ys)
    doubted = replace(analysis, findings=(*analysis.findings, Finding(code, severity, "x", arm=arm)))
    never_up(decide(records, analysis), decide(records, doubted))


@SLOW
@given(ys=studies, arm=st.sampled_from(ARMS), guard=st.sampled_from(["tpot", "output_tokens_per_job"]))
def test_a_broken_guard_of_the_whole_closes_every_scope(ys, arm, guard):
    records, analysis = judged()
    analysis = with_ys(analysis, ys)
    broken = tuple(
        replace(c, by_block=tuple((b, -1.0 + 0.001 * b) for b, _ in c.by_block))
        if (c.candidate, c.measure, c.class_name) == (arm, guard, None)
        else c
        for c in analysis.contrasts
    )
    before, after = decide(records, analysis), decide(records, replace(analysis, contrasts=broken))
    never_up(before, after)
    assert next(c for c in after.objectives[0].candidates if c.candidate == arm).decision is Decision.REJECT


@SLOW
@given(ys=studies)
def test_a_scope_is_promoted_only_where_its_class_was_measured_alone_and_crossed(ys):
    records, analysis = judged()
    for one in decide(records, with_ys(analysis, ys)).objectives[0].candidates:
        if one.scope is None:
            continue
        crossed = [cell.class_name for cell in one.scope.cells if cell.look is not None]
        assert set(one.scope.classes) <= set(crossed)
        assert len(one.scope.classes) <= 1
        assert set(one.scope.to_confirm) <= set(crossed)
        assert len(one.scope.to_confirm) != 1
        if one.decision is Decision.PROMOTE:
            assert one.scope.classes
