"""Saturation is seen in the queue: hand-made and simulated windows, a late client, and what nothing can be said of."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from specdyno.plan.schema import ServiceLevel
from specdyno.records.queueing import Saturation, queueing
from specdyno.records.schema import Arrival, ArrivalKind, Outcome, RequestRecord
from specdyno.records.service import attained, met_level, rate_carried
from specdyno.records.timings import Timings


def timings(came_s, left_s, *, late_s=0.0, done=None) -> Timings:
    came = np.rint(np.asarray(came_s) * 1e9).astype(np.int64)
    left = np.rint(np.asarray(left_s) * 1e9).astype(np.int64)
    sent = came + np.rint(np.broadcast_to(late_s, came.shape) * 1e9).astype(np.int64)
    ok = np.ones(len(came), bool) if done is None else np.asarray(done)
    return Timings(came, sent, came, left, left, np.full(len(came), 10.0), ok)


def served(rate: float, count: int, servers: int, rng: np.random.Generator, ramp_from: float | None = None) -> Timings:
    """A queue with as many servers, whose service takes one second in the mean."""
    unit = np.cumsum(rng.exponential(1.0, count))
    first = rate if ramp_from is None else ramp_from
    window = 2 * count / (first + rate)
    came = 2 * unit / (first + np.sqrt(first**2 + 2 * (rate - first) / window * unit))
    free = [0.0] * servers
    left = []
    for moment, takes in zip(came, rng.lognormal(-0.15, 0.55, count), strict=True):
        start = max(heapq.heappop(free), moment)
        left.append(start + takes)
        heapq.heappush(free, left[-1])
    return timings(came, left)


@pytest.mark.parametrize(("load", "low", "high"), [(0.5, 0.0, 0.02), (0.8, 0.0, 0.06), (1.3, 0.9, 1.0)])
def test_a_queue_is_called_saturated_when_it_is(load, low, high):
    rng = np.random.default_rng(11)
    called = [queueing(served(8 * load, 300, 8, rng)).saturated is Saturation.YES for _ in range(100)]
    assert low <= np.mean(called) <= high


def test_a_ramp_below_the_limit_is_not_taken_for_a_growing_queue():
    rng = np.random.default_rng(12)
    windows = [served(28.0, 400, 48, rng, ramp_from=2.0) for _ in range(60)]
    ramp = Arrival(ArrivalKind.OPEN, rate=15.0, ramp_from=2.0)
    assert np.mean([queueing(one, ramp).saturated is Saturation.YES for one in windows]) <= 0.05
    assert np.mean([queueing(one).saturated is Saturation.YES for one in windows]) > 0.5
    over = [served(14.0, 300, 8, rng, ramp_from=6.0) for _ in range(60)]
    arrival = Arrival(ArrivalKind.OPEN, rate=10.0, ramp_from=6.0)
    assert np.mean([queueing(one, arrival).saturated is Saturation.YES for one in over]) > 0.8


def test_a_trace_that_comes_faster_at_its_end_is_not_taken_for_a_growing_queue():
    came = np.concatenate([np.arange(0, 50, 1.0), np.arange(50, 100, 0.25)])
    trace = Arrival(ArrivalKind.TRACE, source="t.csv")
    assert queueing(timings(came, came + 3.0), trace).saturated is Saturation.NO


def test_rates_are_those_of_the_stamps():
    came = np.arange(0, 40, 0.5)
    seen = queueing(timings(came, came + 1.0, late_s=0.01))
    assert seen.offered_per_s == pytest.approx(2.0)
    assert seen.sent_per_s == pytest.approx(2.0)
    assert seen.achieved_per_s == pytest.approx(78 / 39.5)  # the last two ended after the last send
    assert seen.in_flight == pytest.approx(2.0)
    assert seen.growth == pytest.approx(0.0, abs=1e-9)
    assert (seen.late_p50_ns, seen.late_max_ns, seen.late_share) == (10_000_000, 10_000_000, 0.0)
    assert not seen.client_too_slow


def test_failed_requests_are_not_achieved():
    came = np.arange(0, 40, 0.5)
    seen = queueing(timings(came, came + 0.1, done=np.arange(80) % 2 == 0))
    assert seen.achieved_per_s == pytest.approx(1.0, abs=0.03)


def test_a_client_that_falls_behind_is_seen_by_its_sends():
    came = np.arange(0, 10, 0.01)
    assert queueing(timings(came, came + 20.0, late_s=came * 0.2)).client_too_slow
    assert queueing(timings(came, came + 20.0, late_s=np.where(np.arange(1000) % 10 == 0, 0.3, 0.0))).client_too_slow
    assert not queueing(timings(came, came + 20.0, late_s=np.where(np.arange(1000) == 7, 0.3, 0.0))).client_too_slow


@pytest.mark.parametrize("count", [0, 1, 19])
def test_of_few_requests_nothing_is_said(count):
    came = np.arange(count, dtype=float)
    seen = queueing(timings(came, came + 1.0))
    assert seen.saturated is Saturation.UNKNOWN
    assert seen.in_flight is None


def test_of_a_window_shorter_than_a_few_requests_nothing_is_said():
    came = np.linspace(0, 10, 100)
    assert queueing(timings(came, came + 6.0)).saturated is Saturation.UNKNOWN


def row(**keys) -> RequestRecord:
    given = {"intended_ns": 0, "sent_ns": 1, "outcome": Outcome.FINISHED, "last_byte_ns": 2_000_000_000}
    return RequestRecord(0, "p", "0", "code", **{**given, "chunk_ns": (100_000_000, 1_100_000_000),
                                                 "chunk_chars": (1, 1), "completion_tokens": 11, **keys})  # fmt: skip


@pytest.mark.parametrize(
    ("level", "keys", "met"),
    [
        ({}, {}, True),
        ({"ttft": "100ms"}, {}, True),
        ({"ttft": "99ms"}, {}, False),
        ({"ttft": "1s"}, {"chunk_ns": (), "chunk_chars": ()}, False),
        ({"ttft": "1s"}, {"intended_ns": -1_000_000_000}, False),  # counted from the intended send
        ({"tpot": "100ms"}, {}, True),
        ({"tpot": "99ms"}, {}, False),
        ({"tpot": "1s"}, {"completion_tokens": None}, False),
        ({"tpot": "1ms"}, {"completion_tokens": 1}, True),
        ({"e2el": "2s"}, {}, True),
        ({"e2el": "1.9s"}, {}, False),
        ({"e2el": "9s"}, {"last_byte_ns": None}, False),
        ({}, {"outcome": Outcome.TIMED_OUT}, False),
        ({"ttft": "1s", "e2el": "1s"}, {}, False),
    ],
)
def test_a_request_meets_a_level_when_it_meets_every_limit_of_it(level, keys, met):
    assert met_level(Timings.of_records([row(**keys)]), ServiceLevel.model_validate(level)).tolist() == [met]


def test_a_rate_is_carried_when_enough_met_the_level_and_the_queue_did_not_grow():
    came = np.arange(0, 100, 1.0)
    level = ServiceLevel(e2el="2s")
    good = timings(came, came + np.where(np.arange(100) < 10, 3.0, 1.0))
    assert attained(good, level) == pytest.approx(0.9)
    assert rate_carried(good, level, 0.9) is True
    assert rate_carried(good, level, 0.91) is False
    growing = timings(came, came + np.arange(100) * 0.6)
    assert queueing(growing).saturated is Saturation.YES
    assert rate_carried(growing, ServiceLevel(e2el="100s"), 0.9) is False
    assert rate_carried(timings([], []), level, 0.9) is None


def test_far_beyond_the_limit_the_times_in_the_system_tell_though_nothing_is_steady():
    came = np.linspace(0, 2, 120)
    seen = queueing(timings(came, 0.1 + np.arange(120) / 20))  # 60 per second offered, 20 carried
    assert (seen.saturated, seen.in_flight) == (Saturation.YES, None)


def test_a_burst_that_is_sent_far_slower_than_asked_is_seen_however_short_it_is():
    came = np.arange(0, 0.026, 0.00005)
    assert queueing(timings(came, came + 1.0, late_s=came * 2.0)).client_too_slow
    stalled = np.where(np.arange(len(came)) == 5, 0.09, 0.0)
    assert not queueing(timings(came, came + 1.0, late_s=stalled)).client_too_slow
