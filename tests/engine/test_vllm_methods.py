"""vLLM's methods on the drafts of this repository: they accept what was recorded and change no answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.live import ARMS, contract_plan, forks_from_baseline, measured

from lab import acceptance, live_plans

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]
CANDIDATES = [(kind, name) for kind, name in ARMS if kind.startswith("vllm") and name != "baseline"]
KINDS = sorted({kind for kind, _ in CANDIDATES})


@pytest.mark.parametrize(("kind", "name"), CANDIDATES)
def test_acceptance_on_the_fixed_prompts_is_what_was_recorded(kind, name):
    boot = measured(kind, name)
    entry = acceptance.read()[f"{kind}/{name}"]
    assert acceptance.prompts_sha256(live_plans.PROMPTS)[:16] in entry["prompts"]
    curve = acceptance.curve_of(boot.rows, boot.arm.draft_tokens)
    assert acceptance.outside(curve, acceptance.from_entry(entry)) == []


@pytest.mark.parametrize(("kind", "name"), CANDIDATES)
def test_the_counters_and_the_answers_tell_one_curve(kind, name):
    boot = measured(kind, name)
    curve = acceptance.curve_of(boot.rows, boot.arm.draft_tokens)
    assert tuple(curve.reached.sum(axis=0)) == boot.delta.accepted_per_position
    assert tuple(curve.joint) == pytest.approx(boot.delta.joint)


@pytest.mark.parametrize("kind", KINDS)
def test_where_an_answer_leaves_the_baselines_the_baseline_saw_a_tie(kind, tmp_path: Path):
    candidates = [measured(of_kind, name) for of_kind, name in CANDIDATES if of_kind == kind]
    forks = forks_from_baseline(contract_plan(kind), [one.ids_of_changed for one in candidates], tmp_path)
    assert [fork for fork in forks if not fork.tie] == []
    assert all(len(one.ids_of_changed) < len(one.rows) for one in candidates)


def test_the_target_relabelled_for_mtp_answers_as_the_target_does(tmp_path: Path):
    relabelled = measured("vllm-mtp", "baseline")
    forks = forks_from_baseline(contract_plan("vllm"), [relabelled.ids_of_changed], tmp_path)
    assert [fork for fork in forks if not fork.tie] == []
    assert len(relabelled.ids_of_changed) < len(relabelled.rows) / 2
