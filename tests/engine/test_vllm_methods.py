"""vLLM's methods on the drafts of this repository: they accept what was recorded and change no answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.engine.live import ARMS, Fork, audit_forks, contract_plan, measured

from lab import acceptance, live_plans
from specdyno.plan.schema import Plan
from specdyno.records.schema import RequestRecord

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
    baseline = {row.prompt_id: row for row in measured(kind, "baseline").rows}
    candidates = [row for of_kind, name in CANDIDATES if of_kind == kind for row in measured(kind, name).rows]
    pairs = [(baseline[row.prompt_id], row) for row in candidates if row.text != baseline[row.prompt_id].text]
    assert _no_ties(contract_plan(kind), pairs, tmp_path) == []


def test_the_target_relabelled_for_mtp_answers_as_the_target_does(tmp_path: Path):
    baseline = {row.prompt_id: row for row in measured("vllm", "baseline").rows}
    relabelled = measured("vllm-mtp", "baseline").rows
    pairs = [(baseline[row.prompt_id], row) for row in relabelled if row.text != baseline[row.prompt_id].text]
    assert _no_ties(contract_plan("vllm"), pairs, tmp_path) == []
    assert len(pairs) < len(relabelled) / 2


def _no_ties(plan: Plan, pairs: list[tuple[RequestRecord, RequestRecord]], folder: Path) -> list[Fork]:
    """The forks at which the baseline did not see a tie."""
    forks = asyncio.run(audit_forks(plan, pairs, folder / "audit.log")) if pairs else []
    return [fork for fork in forks if not fork.tie]
