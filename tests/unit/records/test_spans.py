"""The full span of a closed loop, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from specdyno.records.spans import full_occupancy, in_flight_at_border, share_in_span


def span(pairs, concurrency):
    sent, ended = (np.array(part, np.int64) for part in zip(*pairs, strict=True))
    return full_occupancy(sent, ended, concurrency)


def test_one_at_a_time_spans_first_send_to_last_end():
    assert span([(10, 20), (21, 30), (31, 45)], 1) == (10, 45)


def test_span_begins_at_the_send_that_fills_the_loop_and_ends_when_the_list_is_exhausted():
    # Two loops; the last prompt is sent at 60, and the first end after that, at 70, is not refilled.
    assert span([(0, 30), (10, 55), (30, 35), (35, 70), (60, 90)], 2) == (10, 70)


def test_gaps_between_an_end_and_the_refill_do_not_end_the_span():
    assert span([(0, 20), (1, 15), (18, 40), (25, 50)], 2) == (1, 40)


def test_order_of_the_rows_does_not_matter():
    pairs = [(0, 30), (10, 55), (30, 35), (35, 70), (60, 90)]
    assert span(pairs[::-1], 2) == span(pairs, 2)


def test_an_end_at_the_stamp_of_a_send_makes_room_for_it():
    assert span([(0, 5), (5, 9), (9, 20)], 2) is None  # never two at once


def test_early_failures_put_off_the_start():
    # Three loops; the second request fails at once, so that three are in flight only at 4.
    assert span([(0, 50), (1, 2), (3, 60), (4, 70), (55, 90)], 3) == (4, 60)


def test_list_shorter_than_the_loop_is_never_full():
    assert span([(0, 10), (1, 11)], 3) is None


def test_request_without_an_end_stays_in_flight():
    assert span([(0, -1), (10, 30), (31, 50)], 2) == (10, 50)
    assert span([(0, -1)], 1) is None


def test_loop_that_fails_at_its_last_send_was_full_until_then():
    assert span([(0, 10), (5, 10), (10, 10)], 2) == (5, 10)


def test_requests_that_end_together_end_the_span_together():
    # One step of a batch ends both; one prompt is left, so one loop has nothing more to send, whichever ended first.
    assert span([(0, 10), (0, 10), (11, 30)], 2) == (0, 10)
    assert span([(0, 10), (0, 12), (11, 30)], 2) == (0, 12)
    assert span([(0, 10), (0, 10), (0, 10), (11, 20), (11, 20), (11, 20), (21, 40)], 3) == (0, 20)


def test_no_time_is_no_span():
    assert span([(3, 3)], 1) is None
    assert full_occupancy(np.empty(0, np.int64), np.empty(0, np.int64), 1) is None


def test_border_takes_those_in_flight_there():
    sent, ended = np.array([0, 10, 30, 35, 60, 20]), np.array([9, 55, 35, 70, 90, -1])
    assert in_flight_at_border(sent, ended, (10, 70)).tolist() == [False, True, False, True, True, True]


def test_share_weighs_chunks_by_their_characters():
    stamps, sizes = np.array([10, 20, 30]), np.array([2, 4, 10])
    assert share_in_span(stamps, sizes, ended_ns=30, span=(10, 20)) == 4 / 16  # after the start, up to the end
    assert share_in_span(stamps, sizes, ended_ns=30, span=(0, 100)) == 1.0
    assert share_in_span(stamps, sizes, ended_ns=30, span=(30, 100)) == 0.0


def test_shares_of_spans_that_touch_add_up_to_one():
    stamps, sizes = np.array([10, 20, 30]), np.array([2, 4, 10])
    parts = [share_in_span(stamps, sizes, ended_ns=30, span=part) for part in ((0, 20), (20, 30))]
    assert sum(parts) == pytest.approx(1.0)


@pytest.mark.parametrize("sizes", [[], [0, 0]])
def test_job_without_text_counts_by_where_it_ended(sizes):
    stamps = np.arange(len(sizes))
    shares = [
        share_in_span(stamps, np.array(sizes, np.int64), ended_ns=ended, span=(10, 20)) for ended in (-1, 10, 20, 21)
    ]
    assert shares == [0.0, 0.0, 1.0, 0.0]
