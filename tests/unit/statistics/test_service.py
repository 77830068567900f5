"""Goodput, sessions per hour and the largest rate of a search, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.statistics.test_measures import BOOT, Bare, S, requests_of

from specdyno.plan.schema import Load, ServiceLevel
from specdyno.records.schema import Arrival, ArrivalKind, Outcome, WindowKind, WindowRecord
from specdyno.statistics.intervals import Undefined
from specdyno.statistics.measures import MEASURES
from specdyno.statistics.phases import LATE, summarise_phases
from specdyno.statistics.service import Carried, attainment, largest_rate
from specdyno.statistics.windows import view_windows

DONE, LATE_ANSWER = Outcome.FINISHED, Outcome.TIMED_OUT
# sent, first, last, ended in s, tokens: TPOT 0.1, 0.2, 0.1; TTFT 0.5, 1, 3
ROWS = [
    (0, DONE, 0, 0.5, 2.5, 2.5, 0.1, 21),
    (0, DONE, 2.5, 3.5, 7.5, 7.5, 0.1, 21),
    (1, DONE, 7.5, 10.5, 12.5, 12.5, 0.1, 21),
    (1, LATE_ANSWER, 12.5, 13, 13, 14.5, 0.1, np.nan),
]


def view(level: ServiceLevel | None, rows=ROWS, concurrency=1):
    (found,) = view_windows(Bare(requests_of(rows), concurrency), [BOOT])
    return replace(found, level=level)


@pytest.mark.parametrize(
    ("level", "good"),
    [
        ({"tpot": "150ms"}, 2),
        ({"ttft": "1s"}, 2),
        ({"ttft": "1s", "tpot": "150ms"}, 1),
        ({"e2el": "5s"}, 3),
        ({"e2el": "4s"}, 1),
        ({"ttft": "100s"}, 3),
    ],
)
def test_goodput_counts_the_jobs_that_met_every_limit(level, good):
    one = view(ServiceLevel.model_validate(level))
    assert MEASURES["goodput"].of(one) == pytest.approx(good / one.span_s)
    assert attainment(one) == pytest.approx(good / 4)


@pytest.mark.parametrize("level", [None, ServiceLevel()])
def test_without_a_level_there_is_no_goodput(level):
    assert MEASURES["goodput"].of(view(level)) is None


def test_a_job_whose_tokens_are_unknown_is_not_said_to_have_met_a_limit_per_token():
    rows = [(*ROWS[0][:7], np.nan), ROWS[1]]
    assert attainment(view(ServiceLevel.model_validate({"tpot": "10s"}), rows)) == pytest.approx(0.5)


# ---- the largest rate ------------------------------------------------------------------------------------------------


def probe(rate: float, met: float, *, count: int = 40):
    """One window of a search in which a share `met` of the requests took 1 s to the first token, the others 9 s."""
    slow = round(count * (1 - met))
    rows = [
        (0, DONE, at / rate, at / rate + wait, at / rate + wait + 1, at / rate + wait + 1, 0.1, 11)
        for at in range(count)
        for wait in [9.0 if at < slow else 1.0]
    ]
    requests = requests_of(rows)
    bare = Bare(requests, None)
    arrival = Arrival(ArrivalKind.OPEN, rate=rate)
    bare.windows = (
        WindowRecord(1, 1, "x", WindowKind.PROBE, None, None, count, 0, 10**6 * S, arrival=arrival),
    )  # fmt: skip
    (found,) = view_windows(bare, [BOOT])
    return replace(found, level=ServiceLevel.model_validate({"ttft": "2s"}))


LOAD = Load(name="x", rates=(0.25, 4.0), window="10s", attainment=0.9)


def test_the_rate_lies_between_what_held_and_what_did_not_by_its_attainment():
    found = largest_rate([probe(1.0, 0.95), probe(4.0, 0.85), probe(2.0, 0.95)], LOAD)
    assert isinstance(found, Carried)
    assert (found.low, found.high) == (2.0, 4.0)
    assert found.rate == pytest.approx(2.0 * 2**0.5)


def test_a_search_that_found_no_edge_gives_no_rate():
    for shares, says in ((1.0, "raise the upper rate"), (0.5, "lower the lower rate")):
        found = largest_rate([probe(1.0, shares), probe(2.0, shares)], LOAD)
        assert isinstance(found, Undefined)
        assert says in found.reason
    assert isinstance(largest_rate([], LOAD), Undefined)


def test_a_rate_above_one_that_failed_does_not_count():
    found = largest_rate([probe(0.5, 1.0), probe(1.0, 0.5), probe(2.0, 1.0)], LOAD)
    assert isinstance(found, Carried)
    assert (found.low, found.high) == (0.5, 1.0)


# ---- sessions --------------------------------------------------------------------------------------------------------


def session_view(rows, sessions, turns, phases, *, in_flight=1):
    requests = replace(
        requests_of(rows),
        sessions=("a", "b", "c"), session_code=np.array(sessions), turn=np.array(turns),
        phases=("plan", "code"), phase_code=np.array(phases, np.int16),
    )  # fmt: skip
    bare = Bare(requests, in_flight)
    bare.windows = (replace(bare.windows[0], arrival=Arrival(ArrivalKind.SESSIONS)),)
    (found,) = view_windows(bare, [BOOT])
    return found


def test_sessions_per_hour_leaves_out_a_session_with_a_failed_turn():
    one = session_view(ROWS, [0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 0, 1])
    assert one.span_s == pytest.approx(14.5)
    assert MEASURES["sessions_per_h"].of(one) == pytest.approx(3600 / 14.5)


def test_without_sessions_there_are_no_sessions_per_hour():
    assert MEASURES["sessions_per_h"].of(view(None)) is None


def test_phases_and_turns_are_summed_apart():
    one = session_view(ROWS[:3], [0, 0, 1], [0, 1, 0], [0, 1, 0])
    found = {(s.phase, s.turn): s for s in summarise_phases([one], arm="a", load="x")}
    assert set(found) == {("plan", None), ("code", None), (None, 0), (None, 1)}
    assert found["plan", None].requests == 2
    assert found["plan", None].ttft_s == pytest.approx((0.5 + 3) / 2)
    assert found["code", None].tpot_s == pytest.approx(0.2)
    assert found["code", None].cached_share is None
    assert found["code", None].mean_accepted_length is None


def test_late_turns_are_taken_together():
    one = session_view(ROWS[:3], [0, 0, 0], [LATE - 1, LATE, LATE + 3], [0, 0, 0])
    turns = {s.turn: s.requests for s in summarise_phases([one], arm="a", load="x") if s.phase is None}
    assert turns == {LATE - 1: 1, LATE: 2}
