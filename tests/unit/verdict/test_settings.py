"""What to deploy: the recommended arm, the classes it holds for, and the load range that a ladder shows."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.report.test_traffic import EMPTY
from tests.unit.statistics.test_ladder import LADDER, contrasts, falling

from specdyno.engine.llamacpp import LlamaCppAdapter
from specdyno.engine.vllm import VllmAdapter
from specdyno.plan import parse
from specdyno.plan.schema import Arm, Engine, EngineKind, Method, Role, Target
from specdyno.report import traffic
from specdyno.statistics.ladder import ladders
from specdyno.verdict.schema import CandidateVerdict, Decision, ObjectiveVerdict, Reason, Scope, Verdict
from specdyno.verdict.settings import recommendations

PLAN = parse.parse("""
study: s
target: {model: m}
engine: {kind: vllm}
candidates: [{method: ngram, draft_tokens: [3]}]
workload:
  sampling: {temperature: 0}
  classes:
    - {name: code, prompts: builtin:code, share: 0.5, max_tokens: 8}
    - {name: chat, prompts: builtin:chat, share: 0.5, max_tokens: 8}
loads: [{name: x, concurrency: 1, window: 10s}]
objectives: [{name: o, load: x, measure: jobs_per_s}]
""")


def verdict(decision: Decision, scope: Scope | None = None) -> Verdict:
    one = CandidateVerdict("c", decision, Reason.GAIN_SHOWN, None, (), 4, (), scope=scope)
    recommended = "c" if decision is Decision.PROMOTE else None
    objective = ObjectiveVerdict("o", "x", "jobs_per_s", 0.05, decision, recommended, "c", (one,), 0.05, None)
    return Verdict("s", decision, (objective,), "not measured", 4, 0, (4,), (), {})


def test_a_promote_names_its_arm_for_all_classes():
    (one,) = recommendations(verdict(Decision.PROMOTE), EMPTY, PLAN)
    assert (one.arm, one.classes, one.others, one.up_to) == ("c", ("code", "chat"), (), None)


def test_a_scoped_promote_names_the_classes_that_stay_without():
    scope = Scope(("code",), (), undecided=False, cells=())
    (one,) = recommendations(verdict(Decision.PROMOTE, scope), EMPTY, PLAN)
    assert (one.classes, one.others) == (("code",), ("chat",))


def test_hold_and_reject_deploy_nothing():
    for decision in (Decision.HOLD, Decision.REJECT):
        (one,) = recommendations(verdict(decision), EMPTY, PLAN)
        assert one.arm is None


def test_a_ladder_that_crosses_limits_the_load_range():
    crossing = replace(EMPTY, ladders=ladders([LADDER], contrasts(falling(0.1, 5.0))))
    assert recommendations(verdict(Decision.PROMOTE), crossing, PLAN)[0].up_to == 4
    paying = replace(EMPTY, ladders=ladders([LADDER], contrasts({n: [0.2, 0.21] for n in (1, 2, 4, 8, 16)})))
    assert recommendations(verdict(Decision.PROMOTE), paying, PLAN)[0].up_to is None


def test_a_scope_reaches_as_far_as_the_ladders_of_its_classes():
    by_class = (
        contrasts(falling(0.1, 5.0))
        + contrasts(falling(0.1, 2.5), name="code")
        + contrasts(falling(0.1, 5.0), name="chat")
    )
    crossing = replace(EMPTY, ladders=ladders([LADDER], by_class))
    scope = Scope(("code",), (), undecided=False, cells=())
    assert recommendations(verdict(Decision.PROMOTE, scope), crossing, PLAN)[0].up_to == 2
    (said,) = traffic.reach(verdict(Decision.PROMOTE, scope).objectives[0], crossing)
    assert said == "Over pool, class code: shown to pay up to 2 in flight, above that it is not."
    (said,) = traffic.reach(verdict(Decision.PROMOTE).objectives[0], crossing)
    assert said == "Over pool: shown to pay up to 4 in flight, above that it is not."
    assert traffic.reach(verdict(Decision.HOLD).objectives[0], crossing) == ()


def test_vllm_can_switch_by_batch_size_where_the_method_allows_it():
    def arm(method: Method) -> Arm:
        return Arm(name="c", role=Role.CANDIDATE, method=method, draft="d", draft_tokens=3)

    vllm = VllmAdapter(Engine(kind=EngineKind.VLLM), Target(model="m"))
    flags = vllm.deployment_up_to(arm(Method.EAGLE3), 4)
    assert flags is not None
    assert '"num_speculative_tokens_per_batch_size":[[1,4,3],[5,5,0]]' in flags[1]
    assert vllm.deployment_up_to(arm(Method.SUFFIX), 4) is None
    assert LlamaCppAdapter(Engine(kind=EngineKind.LLAMACPP), Target(model="m")).deployment_up_to(
        arm(Method.EAGLE3), 4
    ) is None  # fmt: skip
