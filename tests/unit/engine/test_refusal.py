"""A ready engine that does not run what its arm asks for is refused, with the reason and the fix."""

from __future__ import annotations

import pytest
from tests.unit.engine.arms import BASELINE

from specdyno.engine.base import Adapter
from specdyno.engine.llamacpp import LlamaCppAdapter
from specdyno.engine.refusal import refused
from specdyno.engine.simulated.adapter import SimulatedAdapter
from specdyno.engine.vllm import VllmAdapter
from specdyno.plan.schema import Arm, Engine, EngineKind, Method, Role, Target
from specdyno.records.schema import Identity

TARGET = Target(model="m")
LLAMA = LlamaCppAdapter(Engine(kind=EngineKind.LLAMACPP), TARGET)
VLLM = VllmAdapter(Engine(kind=EngineKind.VLLM), TARGET)


def arm(method: Method = Method.EAGLE3, k: int = 3, role: Role = Role.CANDIDATE) -> Arm:
    return Arm(name="c", role=role, method=method, draft="d", draft_tokens=k)


def reports(**facts) -> Identity:
    return Identity(engine="x", **facts)


@pytest.mark.parametrize(
    "identity",
    [
        reports(),
        reports(speculation=True),
        reports(speculation=True, method="eagle3"),
        reports(speculation=True, method="eagle3", draft_tokens=3),
    ],
)
def test_an_engine_that_runs_what_was_asked_or_does_not_say_is_measured(identity):
    assert refused(identity, arm()) is None


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        (reports(speculation=False), "serves without speculation, c asks for eagle3"),
        (reports(speculation=True, method="eagle"), "asks for method eagle3, the engine runs eagle"),
        (reports(speculation=True, method="eagle3", draft_tokens=2), "asks for 3 draft tokens, in force are 2"),
    ],
)
def test_an_engine_that_runs_something_else_is_refused(identity, reason):
    found = refused(identity, arm())
    assert found is not None
    assert reason in found.reason
    assert found.remedy


@pytest.mark.parametrize("role", [Role.BASELINE, Role.A_A])
def test_a_baseline_that_speculates_is_refused(role):
    without = Arm(name="baseline", role=role)
    assert refused(reports(speculation=False), without) is None
    assert refused(reports(), without) is None
    found = refused(reports(speculation=True, method="ngram"), without)
    assert found is not None
    assert "must not speculate" in found.reason


def test_an_engines_own_word_for_the_same_method_is_no_reason():
    assert refused(reports(speculation=True, method="mtp"), arm(Method.GEMMA4_MTP)) is None


@pytest.mark.parametrize("made", [LLAMA, VLLM])
def test_real_engines_are_held_to_what_was_asked(made: Adapter):
    assert made.refusal(reports(speculation=False), arm(), "") is not None
    assert made.refusal(reports(speculation=True), BASELINE, "") is not None
    assert made.refusal(reports(speculation=True, method="eagle3", draft_tokens=3), arm(), "") is None


def test_the_simulated_engines_faults_are_measured():
    made = SimulatedAdapter(Engine(kind=EngineKind.SIMULATED), TARGET)
    assert made.refusal(reports(speculation=False), arm(), "") is None


def test_vllm_that_read_another_method_in_the_path_is_told_about_paths():
    found = VLLM.refusal(reports(speculation=True, method="eagle", draft_tokens=3), arm(Method.DRAFT_MODEL), "")
    assert found is not None
    assert "path" in found.remedy
    length = VLLM.refusal(reports(speculation=True, method="mtp", draft_tokens=1), arm(Method.GEMMA4_MTP), "")
    assert length is not None
    assert "path" not in length.remedy


LOG = """0.00.100.000 I srv    load_model: loading model 'm.gguf'
0.00.300.000 E srv    load_model: failed to initialize speculative decoding context: {why}
0.00.400.000 I srv  llama_server: model loaded
"""


@pytest.mark.parametrize(
    ("why", "word"),
    [
        ("draft model vocab type must match target model to use speculation", "tokenizer"),
        ("draft model is not eagle3 (expected 3 extract layers, got 0)", "no EAGLE-3 draft"),
        ("DSpark draft has no confidence head: please set --spec-draft-p-min 0", "spec-draft-p-min"),
        ("something that no release said before", "candidates[].draft"),
    ],
)
def test_llamacpps_own_reason_for_serving_without_speculation_is_named(why, word):
    found = LLAMA.refusal(reports(speculation=False), arm(), LOG.format(why=why))
    assert found is not None
    assert found.reason.endswith(f": {why}")
    assert word in found.remedy


def test_llamacpp_that_gives_no_reason_is_refused_all_the_same():
    found = LLAMA.refusal(reports(speculation=False), arm(), "")
    assert found is not None
    assert "no reason" in found.reason


def test_a_memory_that_cannot_take_tokens_back_is_named():
    log = "0.00.300.000 W srv    load_model: speculative decoding not supported by this context\n"
    found = LLAMA.refusal(reports(speculation=False), arm(), log)
    assert found is not None
    assert "not supported by this context" in found.reason
    assert "baseline" in found.remedy
