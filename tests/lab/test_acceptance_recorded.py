"""The recorded acceptance: counts that hold together, an interval that a dead draft cannot meet."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lab import acceptance, live_plans
from specdyno.records.schema import Outcome, RequestRecord, SpecSteps

RECORDED = acceptance.read()
UNTRAINED = ("draft_model", "ngram")
TWO_POINTS = 0.02


def row(name: str, accepted: list[int], **given) -> RequestRecord:
    spec = SpecSteps("vllm per-request detailed", len(accepted), 3 * len(accepted), sum(accepted), 3,
                     per_step_accepted=tuple(accepted))  # fmt: skip
    return RequestRecord(0, name, "", "listed", 0, 0, Outcome.FINISHED, spec=given.get("spec", spec))


def test_counts_are_steps_that_accepted_at_least_so_many():
    curve = acceptance.curve_of([row("a", [0, 3, 1, 2]), row("b", [0, 0])], 3)
    assert curve.steps.tolist() == [4, 2]
    assert curve.reached.tolist() == [[3, 2, 1], [0, 0, 0]]
    assert curve.joint.tolist() == pytest.approx([3 / 6, 2 / 6, 1 / 6])


def test_an_answer_without_its_steps_is_refused():
    with pytest.raises(ValueError, match="no ordered steps"):
        acceptance.curve_of([row("a", [], spec=None)], 3)


def test_the_interval_is_the_t_interval_of_the_means_where_prompts_are_equally_long():
    counts = np.array([[2.0], [4.0], [6.0], [8.0]])
    low, high = acceptance.Curve(("a", "b", "c", "d"), np.full(4, 10.0), counts).interval(0.95)
    half = 3.182 * np.std(counts / 10, ddof=1) / 2
    assert low[0] == pytest.approx(0.5 - half, abs=1e-3)
    assert high[0] == pytest.approx(0.5 + half, abs=1e-3)


def test_the_interval_covers_the_truth_as_often_as_it_says_where_prompts_differ():
    draw = np.random.default_rng(7)
    missed = 0
    for _ in range(400):
        easy = draw.beta(3, 9, 24)  # mean 0.25: prompts differ more than steps within one do
        steps = draw.integers(20, 60, 24)
        counts = draw.binomial(steps, easy)[:, None]
        low, high = acceptance.Curve(tuple(map(str, range(24))), steps, counts).interval(0.95)
        missed += not low[0] <= 0.25 <= high[0]
    assert missed <= 40  # 5 % nominal; beyond 10 % would be no interval


def test_a_position_that_accepted_nothing_still_has_an_interval():
    curve = acceptance.Curve(("a", "b"), np.array([50, 50]), np.zeros((2, 1)))
    low, high = curve.interval()
    assert (low[0], high[0]) == (0.0, pytest.approx(0.03))


def test_a_record_comes_back_as_it_was_written(tmp_path):
    curve = acceptance.curve_of([row("a", [0, 3, 1, 2]), row("b", [0, 1])], 3)
    path = tmp_path / "acceptance.json"
    acceptance.write({"vllm/x-k3": acceptance.to_entry(curve, engine="vllm 1")}, path)
    again = acceptance.from_entry(acceptance.read(path)["vllm/x-k3"])
    assert again.prompts == curve.prompts
    assert np.array_equal(again.reached, curve.reached)
    assert np.array_equal(again.steps, curve.steps)


def test_every_arm_is_recorded_on_the_prompt_list_as_it_is():
    arms = {
        f"{kind}/{line.split('method: ')[1].split(',')[0]}"
        for kind, text in live_plans.CANDIDATES.items()
        for line in text.strip().splitlines()
    }
    assert {name.rsplit("-k", 1)[0] for name in RECORDED} == arms
    ids = [f"listed/{json.loads(line)['id']}" for line in live_plans.PROMPTS.read_text().splitlines()]
    for entry in RECORDED.values():
        assert acceptance.prompts_sha256(live_plans.PROMPTS)[:16] in entry["prompts"]
        assert sorted(entry["by_prompt"]) == sorted(ids)


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_record_holds_together(name):
    entry = RECORDED[name]
    curve = acceptance.from_entry(entry)
    assert entry["drafted_steps"] == curve.steps.sum()
    assert entry["accepted_by_position"] == curve.reached.sum(axis=0).tolist()
    assert np.all(np.diff(curve.reached, axis=1) <= 0)
    assert np.all(curve.reached[:, 0] <= curve.steps)
    assert acceptance.outside(curve, curve) == []


@pytest.mark.parametrize("name", sorted(name for name, entry in RECORDED.items() if "bfloat16" in entry))
def test_eight_bits_accept_what_the_bfloat16_weights_accept(name):
    stored = acceptance.from_entry(RECORDED[name])
    original = acceptance.from_entry(RECORDED[name]["bfloat16"])
    assert RECORDED[name]["bfloat16"]["joint"] == [round(float(one), 4) for one in original.joint]
    assert sorted(original.prompts) == sorted(stored.prompts)
    assert np.abs(stored.joint - original.joint).max() <= TWO_POINTS or acceptance.outside(original, stored) == []


@pytest.mark.parametrize("name", [name for name in sorted(RECORDED) if not any(word in name for word in UNTRAINED)])
def test_a_draft_that_accepts_nothing_or_everything_fails_the_check(name):
    curve = acceptance.from_entry(RECORDED[name])
    dead = acceptance.Curve(curve.prompts, curve.steps, np.zeros_like(curve.reached))
    always = acceptance.Curve(curve.prompts, curve.steps, np.repeat(curve.steps[:, None], curve.draft_tokens, axis=1))
    half = acceptance.Curve(curve.prompts, curve.steps, curve.reached * 0.4)
    for broken in (dead, always, half):
        assert any(line.startswith("position 1:") for line in acceptance.outside(broken, curve))
