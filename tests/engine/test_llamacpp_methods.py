"""llama.cpp's methods live: each drafts as it was asked to, changes no answer, and accepts what was recorded."""

from __future__ import annotations

import asyncio
import functools
import os
from pathlib import Path

import pytest
from tests.engine.live import why_not

from lab import acceptance, boots, llamacpp_methods
from specdyno.errors import EngineError
from specdyno.plan.schema import Method
from specdyno.records.schema import BootStatus, Outcome
from specdyno.records.store import Store

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]
ARMS = [(target, name) for target in llamacpp_methods.TARGETS for name in llamacpp_methods.candidates_of(target)]
SYNTHETIC = ("smollm2", "eagle3-k2")
FAITHFUL = [arm for arm in ARMS if arm != SYNTHETIC]
SAME_METHOD = {Method.GEMMA4_MTP: "mtp"}  # llama.cpp's own word for it


def booted(target: str, name: str) -> llamacpp_methods.Booted:
    if reason := why_not("llamacpp"):
        pytest.skip(reason)
    found = _booted(target, name)
    if isinstance(found, EngineError):  # an engine that would not boot is not tried again for every claim
        raise found
    return found


@functools.cache
def _booted(target: str, name: str) -> llamacpp_methods.Booted | EngineError:
    plan = llamacpp_methods.plan_of(target)
    arm = next(arm for arm in plan.arms() if arm.name == name)
    try:
        return llamacpp_methods.boot(plan, arm, Path(os.environ["SPECDYNO_TEST_LOGS"]) / f"llamacpp-{target}")
    except EngineError as error:
        return error


def answers(target: str, name: str) -> dict[str, str]:
    return {one.prompt_id: one.row.text for one in booted(target, name).asked}


@pytest.mark.parametrize(("target", "name"), ARMS)
def test_method_and_draft_length_in_force_are_those_asked_for(target, name):
    found = booted(target, name)
    identity = found.boot.identity
    assert identity is not None
    assert identity.speculation is True
    assert identity.method == SAME_METHOD.get(found.arm.method, str(found.arm.method))
    assert identity.draft_tokens == found.arm.draft_tokens
    kind = found.arm.options.get("spec-type")
    assert kind is None or kind in found.boot.command


@pytest.mark.parametrize(("target", "name"), ARMS)
def test_counters_by_position_move_and_keep_their_identities(target, name):
    found = booted(target, name)
    delta, rows = found.delta, [one.row for one in found.asked]
    positions = delta.accepted_per_position
    assert delta.drafts
    assert delta.draft_tokens
    assert positions is not None
    assert len(positions) == found.arm.draft_tokens
    assert sum(positions) == delta.accepted_tokens
    assert list(positions) == sorted(positions, reverse=True)
    assert delta.drafts <= delta.draft_tokens <= delta.drafts * found.arm.draft_tokens
    assert delta.problems == ()
    assert {row.outcome for row in rows} <= {Outcome.FINISHED, Outcome.CUT_AT_LIMIT}
    assert delta.generation_tokens == sum(row.completion_tokens or 0 for row in rows)
    reported = [row.spec for row in rows if row.spec is not None]
    assert sum(spec.num_draft_tokens or 0 for spec in reported) == delta.draft_tokens
    assert sum(spec.num_accepted_draft_tokens or 0 for spec in reported) == delta.accepted_tokens


@pytest.mark.parametrize(("target", "name"), ARMS)
def test_acceptance_on_the_fixed_prompts_is_what_was_recorded(target, name):
    entry = acceptance.read(llamacpp_methods.RECORDED)[f"{target}/{name}"]
    assert acceptance.prompts_sha256(llamacpp_methods.prompt_list(target))[:16] in entry["prompts"]
    assert acceptance.outside(booted(target, name).curve(), acceptance.from_entry(entry)) == []


@pytest.mark.parametrize("target", llamacpp_methods.TARGETS)
def test_where_an_answer_leaves_the_baselines_the_baseline_saw_a_tie(target, tmp_path: Path):
    baseline = {one.prompt_id: one.row for one in booted(target, "baseline").asked}
    arms = [name for of_target, name in FAITHFUL if of_target == target]
    pairs = [
        (baseline[one.prompt_id], one.row)
        for name in arms
        for one in booted(target, name).asked
        if one.row.text != baseline[one.prompt_id].text
    ]
    assert len(pairs) < len(arms) * len(baseline) / 2
    plan = llamacpp_methods.plan_of(target)
    forks = asyncio.run(llamacpp_methods.audit(plan, pairs, tmp_path / "audit.log")) if pairs else []
    assert [fork for fork in forks if not fork.tie] == []


def test_the_target_with_its_prediction_layer_answers_as_the_target_does(tmp_path: Path):
    plain, relabelled = booted("smollm2", "baseline").asked, booted("smollm2-mtp", "baseline").asked
    rows = {one.prompt_id: one.row for one in plain}
    pairs = [(rows[one.prompt_id], one.row) for one in relabelled if one.row.text != rows[one.prompt_id].text]
    # The dimensions of a head are summed in another order, so about half of the answers part at a tie.
    assert len(pairs) < len(plain)
    plan = llamacpp_methods.plan_of("smollm2")
    forks = asyncio.run(llamacpp_methods.audit(plan, pairs, tmp_path / "audit.log")) if pairs else []
    assert [fork for fork in forks if not fork.tie] == []


def test_acceptance_that_llamacpp_imitates_is_found_again_and_its_text_is_not_the_targets():
    found = booted(*SYNTHETIC)
    low, high = found.curve().interval()
    assert all(a <= rate <= b for a, rate, b in zip(low, llamacpp_methods.SYNTHETIC, high, strict=True))
    assert found.delta.joint == pytest.approx(llamacpp_methods.SYNTHETIC, abs=0.15)
    baseline = answers("smollm2", "baseline")
    wrong = [prompt for prompt, text in answers(*SYNTHETIC).items() if text != baseline[prompt]]
    assert len(wrong) > len(baseline) / 2


UNFIT = {
    "of another vocabulary": (
        "{method: draft_model, draft: '@gemma4-target@', draft_tokens: [3]}",
        ("serves without speculation", "vocab type must match"),
        "the target's own tokenizer",
    ),
    "of another method": (
        "{method: eagle3, draft: '@simple@', draft_tokens: [3]}",
        ("serves without speculation", "is not eagle3"),
        "no EAGLE-3 draft",
    ),
    "told to stop early without a confidence head": (
        "{method: dspark, draft: '@dspark@', draft_tokens: [3], options: {spec-draft-p-min: 0.5}}",
        ("serves without speculation", "no confidence head"),
        "remove spec-draft-p-min",
    ),
    "of a smaller block": (
        "{method: dflash, draft: '@dflash@', draft_tokens: [12]}",
        ("asks for 12 draft tokens", "in force are 7"),
        "draft_tokens",
    ),
    "that is not there": (
        "{method: eagle3, draft: /no/such/draft.gguf, draft_tokens: [3]}",
        ("ended with code", "before it was ready"),
        "cannot be read",
    ),
    "that broke off": (
        "{method: eagle3, draft: '@broken@', draft_tokens: [3]}",
        ("ended with code", "before it was ready"),
        "whole GGUF file",
    ),
    "that the target should hold and does not": (
        "{method: mtp, draft_tokens: [1]}",
        ("ended with code", "before it was ready"),
        "no layers to predict with",
    ),
}


@pytest.mark.parametrize("draft", UNFIT)
def test_a_draft_that_cannot_be_used_ends_its_boot_before_the_first_request(draft, tmp_path: Path):
    if reason := why_not("llamacpp"):
        pytest.skip(reason)
    candidate, seen, remedy = UNFIT[draft]
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(llamacpp_methods.gguf("eagle3").read_bytes()[:3_000_000])
    plan = llamacpp_methods.plan_of("smollm2", f"  - {candidate}\n".replace("@broken@", str(broken)))
    with pytest.raises(EngineError) as caught:
        llamacpp_methods.boot(plan, plan.arms()[1], tmp_path)
    assert all(words in str(caught.value) for words in seen), caught.value
    assert remedy in caught.value.remedy
    assert caught.value.log_tail
    with Store.open(tmp_path / boots.DATABASE, write=False) as store:
        records = store.read_study()
    assert [boot.status for boot in records.boots] == [BootStatus.FAILED]
    assert records.windows == ()
