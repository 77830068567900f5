"""What every adapter owes the rest of the program, checked on running engines."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.engine.live import ARMS, Measured, boot_failure, contract_plan, measured, recorded, why_not

from specdyno.plan.schema import Method
from specdyno.records.schema import FindingCode, Outcome, Severity
from specdyno.statistics.intervals import Interval
from specdyno.verdict.decide import judge
from specdyno.verdict.schema import Decision

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]
CANDIDATES = [(kind, name) for kind, name in ARMS if name != "baseline"]
BASELINES = [(kind, name) for kind, name in ARMS if name == "baseline"]
KINDS = [kind for kind, name in BASELINES]
SAME_METHOD = {Method.GEMMA4_MTP: "mtp"}  # vLLM's own word for it


def _spec_sum(boot: Measured, field: str) -> int:
    return sum(getattr(row.spec, field) or 0 for row in boot.rows if row.spec is not None)


@pytest.mark.parametrize(("kind", "name"), ARMS)
def test_every_request_is_answered_and_counted_in_tokens(kind, name):
    boot = measured(kind, name)
    assert {row.outcome for row in boot.rows} <= {Outcome.FINISHED, Outcome.CUT_AT_LIMIT}
    assert all(row.completion_tokens and row.prompt_tokens for row in boot.rows)
    assert all(row.text for row in boot.rows)


@pytest.mark.parametrize(("kind", "name"), CANDIDATES)
def test_method_and_draft_length_in_force_are_those_asked_for(kind, name):
    boot = measured(kind, name)
    assert boot.identity.speculation is True
    assert boot.identity.method == SAME_METHOD.get(boot.arm.method, str(boot.arm.method))
    assert boot.identity.draft_tokens == boot.arm.draft_tokens


@pytest.mark.parametrize(("kind", "name"), BASELINES)
def test_the_baseline_does_not_speculate(kind, name):
    boot = measured(kind, name)
    assert not boot.identity.speculation
    assert not boot.delta.drafts
    assert all(row.spec is None or not row.spec.num_draft_tokens for row in boot.rows)


@pytest.mark.parametrize(("kind", "name"), CANDIDATES)
def test_counters_by_position_move_and_keep_their_identities(kind, name):
    delta = measured(kind, name).delta
    assert delta.drafts
    assert delta.draft_tokens
    assert delta.accepted_tokens is not None
    positions = delta.accepted_per_position
    assert positions is not None
    assert sum(positions) == delta.accepted_tokens
    assert list(positions) == sorted(positions, reverse=True)
    assert delta.mean_accepted_length == pytest.approx(1 + sum(delta.joint or ()))
    assert delta.problems == ()


@pytest.mark.parametrize(("kind", "name"), ARMS)
def test_the_engine_counted_the_tokens_that_the_client_got(kind, name):
    boot = measured(kind, name)
    assert boot.delta.generation_tokens == sum(row.completion_tokens or 0 for row in boot.rows)


@pytest.mark.parametrize(("kind", "name"), CANDIDATES)
def test_acceptance_of_the_answers_adds_up_to_the_counters(kind, name):
    boot = measured(kind, name)
    assert _spec_sum(boot, "num_draft_tokens") == boot.delta.draft_tokens
    assert _spec_sum(boot, "num_accepted_draft_tokens") == boot.delta.accepted_tokens
    if kind != "llamacpp":  # its answers do not say how many steps were drafted
        assert _spec_sum(boot, "num_spec_steps") == boot.delta.drafts


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, name in ARMS if kind != "llamacpp"])
def test_generated_tokens_are_decode_steps_plus_accepted_less_the_trimmed_tail(kind, name):
    delta = measured(kind, name).delta
    emitted = delta.generation_tokens - delta.first_tokens
    trimmed = delta.decode_steps + (delta.accepted_tokens or 0) - emitted
    assert 0 <= trimmed <= len(measured(kind, name).rows) * (measured(kind, name).arm.draft_tokens or 0)


@pytest.mark.parametrize(("kind", "name"), CANDIDATES)
def test_answers_begin_as_the_baselines_do(kind, name):
    baseline, candidate = measured(kind, "baseline").rows, measured(kind, name).rows
    by_prompt = {row.prompt_id: row.text for row in baseline}
    begin_alike = sum(by_prompt[row.prompt_id][:12] == row.text[:12] for row in candidate)
    equal = sum(by_prompt[row.prompt_id] == row.text for row in candidate)
    # Verification runs more rows than plain decoding, so a near-tie may fork; a wrong draft path forks at once.
    assert begin_alike >= 0.75 * len(candidate)
    assert equal == len(candidate) if kind == "simulated" else equal > 0


@pytest.mark.parametrize(("kind", "name"), ARMS)
def test_nothing_is_left_running_and_the_port_is_free(kind, name):
    assert measured(kind, name).family_gone


@pytest.mark.parametrize("kind", KINDS)
def test_the_verdict_machinery_reads_the_boots_of_all_arms_as_a_study(kind):
    records = recorded(kind)
    analysis, verdict = judge(records)
    # One block settles nothing, and a simulated engine never will: anything but a hold would be a wrong decision.
    assert verdict.outcome is Decision.HOLD
    assert (verdict.blocks_complete, verdict.blocks_incomplete) == (1, 0)
    (objective,) = verdict.objectives
    arms = {name for of_kind, name in CANDIDATES if of_kind == kind}
    assert {one.candidate for one in objective.candidates} == arms
    curves = {curve.arm: curve for curve in analysis.curves if curve.class_name is None and curve.arm in arms}
    for name, curve in curves.items():
        assert curve.draft_tokens == measured(kind, name).arm.draft_tokens
        assert isinstance(curve.mean_accepted_length, Interval)
    assert set(curves) == arms
    forbid = {finding.code for finding in verdict.findings if finding.severity is Severity.FORBIDS}
    allowed = {FindingCode.TOO_FEW_BLOCKS, FindingCode.SIMULATED_ENGINE}
    if FindingCode.HOST_BUSY in {finding.code for finding in verdict.findings}:
        allowed |= {FindingCode.CLIENT_AT_CEILING}  # others on the host stopped the client, and it was seen
    assert forbid <= allowed, verdict.findings


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, name in CANDIDATES if kind.startswith("vllm")])
def test_vllm_reports_ordered_steps_with_each_answer(kind, name):
    boot = measured(kind, name)
    for row in boot.rows:
        assert row.spec is not None
        assert row.spec.source == "vllm per-request detailed"
        assert row.spec.per_step_accepted is not None
        assert sum(row.spec.per_step_accepted) == row.spec.num_accepted_draft_tokens


@pytest.mark.parametrize("kind", ["llamacpp", "vllm"])
def test_a_wrong_model_is_an_engine_error_with_the_engines_own_words(kind, tmp_path: Path):
    if reason := why_not(kind):
        pytest.skip(reason)
    plan = contract_plan(kind)
    wrong = plan.target.model_copy(update={"model": "nobody/no-such-model"})
    error = asyncio.run(boot_failure(plan.model_copy(update={"target": wrong}), tmp_path / "engine.log"))
    assert "ended with code" in str(error)
    assert error.log_tail
    assert error.remedy


@pytest.mark.parametrize(("kind", "name"), [("vllm", "eagle3-k3")])
def test_the_settings_in_force_are_on_record(kind, name):
    settings = measured(kind, name).identity.settings
    assert settings["scheduler_config.max_num_seqs"] == 4
    assert settings["model_config.max_model_len"] == 2048
    assert not any("token" in key and "hf" in key for key in settings)


def test_ngram_coverage_is_below_one():
    delta = measured("vllm", "ngram-k5").delta
    assert measured("vllm", "ngram-k5").arm.method is Method.NGRAM
    assert delta.drafts < delta.decode_steps
