"""Every measure by hand, on one window of three jobs at concurrency 1 or 2."""

from dataclasses import replace

import numpy as np
import pytest

from specdyno.records.schema import BootRecord, BootStatus, Outcome, Requests, WindowKind, WindowRecord
from specdyno.statistics.measures import CLASS_CUT, MEASURES
from specdyno.statistics.windows import WindowView, view_windows

S = 1_000_000_000
OUTCOMES = list(Outcome)


def requests_of(rows):
    """Rows of (class, outcome, sent, first, last, ended in s, longest gap in s, tokens)."""
    count = len(rows)
    stamps = [np.array([int(row[i] * S) if row[i] is not None else -1 for row in rows]) for i in range(2, 7)]
    nan = np.full(count, np.nan)
    return Requests(
        window_id=np.ones(count, np.int64),
        index=np.arange(count),
        class_code=np.array([row[0] for row in rows], np.int16),
        outcome_code=np.array([OUTCOMES.index(row[1]) for row in rows], np.int8),
        intended_ns=stamps[0],
        sent_ns=stamps[0],
        first_text_ns=stamps[1],
        last_text_ns=stamps[2],
        ended_ns=stamps[3],
        longest_gap_ns=stamps[4],
        chunks=np.full(count, 5),
        tokens=np.array([row[7] for row in rows], float),
        prompt_tokens=nan,
        cached_tokens=nan,
        spec_steps=nan,
        spec_drafted=nan,
        spec_accepted=nan,
        class_names=("code", "chat"),
        spec_reached=np.full((count, 1), np.nan),
        spec_at_risk=np.full((count, 1), np.nan),
    )


class Bare:
    """The parts of a study that windows are made of."""

    def __init__(self, requests, concurrency, chunks=None):
        self.requests = requests
        self.windows = (WindowRecord(1, 1, "pool", WindowKind.MIXED, None, concurrency, len(requests), 0, 99 * S),)
        self.border_chunks = chunks or {}


BOOT = BootRecord(1, 0, "baseline", 0, 0, BootStatus.COMPLETE, 0, 0)
SERIAL = [
    (0, Outcome.FINISHED, 0, 1, 3, 3, 0.5, 21),
    (1, Outcome.CUT_AT_LIMIT, 3, 4, 8, 8, 1.5, 41),
    (1, Outcome.TIMED_OUT, 8, 9, 9, 10, None, np.nan),
]


def serial() -> WindowView:
    return view_windows(Bare(requests_of(SERIAL), 1), [BOOT])[0]


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("output_tokens_per_s", 62 / 10),
        ("jobs_per_s", 2 / 10),
        ("time_per_job", 10 / 2),
        ("tpot", (2 + 4) / (20 + 40)),
        ("ttft", 1.0),
        ("e2e", (3 + 5) / 2),
        ("stall", 1.0),
        ("stall_p95", 1.45),
        ("output_tokens_per_job", 31.0),
        ("failed_share", 1 / 3),
    ],
)
def test_value_of_a_serial_window(measure, expected):
    assert MEASURES[measure].of(serial()) == pytest.approx(expected)


@pytest.mark.parametrize(("measure", "expected"), [("time_per_job", 5.0), ("tpot", 0.1), ("failed_share", 0.5)])
def test_value_of_a_class_cut(measure, expected):
    assert CLASS_CUT[measure](serial().of_class("chat")) == pytest.approx(expected)


def test_tpot_is_a_ratio_of_sums_not_a_mean_of_ratios():
    rows = [(0, Outcome.FINISHED, 0, 1, 2, 2, 0.1, 2), (0, Outcome.FINISHED, 2, 3, 4, 4, 0.1, 101)]
    view = view_windows(Bare(requests_of(rows), 1), [BOOT])[0]
    assert MEASURES["tpot"].of(view) == pytest.approx(2 / 101)


def test_jobs_at_the_borders_count_by_their_share_of_text():
    # two in flight from 1 s to 9 s: the first job has half of its text before, the last one a quarter after
    rows = [
        (0, Outcome.FINISHED, 0, 0.5, 4, 4, 1, 10),
        (0, Outcome.FINISHED, 1, 2, 9, 9, 1, 10),
        (0, Outcome.FINISHED, 4, 5, 11, 11, 1, 20),
    ]
    chunks = {
        (1, 0): (np.array([S // 2, 4 * S]), np.array([5, 5])),
        (1, 2): (np.array([5 * S, 8 * S, 11 * S]), np.array([10, 5, 5])),
    }
    view = view_windows(Bare(requests_of(rows), 2, chunks), [BOOT])[0]
    assert view.span == (S, 9 * S)
    assert view.share.tolist() == [0.5, 1.0, 0.75]
    assert MEASURES["jobs_per_s"].of(view) == pytest.approx(2.25 / 8)
    assert MEASURES["output_tokens_per_s"].of(view) == pytest.approx((5 + 10 + 15) / 8)
    assert MEASURES["time_per_job"].of(view) == pytest.approx(2 * 8 / 2.25)


def test_without_chunks_the_text_is_taken_as_flowing_evenly():
    rows = [(0, Outcome.FINISHED, 0, 0, 4, 4, 1, 10), (0, Outcome.FINISHED, 1, 2, 9, 9, 1, 10)]
    view = view_windows(Bare(requests_of(rows), 2), [BOOT])[0]
    assert view.span == (S, 4 * S)
    assert view.share.tolist() == pytest.approx([3 / 4, 2 / 7])


def test_one_unknown_token_count_makes_the_sum_unknown_not_smaller():
    rows = [*SERIAL[:1], (*SERIAL[1][:7], np.nan)]
    view = view_windows(Bare(requests_of(rows), 1), [BOOT])[0]
    assert MEASURES["output_tokens_per_s"].of(view) is None
    assert MEASURES["output_tokens_per_job"].of(view) is None
    assert MEASURES["jobs_per_s"].of(view) == pytest.approx(2 / 8)


@pytest.mark.parametrize("measure", sorted(set(MEASURES) - {"failed_share", "jobs_per_s"}))
def test_nothing_completed_gives_no_number(measure):
    view = view_windows(Bare(requests_of(SERIAL[2:]), 1), [BOOT])[0]
    assert MEASURES[measure].of(view) is None


def test_no_requests_at_all_give_no_number():
    view = replace(serial(), rows=np.zeros(0, np.int64), share=np.zeros(0), span=None)
    assert {measure.of(view) for measure in MEASURES.values()} == {None}


def test_directions_make_better_positive():
    assert {name: measure.sign for name, measure in MEASURES.items() if measure.sign < 0} == dict.fromkeys(
        ("time_per_job", "tpot", "failed_share", *(f"{name}{end}" for name in ("ttft", "e2e", "stall")
         for end in ("", "_p95", "_p99"))), -1
    )  # fmt: skip
