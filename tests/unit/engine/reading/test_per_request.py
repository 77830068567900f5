"""Acceptance that comes with an answer, from four engines."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from specdyno.engine.reading.per_request import spec_steps, usage_problems

CASES = Path(__file__).parents[3] / "data" / "cases"
VLLM = json.loads((CASES / "vllm_answer.json").read_text())
SGLANG = json.loads((CASES / "sglang_answer.json").read_text())
LLAMACPP = json.loads((CASES / "llamacpp_answer.json").read_text())


def vllm(**changes):
    report = {**VLLM["metrics"]["speculative_decoding"], **changes}
    return {"metrics": {"speculative_decoding": {key: value for key, value in report.items() if value is not ...}}}


def test_a_vllm_answer_is_read_whole():
    found = spec_steps(VLLM)
    assert found.source == "vllm per-request summary"
    assert found.num_spec_steps == 43 == sum(found.acceptance_histogram)
    assert found.num_accepted_draft_tokens == 10
    assert found.num_draft_tokens == 129
    assert found.num_spec_tokens == 3
    assert found.acceptance_histogram == (39, 1, 0, 3)
    assert not found.estimated
    assert found.problems == ()


def test_a_histogram_may_be_a_map_without_zeros():
    assert spec_steps(vllm(acceptance_histogram={"0": 39, "1": 1, "3": 3})) == spec_steps(VLLM)
    assert spec_steps(vllm(acceptance_histogram={"0": 43}, num_accepted_draft_tokens=0)).acceptance_histogram == (
        43,
        0,
        0,
        0,
    )


@pytest.mark.parametrize("wrapped", [True, False])
def test_the_object_may_stand_on_the_choice(wrapped):
    report = VLLM["metrics"]["speculative_decoding"]
    choice = {"metrics": {"speculative_decoding": report}} if wrapped else {"speculative_decoding": report}
    assert spec_steps({"choices": [{"index": 0, **choice}]}) == spec_steps(VLLM)


def test_the_last_stream_event_has_no_choices():
    assert spec_steps({**VLLM, "choices": []}) == spec_steps(VLLM)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"metrics": None},
        {"metrics": {"speculative_decoding": None}},
        {"choices": [{"metrics": {"speculative_decoding": None}}, {}]},
        {"usage": {"completion_tokens": 5}},
        {"timings": {"predicted_n": 9, "predicted_ms": 4.0}},
        {"choices": None, "metrics": [], "sglext": "x", "timings": 3},
        None,
        [],
        "text",
    ],
)
def test_an_answer_without_acceptance_gives_none(payload):
    assert spec_steps(payload) is None


THREE_STEPS = {
    "num_spec_steps": 3,
    "num_accepted_draft_tokens": 4,
    "num_draft_tokens": 7,
    "acceptance_histogram": [1, 1, 0, 1],
}


def test_detailed_steps_are_kept_in_order():
    found = spec_steps(vllm(**THREE_STEPS, per_step_accepted=[1, 3, 0], per_step_drafted=[3, 3, 1]))
    assert found.source == "vllm per-request detailed"
    assert (found.per_step_accepted, found.per_step_drafted) == ((1, 3, 0), (3, 3, 1))
    assert found.problems == ()


@pytest.mark.parametrize(
    ("accepted", "drafted"),
    [([1, 3], [3, 3, 1]), ([1, 3, 2], [3, 3, 1]), ([1, 3], [3, 3]), ([1, -3, 0], [3, 3, 1]), (7, 8)],
)
def test_per_step_lists_that_contradict_are_rejected(accepted, drafted):
    found = spec_steps(vllm(**THREE_STEPS, per_step_accepted=accepted, per_step_drafted=drafted))
    assert found.per_step_accepted is None
    assert found.num_spec_steps == 3
    assert any("rejected" in problem for problem in found.problems)


def test_counts_left_out_follow_from_the_histogram():
    found = spec_steps(vllm(num_spec_steps=..., num_accepted_draft_tokens=None))
    assert (found.num_spec_steps, found.num_accepted_draft_tokens) == (43, 10)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_accepted_draft_tokens": -1}, None),
        ({"num_accepted_draft_tokens": 11}, "acceptance_histogram"),
        ({"num_spec_steps": 44}, "acceptance_histogram"),
        ({"acceptance_histogram": [39, 1, 0, -3]}, "acceptance_histogram"),
        ({"acceptance_histogram": {"many": 3}}, "acceptance_histogram"),
        ({"acceptance_histogram": [39, 1, 0, 0, 3], "num_accepted_draft_tokens": 13}, "acceptance_histogram"),
        ({"num_draft_tokens": 130}, "num_draft_tokens"),
        ({"num_draft_tokens": 9}, "num_accepted_draft_tokens"),
        ({"num_spec_tokens": 2.5}, "num_spec_tokens"),
    ],
)
def test_values_that_cannot_be_are_rejected_with_the_reason(changes, field):
    found = spec_steps(vllm(**changes))
    assert any("rejected" in problem for problem in found.problems)
    if field:
        assert getattr(found, field) is None
    else:
        assert found.num_accepted_draft_tokens == 10  # told by the histogram


def test_several_choices_are_not_told_apart():
    choice = copy.deepcopy(VLLM)
    found = spec_steps({"choices": [choice, choice]})
    assert found.num_spec_steps is None
    assert any("n must be 1" in problem for problem in found.problems)


def test_a_sglang_answer_is_read_whole():
    found = spec_steps(SGLANG)
    assert found.num_spec_steps == 43 == sum(found.acceptance_histogram)
    assert (found.num_accepted_draft_tokens, found.num_draft_tokens, found.num_spec_tokens) == (63, 215, 5)
    assert 1 + found.num_accepted_draft_tokens / found.num_spec_steps == pytest.approx(106 / 43)
    assert found.problems == ()


@pytest.mark.parametrize("place", ["sglext", "choice", "meta_info"])
def test_sglang_details_may_stand_elsewhere(place):
    details = SGLANG["sglext"]["spec_tokens_details"]
    payload = {
        "sglext": SGLANG,
        "choice": {"choices": [{"sglext": {"spec_tokens_details": details}}]},
        "meta_info": {"meta_info": {**details, "completion_tokens": 106}},
    }[place]
    assert spec_steps(payload).num_accepted_draft_tokens == 63


@pytest.mark.parametrize("zeros", [{}, {"spec_num_correct_drafts": 0, "spec_num_proposed_drafts": 0}])
def test_an_older_sglang_gives_verify_steps_and_completion_tokens_only(zeros):
    found = spec_steps({"meta_info": {"spec_verify_ct": 43, "completion_tokens": 106, **zeros}})
    assert (found.num_spec_steps, found.num_accepted_draft_tokens, found.num_draft_tokens) == (43, 63, None)
    assert found.estimated


def test_llamacpp_steps_are_estimated_without_the_first_token():
    found = spec_steps(LLAMACPP)
    assert (found.num_spec_steps, found.num_draft_tokens, found.num_accepted_draft_tokens) == (134, 347, 65)
    assert 1 + found.num_accepted_draft_tokens / found.num_spec_steps == pytest.approx(1.485, abs=5e-4)
    assert found.estimated
    assert "estimated" in found.source


def test_llamacpp_counts_that_leave_no_step_give_no_step():
    found = spec_steps({"timings": {"predicted_n": 3, "draft_n": 8, "draft_n_accepted": 5}})
    assert found.num_spec_steps is None
    assert found.problems


def test_trtllm_names_are_mapped():
    report = {
        "acceptance_rate": 0.4,
        "total_accepted_draft_tokens": 12,
        "total_draft_tokens": 30,
        "acceptance_histogram": [2, 4, 4],
        "num_spec_steps": 10,
        "num_spec_tokens": 3,
    }
    found = spec_steps({"choices": [{"speculative_decoding": report}]})
    assert found.source == "trtllm per-request summary"
    assert (found.num_accepted_draft_tokens, found.num_draft_tokens, found.num_spec_steps) == (12, 30, 10)
    assert found.problems == ()


def test_a_mean_alone_is_an_estimate_and_one_says_nothing():
    answer = {"choices": [{"avg_decoded_tokens_per_iter": 2.5}], "usage": {"completion_tokens": 100}}
    found = spec_steps(answer)
    assert (found.num_spec_steps, found.num_accepted_draft_tokens, found.estimated) == (40, 60, True)
    answer["choices"][0]["avg_decoded_tokens_per_iter"] = 1.0
    assert spec_steps(answer) is None


def test_more_reasoning_than_completion_tokens_is_a_problem():
    usage = {"prompt_tokens": 164, "completion_tokens": 23870, "reasoning_tokens": 23871, "total_tokens": 24034}
    (problem,) = usage_problems(usage)
    assert "23871 reasoning tokens of 23870" in problem
    assert "re-tokenising" in problem


@pytest.mark.parametrize(
    ("usage", "count"),
    [
        ({"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}, 0),
        ({"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 5}}, 0),
        ({"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 6}}, 1),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 6}}, 1),
        ({"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 4}, 1),
        ({"completion_tokens": -2}, 1),
        ({"completion_tokens": "12"}, 1),
        ({"completion_tokens": None, "prompt_tokens_details": None}, 0),
        (None, 0),
    ],
)
def test_usage_is_checked_by_its_own_sums(usage, count):
    assert len(usage_problems(usage)) == count
