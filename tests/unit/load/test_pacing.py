"""The open loop: each request at its intended time whatever is in flight, and a late one is still sent."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.unit.load.scripted_server import jobs, whole

from specdyno.load.window import Hooks, run_window
from specdyno.records.schema import Outcome


async def test_requests_are_sent_at_their_times_whatever_is_in_flight(scripted, place):
    async def slow(one) -> None:
        await asyncio.sleep(0.4)
        await whole(one)

    scripted.script = slow
    kept = []
    offsets = [0, 20_000_000, 20_000_000, 150_000_000]
    run = await run_window(place(), jobs(4), offsets_ns=offsets, hooks=Hooks(kept.extend))
    kept.sort(key=lambda row: row.index)
    assert scripted.most_in_flight == 4
    began = kept[0].intended_ns
    assert [row.intended_ns - began for row in kept] == offsets
    assert all(row.sent_ns >= row.intended_ns for row in kept)
    assert run.started_ns <= began <= run.ended_ns
    assert (run.rows, run.done) == (4, 4)


async def test_a_client_that_stands_still_sends_late_and_says_so(scripted, place):
    async def block(one) -> None:
        if len(scripted.bodies) == 1:
            time.sleep(0.3)  # noqa: ASYNC251 (the loop is blocked on purpose)
        await whole(one)

    scripted.script = block
    kept = []
    offsets = [n * 20_000_000 for n in range(10)]
    await run_window(place(), jobs(10), offsets_ns=offsets, hooks=Hooks(kept.extend))
    late = {row.index: row.sent_ns - row.intended_ns for row in kept}
    assert sorted(late) == list(range(10))
    assert max(late.values()) > 100_000_000
    assert all(lateness >= 0 for lateness in late.values())


async def test_once_the_engine_is_dead_no_further_request_is_sent(scripted, place):
    alive = True

    async def die_at_third(one) -> None:
        nonlocal alive
        if len(scripted.bodies) == 3:
            alive = False
            return
        await whole(one)

    scripted.script = die_at_third
    kept = []
    hooks = Hooks(kept.extend, engine_alive=lambda: alive)
    run = await run_window(place(), jobs(40), offsets_ns=[n * 30_000_000 for n in range(40)], hooks=hooks)
    assert run.aborted
    assert len(kept) < 10
    assert {row.outcome for row in kept} == {Outcome.FINISHED, Outcome.BROKEN_STREAM}


async def test_an_error_of_the_storage_ends_an_open_window(place):
    def keep(_rows) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await run_window(place(), jobs(50), offsets_ns=[n * 10_000_000 for n in range(50)], hooks=Hooks(keep))


async def test_a_bug_while_sending_is_raised_and_leaves_nothing_running(place, monkeypatch):
    async def odd(_client, _url, body, *, timeout_s):
        if b"question 1" in body:
            raise ValueError("a bug")
        await asyncio.sleep(30)

    monkeypatch.setattr("specdyno.load.window.exchange", odd)
    before = len(asyncio.all_tasks())
    window = run_window(place(), jobs(3), offsets_ns=[0, 1_000_000, 60_000_000], hooks=Hooks(list))
    with pytest.raises(ValueError, match="a bug"):
        await asyncio.wait_for(window, 5)
    assert len(asyncio.all_tasks()) <= before + 1


async def test_a_cancelled_open_window_keeps_what_was_answered(scripted, place):
    kept = []
    third = asyncio.Event()

    async def hang_from_third(one) -> None:
        if len(scripted.bodies) > 2:
            third.set()
            await asyncio.sleep(30)
        await whole(one)

    scripted.script = hang_from_third
    offsets = [0, 10_000_000, 300_000_000, 310_000_000, 5_000_000_000]
    window = run_window(place(), jobs(5), offsets_ns=offsets, hooks=Hooks(kept.extend))
    task = asyncio.ensure_future(window)
    await third.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(row.index for row in kept) == [0, 1]
