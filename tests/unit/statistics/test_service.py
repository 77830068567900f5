"""Goodput, sessions per hour and the largest rate of a search, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.statistics.test_measures import BOOT, Bare, S, requests_of

from specdyno.plan.schema import Load, ServiceLevel
from specdyno.records.schema import Arrival, ArrivalKind, FindingCode, Outcome, Severity, WindowKind, WindowRecord
from specdyno.statistics.arrivals import open_windows
from specdyno.statistics.intervals import Undefined
from specdyno.statistics.measures import MEASURES
from specdyno.statistics.phases import LATE, summarise_phases
from specdyno.statistics.service import Beyond, Carried, attainment, edge_finding, largest_rate
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


def test_a_search_that_found_no_edge_gives_a_bound_and_no_rate():
    assert largest_rate([probe(1.0, 1.0), probe(2.0, 1.0)], LOAD) == Beyond(above=2.0)
    assert largest_rate([probe(1.0, 0.5), probe(2.0, 0.5)], LOAD) == Beyond(below=1.0)
    assert isinstance(largest_rate([], LOAD), Undefined)


def test_a_search_without_an_edge_is_told_with_the_rates_that_would_hold_it():
    edges = {0: Beyond(above=4.0), 1: Carried(2.0, 1.0, 4.0), 2: Beyond(above=3.5), 3: Beyond(below=0.25)}
    found = edge_finding("baseline", LOAD, edges)
    assert found is not None
    assert (found.code, found.severity, found.arm, found.load) == (
        FindingCode.EDGE_NOT_FOUND, Severity.DOUBT, "baseline", "x",
    )  # fmt: skip
    assert found.detail == (
        "every rate up to 4/s met the service level in blocks 1, 3; no rate down to 0.25/s met the service level in "
        "block 4: search `rates: [0.0625, 8]`"
    )
    assert edge_finding("baseline", LOAD, {0: Carried(2.0, 1.0, 4.0), 1: Undefined("no window")}) is None


def test_a_rate_whose_queue_nobody_saw_bounds_nothing_from_below():
    few = {"count": 12}
    found = largest_rate([probe(1.0, 1.0, **few), probe(4.0, 0.5)], LOAD)
    assert isinstance(found, Carried)
    assert (found.low, found.high) == (None, 4.0)
    assert largest_rate([probe(1.0, 1.0, **few)], LOAD) == Beyond()
    assert largest_rate([probe(0.5, 1.0), probe(1.0, 1.0, **few)], LOAD) == Beyond(above=0.5)
    told = edge_finding("a", LOAD, {0: found, 2: Beyond()})
    assert told is not None
    assert told.detail == (
        "whether the queue grew at the rates that were carried is not known in blocks 1, 3: use longer windows"
    )


def test_a_rate_above_one_that_failed_does_not_count():
    found = largest_rate([probe(0.5, 1.0), probe(1.0, 0.5), probe(2.0, 1.0)], LOAD)
    assert isinstance(found, Carried)
    assert (found.low, found.high) == (0.5, 1.0)


def test_a_step_of_a_search_is_told_with_its_rates_and_what_came_of_it():
    found = open_windows([probe(4.0, 0.85), probe(2.0, 0.95)], arm="a", load=LOAD)
    assert [(one.planned_per_s, one.attained, one.carried, one.search) for one in found] == [
        (4.0, 0.85, False, True),
        (2.0, 0.95, True, True),
    ]
    first = found[0]
    assert (first.offered_per_s, first.sent_per_s) == (pytest.approx(4.0), pytest.approx(4.0))
    assert first.achieved_per_s is not None
    assert 0 < first.achieved_per_s < 4.0
    assert first.late_p95_s == 0.0
    assert open_windows([view(None)], arm="a", load=LOAD) == ()


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
    found = {(s.phase, s.turn): s for s in summarise_phases([one], arm="a", load="x", k=None, seed=1)}
    assert set(found) == {("plan", None), ("code", None), (None, 0), (None, 1)}
    assert found["plan", None].requests == 2
    assert found["plan", None].ttft_s == pytest.approx((0.5 + 3) / 2)
    assert found["code", None].tpot_s == pytest.approx(0.2)
    assert found["code", None].cached_share is None
    assert isinstance(found["code", None].mean_accepted_length, Undefined)


def test_late_turns_are_taken_together():
    one = session_view(ROWS[:3], [0, 0, 0], [LATE - 1, LATE, LATE + 3], [0, 0, 0])
    turns = {s.turn: s.requests for s in summarise_phases([one], arm="a", load="x", k=1, seed=1) if s.phase is None}
    assert turns == {LATE - 1: 1, LATE: 2}


def drafted_views(accepted: list[list[float]], *, sessions: list[int] | None = None):
    """One list per boot, in it one turn of phase "plan" per entry, each with 10 drafted steps at K = 1."""
    told = np.concatenate([np.array(turns) for turns in accepted])
    count = len(told)
    rows = [(0, DONE, n, n + 0.5, n + 0.9, n + 0.9, 0.1, 11 + told[n]) for n in range(count)]
    whole = session_view(rows, sessions or list(range(count)), [0] * count, [0] * count)
    requests = replace(
        whole.requests, spec_steps=np.full(count, 10.0), spec_drafted=np.full(count, 10.0), spec_accepted=told,
        spec_reached=told[:, None], spec_at_risk=np.full((count, 1), 10.0), spec_source=("x detailed",),
    )  # fmt: skip
    boots = np.repeat(np.arange(len(accepted)), [len(turns) for turns in accepted])
    whole = replace(whole, requests=requests)
    return [replace(whole.where(boots == n), boot=replace(BOOT, id=n, block=n)) for n in range(len(accepted))]


def plan_phase(views):
    (found, *_) = summarise_phases(views, arm="a", load="x", k=1, seed=1)
    assert (found.phase, found.boots) == ("plan", len(views))
    return found


def test_acceptance_of_a_phase_has_an_interval_over_boots():
    found = plan_phase(drafted_views([[4.0 + n, 6.0] for n in range(4)]))
    length, rate = found.mean_accepted_length, found.rate
    assert found.drafted_steps == 80
    assert length.estimate == pytest.approx(1 + 46 / 80)
    assert rate.estimate == pytest.approx(46 / 80)
    assert (length.method, length.count) == ("t over boot-level logits", 4)
    logits = np.log([(a + 0.5) / (20 - a + 0.5) for a in (10, 11, 12, 13)])
    half = 3.182446 * np.std(logits, ddof=1) / 2
    assert rate.low == pytest.approx(1 / (1 + np.exp(half - logits.mean())), rel=1e-5)
    assert length.low == pytest.approx(1 + rate.low)
    assert found.joint[0].estimate == rate.estimate


def test_within_one_boot_whole_sessions_are_resampled():
    told = [1.0, 1.0, 1.0, 9.0, 9.0, 9.0]
    alike = plan_phase(drafted_views([told], sessions=[0, 0, 0, 1, 1, 1])).rate
    apart = plan_phase(drafted_views([told])).rate
    assert alike.method == apart.method == "bootstrap over sessions, within one boot"
    assert (alike.count, apart.count) == (2, 6)
    assert alike.high - alike.low > apart.high - apart.low
    assert alike.estimate == apart.estimate == pytest.approx(0.5)
