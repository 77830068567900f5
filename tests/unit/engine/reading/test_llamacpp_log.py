"""llama.cpp's log: cumulative statistics by implementation, and request lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdyno.engine.reading.llamacpp_log import read

CASES = Path(__file__).parents[3] / "data" / "cases"
REQUEST, EAGLE, OLD, NGRAM = (CASES / "llamacpp_log.txt").read_text().splitlines()


def part(reading, label):
    return next(part for part in reading.parts if part.label == label)


def test_statistics_give_exact_drafts():
    reading = read(EAGLE)
    assert (reading.steps, reading.draft_tokens, reading.accepted_tokens, reading.draft_tokens_k) == (87, 259, 167, 3)
    assert reading.mean_accepted_length == pytest.approx(1 + 167 / 87)
    assert reading.acceptance_rate == pytest.approx(167 / 259)
    assert reading.joint == {0: 0.805, 1: 0.632, 2: 0.483}
    assert any("some drafts were short" in note for note in reading.notes)
    assert not reading.problems


def test_a_request_line_gives_estimated_drafts():
    reading = read(REQUEST)
    assert (reading.steps, reading.draft_tokens, reading.accepted_tokens, reading.draft_tokens_k) == (87, 259, 167, 3)
    assert reading.mean_accepted_length == 2.92
    assert reading.joint == {0: 0.805, 1: 0.632, 2: 0.483}
    assert reading.estimated


def test_an_old_line_gives_the_rate_only():
    reading = read(OLD)
    assert reading.acceptance_rate == pytest.approx(128 / 187)
    assert (reading.steps, reading.mean_accepted_length, reading.joint) == (None, None, {})


def test_nothing_drafted_is_undefined():
    reading = read(NGRAM)
    assert reading.steps == 0
    assert reading.active is False
    assert (reading.mean_accepted_length, reading.acceptance_rate) == (None, None)


def test_several_implementations_are_kept_apart():
    reading = read(f"{REQUEST}\n{EAGLE}\n{OLD}\n{NGRAM}")
    assert [found.label for found in reading.parts] == ["draft-eagle3", "ngram-map-k", "requests"]
    assert (reading.steps, reading.mean_accepted_length, reading.acceptance_rate) == (None, None, None)
    assert part(reading, "draft-eagle3").steps == 87
    assert part(reading, "ngram-map-k").mean_accepted_length is None
    assert part(reading, "requests").acceptance_rate == pytest.approx((167 + 128) / (259 + 187))


def test_the_last_of_cumulative_statistics_stands():
    earlier = EAGLE.replace("= 87,", "= 40,").replace("= 259,", "= 119,").replace("= 167,", "= 70,")
    reading = read(f"{earlier}\n{EAGLE}")
    assert reading.draft_tokens == 259
    assert not any("restart" in problem for problem in reading.problems)


def test_statistics_that_fall_tell_a_restart():
    later = "statistics draft-eagle3: #gen drafts = 4, #acc drafts = 2, #gen tokens = 12, #acc tokens = 3"
    reading = read(f"{EAGLE}\n{later}")
    assert reading.draft_tokens == 12
    assert reading.joint == {0: 0.5}
    assert any("since restart" in problem for problem in reading.problems)


def test_the_newest_server_prints_positions_on_the_next_line():
    text = (
        "0.09.401 I slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259 generated), "
        "mean len =  2.92\r\n"
        "0.09.402 I slot print_timing: id  2 | task 9 | draft acceptance = 0.50000 (    4 accepted /     8 generated), "
        "mean len =  2.00\r\n"
        "0.09.403 T slot print_timing: id  1 | task 0 |      acc per pos = (0.805, 0.632, 0.483)\r\n"
        "0.09.404 T slot print_timing: id  2 | task 9 |      acc per pos = (1.000, 0.000, 0.000)\r\n"
    )
    reading = read(text)
    assert reading.steps == 87 + 4
    assert reading.accepted_tokens == 171
    assert reading.joint[0] == pytest.approx((87 * 0.805 + 4 * 1.0) / 91)


def test_an_undrafted_mean_over_some_requests_says_so():
    reading = read(f"{REQUEST}\n{OLD}")
    assert reading.steps is None
    assert reading.mean_accepted_length == pytest.approx(1 + 167 / 87)
    assert any("1 of 2" in note for note in reading.notes)


@pytest.mark.parametrize("end", range(20, len(EAGLE), 9))
def test_cut_statistics_never_give_a_wrong_count(end):
    reading = read(EAGLE[:end])
    assert reading.draft_tokens in (None, 259)
    assert reading.accepted_tokens in (None, 167)
    assert reading.steps in (None, 87)


def test_impossible_counts_are_rejected():
    reading = read("draft acceptance = 1.31000 ( 131 accepted / 100 generated)")
    assert reading.accepted_tokens is None
    assert reading.acceptance_rate is None
    assert any("rejected: 131 accepted of 100" in problem for problem in reading.problems)


def test_verified_drafts_count_where_the_printed_mean_says_so():
    reading = read(
        "statistics draft-simple: #calls(b,g,a) = 1 90 80, #gen drafts = 90, #acc drafts = 60, #gen tokens = 270, "
        "#acc tokens = 120, #mean acc len = 2.50, #acc rate/pos = (0.750, 0.500, 0.250)"
    )
    assert reading.steps == 80
    assert reading.mean_accepted_length == 2.5
