"""The search goes to where the service level breaks, by what this boot carried."""

from __future__ import annotations

import math

import pytest
from tests.unit.load.scripted_server import jobs

from specdyno.load.search import SearchPlan, next_rate, search
from specdyno.plan.schema import Load, ServiceLevel
from specdyno.records.schema import ArrivalKind, Outcome, RequestRecord, WindowKind
from specdyno.workload.arrivals import step_sizes


def plan(**keys) -> SearchPlan:
    load = Load.model_validate({"name": "s", "rates": [1, 16], "steps": 4, "window": "10s", **keys})
    steps = tuple(tuple(jobs(size)) for size in step_sizes(load))
    return SearchPlan(load, ServiceLevel(e2el="1s"), steps, "label")


def carrying(limit: float, seen: list):
    """Measures a window of a server that answers in time up to `limit` requests per second."""

    async def run(window, listen):
        seen.append(window)
        takes_ns = 500_000_000 if window.arrival.rate <= limit else 3_000_000_000
        for index, offset in enumerate(window.offsets_ns):
            end = offset + takes_ns
            listen(RequestRecord(index, "p", "0", "code", offset, offset, Outcome.FINISHED, last_byte_ns=end))

    return run


@pytest.mark.parametrize(
    ("limit", "rates"),
    [
        (5.0, [4.0, 8.0, math.sqrt(32), math.sqrt(4 * math.sqrt(32))]),
        (100.0, [4.0, 8.0, math.sqrt(128), 16.0]),  # the last step asks the upper bound itself
        (0.5, [4.0, 2.0, math.sqrt(2), 1.0]),
    ],
)
async def test_rates_close_in_on_the_largest_that_is_carried(limit, rates):
    seen = []
    tried = await search(plan(), carrying(limit, seen))
    assert [window.arrival.rate for window in seen] == pytest.approx(rates)
    assert tried == tuple((rate, rate <= limit) for rate, _ in tried)


async def test_every_step_is_a_probe_of_its_own_prompts_that_lasts_the_window():
    seen = []
    await search(plan(), carrying(100.0, seen))
    assert {(window.kind, window.concurrency, window.arrival.kind) for window in seen} == {
        (WindowKind.PROBE, None, ArrivalKind.OPEN)
    }
    for window in seen:
        assert len(window.jobs) == len(window.offsets_ns) == window.planned == round(window.arrival.rate * 10)
        assert window.offsets_ns[-1] <= 10e9 * 1.06


async def test_a_stated_number_of_requests_is_asked_at_every_rate():
    seen = []
    await search(plan(requests=20), carrying(5.0, seen))
    assert {len(window.jobs) for window in seen} == {20}


def test_a_rate_that_fails_below_one_that_was_carried_ends_between_the_bounds():
    assert next_rate((1.0, 16.0), [(4.0, True), (2.0, False)], left=2) == pytest.approx(math.sqrt(8.0))
