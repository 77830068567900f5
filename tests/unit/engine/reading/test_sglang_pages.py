"""SGLang's log and server page: means without counts are not pooled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specdyno.engine.reading import sglang_info, sglang_log

CASES = Path(__file__).parents[3] / "data" / "cases"
LOG = (CASES / "sglang_log.txt").read_text()
INFO = json.loads((CASES / "sglang_info.json").read_text())


def lengths(reading):
    return {part.label: part.mean_accepted_length for part in reading.parts}


def test_a_log_is_binned_by_running_requests():
    reading = sglang_log.read(LOG)
    assert lengths(reading) == {"4 running requests": 1.0, "32 running requests": 2.54}
    assert reading.mean_accepted_length is None
    assert reading.length_range == (1.0, 2.54)
    assert any("1 of 3 decode lines have no speculative fields" in note for note in reading.notes)


def test_the_rate_is_optional():
    rates = {part.label: part.acceptance_rate for part in sglang_log.read(LOG).parts}
    assert rates == {"4 running requests": 0.0, "32 running requests": None}


def test_lines_of_one_bin_are_averaged():
    text = "\r\n".join(
        f"\x1b[1m[2026-01-01 DP0 TP0]\x1b[0m Decode batch, #running-req: 8, #token: 9, accept len: {value},"
        for value in (2.0, 3.0)
    )
    reading = sglang_log.read(text)
    assert reading.mean_accepted_length == 2.5
    assert reading.length_range == (2.0, 3.0)


def test_a_log_without_speculation_has_no_acceptance():
    reading = sglang_log.read(LOG.splitlines()[2])
    assert (reading.mean_accepted_length, reading.acceptance_rate, reading.parts) == (None, None, ())
    assert reading.active is None


def test_impossible_lines_are_rejected_alone():
    text = "Decode batch. #running-req: 4, accept len: 0.54, accept rate: 1.31,\n" + LOG.splitlines()[1]
    reading = sglang_log.read(text)
    assert reading.mean_accepted_length == 1.0
    assert sum("rejected" in problem for problem in reading.problems) == 2


def test_a_server_page_without_verify_counts_gives_a_range_and_no_mean():
    reading = sglang_info.read(INFO)
    assert reading.mean_accepted_length is None
    assert reading.length_range == (2.90, 4.64)
    assert lengths(reading) == {"scheduler 2": 2.90, "scheduler 3": 3.67, "scheduler 5": 4.64}
    assert any("2.90 to 4.64, not weighted, server lifetime" in note for note in reading.notes)


def test_verify_counts_weight_the_mean():
    states = [
        {"avg_spec_accept_length": 2.0, "spec_verify_ct": 300},
        {"avg_spec_accept_length": 4.0, "spec_verify_ct": 100},
    ]
    assert sglang_info.read({"internal_states": states}).mean_accepted_length == pytest.approx(2.5)


def test_the_only_length_is_the_servers():
    reading = sglang_info.read({"internal_states": [{}, {"avg_spec_accept_length": 3.1}]})
    assert reading.mean_accepted_length == 3.1
    assert "server lifetime" in reading.notes


@pytest.mark.parametrize("states", [[], [{}], [None, 3], [{"avg_spec_accept_length": "nan"}], None])
def test_a_page_without_lengths_gives_none(states):
    reading = sglang_info.read({"internal_states": states})
    assert reading.mean_accepted_length is None
    assert reading.parts == ()


@pytest.mark.parametrize(("topk", "k"), [(1, 3), (None, 3), (4, None)])
def test_k_is_the_window_less_one_and_a_tree_has_none(topk, k):
    page = {
        "internal_states": [{"avg_spec_accept_length": 2.0}],
        "speculative_num_draft_tokens": 4,
        "speculative_eagle_topk": topk,
    }
    assert sglang_info.read(page).draft_tokens_k == k


def test_a_length_beyond_the_window_is_rejected():
    page = {"internal_states": [{"avg_spec_accept_length": 5.0}], "speculative_num_draft_tokens": 4}
    reading = sglang_info.read(page)
    assert reading.mean_accepted_length is None
    assert any("above K + 1 = 4" in problem for problem in reading.problems)
