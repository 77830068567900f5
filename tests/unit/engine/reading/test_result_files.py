"""Result files: percent becomes a fraction, counts win over rounded prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specdyno.engine.reading.result_files import is_golden, read_bench, read_golden, read_offline

CASES = Path(__file__).parents[3] / "data" / "cases"
BENCH = json.loads((CASES / "vllm_bench.json").read_text())
OFFLINE = (CASES / "vllm_offline.txt").read_text()
GOLDEN = (CASES / "golden.yaml").read_text()


def test_a_bench_result_turns_percent_into_fractions():
    reading = read_bench(BENCH)
    assert (reading.steps, reading.draft_tokens, reading.accepted_tokens, reading.draft_tokens_k) == (
        23975,
        71925,
        41570,
        3,
    )
    assert reading.acceptance_rate == pytest.approx(0.57796315606534584)
    assert reading.mean_accepted_length == pytest.approx(2.7338894681960375)
    assert 1 + sum(reading.joint.values()) == pytest.approx(reading.mean_accepted_length)
    assert reading.problems == ()


def test_a_bench_result_without_counts_keeps_its_printed_values():
    page = {key: value for key, value in BENCH.items() if "tokens" not in key and "drafts" not in key}
    reading = read_bench(page)
    assert reading.acceptance_rate == pytest.approx(0.57796315606534584)
    assert reading.mean_accepted_length == 2.7338894681960375
    assert reading.steps is None


def test_absent_keys_mean_off_or_not_read():
    reading = read_bench({"completed": 50, "total_output_tokens": 10000})
    assert reading.active is None
    assert (reading.steps, reading.mean_accepted_length, reading.acceptance_rate) == (None, None, None)
    assert any("off" in note for note in reading.notes)


@pytest.mark.parametrize("listed", [[], None])
def test_the_list_of_positions_may_be_empty(listed):
    reading = read_bench({**BENCH, "spec_decode_per_position_acceptance_rates": listed})
    assert reading.joint == {}
    assert reading.draft_tokens_k is None
    assert reading.mean_accepted_length == pytest.approx(2.7338894681960375)


@pytest.mark.parametrize(
    "changes",
    [
        {"spec_decode_acceptance_rate": 131.0},
        {"spec_decode_accepted_tokens": -1},
        {"spec_decode_acceptance_length": 4.9},
        {"spec_decode_per_position_acceptance_rates": [0.5, 0.7, 0.1]},
        {"spec_decode_per_position_acceptance_rates": [0.9, 0.8, 0.7]},
        {"spec_decode_per_position_acceptance_rates": [77.3, 55.9, 40.1]},
    ],
)
def test_values_that_contradict_or_cannot_be_are_problems(changes):
    reading = read_bench({**BENCH, **changes})
    assert reading.problems
    assert reading.mean_accepted_length is None or reading.mean_accepted_length <= 4
    assert reading.acceptance_rate is None or reading.acceptance_rate == pytest.approx(0.578, abs=0.001)


def test_a_rate_above_one_is_rejected_where_nothing_else_tells():
    reading = read_bench({"spec_decode_acceptance_rate": 131.0})
    assert reading.acceptance_rate is None
    assert any("1.31" in problem for problem in reading.problems)


def test_counters_beyond_the_runs_own_output_are_noted():
    assert any("other traffic" in note for note in read_bench(BENCH).notes)


def test_offline_output_gives_coverage_and_tokens_per_engine_step():
    reading = read_offline(OFFLINE)
    assert reading.coverage == pytest.approx(0.547, abs=5e-4)
    assert reading.tokens_per_step == pytest.approx(2.964, abs=5e-4)
    assert reading.mean_accepted_length == pytest.approx(1 + 3562 / 993)
    assert reading.joint == {0: 0.81, 4: 0.66}
    assert reading.draft_tokens_k == 5


def test_offline_steps_without_drafts_follow_from_the_totals():
    text = "\r\n".join(line for line in OFFLINE.splitlines() if "without" not in line)
    reading = read_offline(text)
    assert reading.coverage == pytest.approx(993 / 1814)
    assert any("derived" in note for note in reading.notes)


def test_offline_output_with_no_draft_is_undefined():
    names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens", "acceptance at token 0")
    text = "mean acceptance length: 1.00\n" + "\n".join(f"{name}: 0" for name in names)
    reading = read_offline(text)
    assert reading.active is False
    assert (reading.mean_accepted_length, reading.acceptance_rate, reading.joint) == (None, None, {})


def test_offline_output_cut_short_leaves_the_rest_unknown():
    reading = read_offline("total_num_output_tokens: 5376\nnum_drafts: 993\nnum_draft_tok")
    assert reading.steps == 993
    assert (reading.draft_tokens, reading.coverage, reading.mean_accepted_length) == (None, None, None)


def test_offline_k_comes_from_all_positions_even_where_drafts_are_shorter():
    text = "num_drafts: 100\nnum_draft_tokens: 320\nnum_accepted_tokens: 100\n" + "".join(
        f"acceptance at token {place}: 0.{5 - place}0\n" for place in range(5)
    )
    assert read_offline(text).draft_tokens_k == 5


def test_a_golden_file_takes_the_counts_from_its_comment():
    reading = read_golden(GOLDEN)
    assert (reading.steps, reading.draft_tokens, reading.accepted_tokens) == (87994, 263982, 133034)
    assert reading.draft_tokens_k == 3
    assert reading.mean_accepted_length == pytest.approx(2.5119, abs=5e-5)
    assert reading.acceptance_rate == pytest.approx(0.503951026964)
    assert reading.label == "model-x-fp8 / thinking_on / K 3"


def test_golden_entries_are_kept_apart_each_with_its_own_comment():
    text = (
        "# k=1: AR=0.7; accepted=70; proposed=100; drafts=100.\nm:\n  on:\n    1: 1.70\n"
        "    # k=3: AR=0.5; accepted=150; proposed=300; drafts=100.\n    3: 2.50\n  off:\n    3: 2.20\n"
    )
    reading = read_golden(text)
    assert reading.mean_accepted_length is None
    assert {part.label: (part.mean_accepted_length, part.steps) for part in reading.parts} == {
        "m / on / K 1": (1.7, 100),
        "m / on / K 3": (2.5, 100),
        "m / off / K 3": (2.2, None),
    }


def test_a_golden_comment_that_contradicts_its_entry_is_not_used():
    reading = read_golden(GOLDEN.replace("2.51", "2.90"))
    assert reading.mean_accepted_length == 2.90
    assert reading.steps is None
    assert reading.problems


def test_a_golden_value_beyond_k_is_rejected():
    reading = read_golden("m:\n  on:\n    3: 4.51\n")
    assert reading.mean_accepted_length is None
    assert any("above K + 1" in problem for problem in reading.problems)


@pytest.mark.parametrize("text", ["m:\n  on: [\n", "a: b\n", "- 1\n- 2\n", ""])
def test_other_yaml_is_no_golden_file(text):
    assert not is_golden(text)
    assert read_golden(text).problems
