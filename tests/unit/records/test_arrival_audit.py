"""Doubts about arrivals: stated with what was seen, and only where requests did not wait for answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specdyno.records.arrival_audit import arrival_doubts
from specdyno.records.schema import Arrival, ArrivalKind, FindingCode, Requests, Severity, WindowKind, WindowRecord

OPEN = Arrival(ArrivalKind.OPEN, rate=10.0)


def window(arrival: Arrival | None = OPEN, kind: WindowKind = WindowKind.MIXED) -> WindowRecord:
    return WindowRecord(1, 1, "open", kind, None, None, 200, 0, 1, arrival=arrival)


def requests(stay_s, late_s=0.0) -> Requests:
    count = 200
    came = (np.arange(count) * 1e8).astype(np.int64)
    nothing, unknown = np.full(count, -1), np.full(count, np.nan)
    ended = came + (np.broadcast_to(stay_s, count) * 1e9).astype(np.int64)
    sent = came + (np.broadcast_to(late_s, count) * 1e9).astype(np.int64)
    return Requests(
        window_id=np.ones(count, np.int64), index=np.arange(count), class_code=np.zeros(count, np.int16),
        outcome_code=np.zeros(count, np.int8), intended_ns=came, sent_ns=sent, first_text_ns=nothing,
        last_text_ns=nothing, ended_ns=ended, longest_gap_ns=nothing, chunks=nothing, tokens=unknown,
        prompt_tokens=unknown, cached_tokens=unknown, spec_steps=unknown, spec_drafted=unknown, spec_accepted=unknown,
        class_names=("code",), spec_reached=np.empty((count, 0)), spec_at_risk=np.empty((count, 0)),
    )  # fmt: skip


def doubts(seen: Requests, of: WindowRecord | None = None) -> list[tuple[FindingCode, Severity, str]]:
    return list(arrival_doubts(of or window(), seen, np.arange(len(seen))))


GROWING = requests(0.5 + np.arange(200) * 0.06)
LATE = requests(30.0, np.arange(200) * 0.02)


def test_a_steady_queue_and_a_punctual_client_are_not_doubted():
    assert doubts(requests(0.5, 0.002)) == []


def test_a_growing_queue_is_doubted_with_its_rates():
    ((code, severity, detail),) = doubts(GROWING)
    assert (code, severity) == (FindingCode.SATURATED, Severity.DOUBT)
    assert detail.startswith("10 requests/s offered and")


def test_without_a_steady_part_the_stays_are_told_and_no_unknown_number():
    ((code, _, detail),) = doubts(requests(5.0 + np.arange(200) * 1.0))
    assert code == FindingCode.SATURATED
    assert detail.endswith("done; each request stayed longer than those before it")


def test_a_search_goes_beyond_on_purpose():
    assert doubts(GROWING, window(kind=WindowKind.PROBE)) == []


@pytest.mark.parametrize("kind", [WindowKind.MIXED, WindowKind.PROBE])
def test_a_client_that_cannot_keep_the_rate_forbids(kind):
    ((code, severity, detail),) = doubts(LATE, window(kind=kind))
    assert (code, severity) == (FindingCode.CLIENT_AT_CEILING, Severity.FORBIDS)
    assert detail.startswith("sent 8.33 of 10 requests/s; 97.0% of the sends came more than 100 ms late")


def test_a_few_late_sends_are_a_doubt():
    late = np.where(np.arange(200) % 50 == 0, 0.2, 0.0)
    ((code, severity, _),) = doubts(requests(0.5, late))
    assert (code, severity) == (FindingCode.CLIENT_AT_CEILING, Severity.DOUBT)


def test_of_a_closed_loop_nothing_is_said():
    assert doubts(GROWING, window(None)) == []


def test_recorded_parts_of_histories_are_counted_among_the_turns_that_have_one():
    sessions = window(Arrival(ArrivalKind.SESSIONS))
    supplied = np.array([-1, 1, 0, -1] * 50)
    assert doubts(replace(GROWING, supplied=supplied), sessions) == [
        (FindingCode.HISTORY_SUPPLIED, Severity.NOTE, "in 50 of 100 later turns")
    ]
    assert doubts(replace(GROWING, supplied=np.zeros(200, np.int64)), sessions) == []
    assert doubts(GROWING, sessions) == []
