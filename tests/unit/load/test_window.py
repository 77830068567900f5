"""The closed loop: never more than asked for in flight, every job once, in order, and nothing lost or left behind."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.load.scripted_server import WHOLE, head, jobs, whole

from specdyno.load import window
from specdyno.load.chunks import Reads
from specdyno.load.client import RawExchange
from specdyno.load.window import Endpoint, Hooks, run_window
from specdyno.plan.schema import Sampling
from specdyno.records.schema import Outcome


def leftovers() -> tuple[int, set[str]]:
    return len(asyncio.all_tasks()), {thread.name for thread in threading.enumerate() if "records" in thread.name}


@pytest.mark.parametrize(("count", "concurrency"), [(12, 3), (2, 8), (5, 1), (0, 4)])
async def test_every_job_is_sent_once_and_never_too_many_at_a_time(scripted, place, count, concurrency):
    async def slow(one) -> None:
        await asyncio.sleep(0.02)
        await whole(one)

    scripted.script = slow
    kept = []
    before, _ = leftovers()
    run = await run_window(place(), jobs(count), concurrency=concurrency, hooks=Hooks(kept.extend))
    assert scripted.most_in_flight == min(count, concurrency)
    assert sorted(row.index for row in kept) == list(range(count))
    assert (run.rows, run.done, run.tokens, run.failures, run.aborted) == (count, count, 5 * count, {}, False)
    assert run.started_ns <= run.ended_ns <= time.monotonic_ns()
    await asyncio.sleep(0.05)
    assert leftovers() == (before, set())


async def test_jobs_are_sent_in_the_order_of_the_list(scripted, place):
    kept = []
    await run_window(place(), jobs(6), concurrency=1, hooks=Hooks(kept.extend))
    assert [body["messages"][0]["content"] for body in scripted.bodies] == [f"question {n}" for n in range(6)]
    assert [row.index for row in kept] == list(range(6))
    assert [body["max_tokens"] for body in scripted.bodies] == [64] * 6


@given(delays=st.lists(st.floats(0, 0.01), max_size=25), concurrency=st.integers(1, 8))
@settings(max_examples=25, deadline=None)
def test_for_any_speed_of_answers_each_job_is_exchanged_once(delays, concurrency):
    sent, flying, most = [], 0, 0

    async def fake(_client, _url, body, *, timeout_s):
        nonlocal flying, most
        place = int(body.decode().split("question ")[1].split('"')[0])
        sent.append(place)
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(delays[place])
        flying -= 1
        return RawExchange(sent_ns=1, reads=Reads.of([(2, WHOLE)]), status=200, ended_ns=3)

    endpoint = Endpoint("http://nowhere", "m", None, Sampling(temperature=0.0), 1.0)
    kept = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "exchange", fake)
        asyncio.run(run_window(endpoint, jobs(len(delays)), concurrency=concurrency, hooks=Hooks(kept.extend)))
    assert sent == list(range(len(delays)))
    assert most <= concurrency
    assert sorted(row.index for row in kept) == sent


async def test_an_error_of_the_storage_stops_the_window_and_is_raised(scripted, place):
    kept = []

    def keep(rows) -> None:
        rows = list(rows)
        if len(kept) + len(rows) > 2:
            raise OSError(28, "No space left on device")
        kept.extend(rows)

    before, _ = leftovers()
    with pytest.raises(OSError, match="No space left"):
        await run_window(place(), jobs(200), concurrency=2, hooks=Hooks(keep))
    assert len(kept) == 2
    assert len(scripted.bodies) < 100
    await asyncio.sleep(0.05)
    assert leftovers() == (before, set())


async def test_an_error_of_a_watcher_is_not_lost(place):
    def on_row(_row) -> None:
        raise RuntimeError("broken watcher")

    with pytest.raises(RuntimeError, match="broken watcher"):
        await run_window(place(), jobs(3), concurrency=1, hooks=Hooks(list, on_row=on_row))


async def test_a_bug_in_one_client_leaves_no_other_running(place, monkeypatch):
    async def odd(_client, _url, body, *, timeout_s):
        if b"question 0" in body:
            raise ValueError("a bug")
        await asyncio.sleep(30)

    monkeypatch.setattr(window, "exchange", odd)
    before, _ = leftovers()
    with pytest.raises(ValueError, match="a bug"):
        await run_window(place(), jobs(4), concurrency=4, hooks=Hooks(list))
    assert leftovers() == (before, set())


async def test_once_the_engine_is_dead_nothing_more_is_sent(scripted, place):
    alive = True
    kept = []

    async def die_at_third(one) -> None:
        nonlocal alive
        if len(scripted.bodies) == 3:
            alive = False
            return
        await whole(one)

    scripted.script = die_at_third
    run = await run_window(place(), jobs(50), concurrency=1, hooks=Hooks(kept.extend, engine_alive=lambda: alive))
    assert run.aborted
    assert [row.outcome for row in kept] == [Outcome.FINISHED, Outcome.FINISHED, Outcome.BROKEN_STREAM]
    assert run.failures == {Outcome.BROKEN_STREAM: 1}
    assert len(scripted.bodies) == 3


async def test_a_port_that_refuses_is_not_stormed(client):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    born = time.monotonic()
    endpoint = Endpoint(f"http://127.0.0.1:{port}", "m", client, Sampling(temperature=0.0), 5.0)
    hooks = Hooks(list, engine_alive=lambda: time.monotonic() < born + 0.2)
    run = await run_window(endpoint, jobs(500), concurrency=2, hooks=hooks)
    assert run.aborted
    assert 1 <= run.rows <= 2  # of 500


async def test_a_cancelled_window_keeps_what_was_answered_and_leaves_nothing_running(scripted, place):
    kept = []

    third = asyncio.Event()

    async def hang_from_third(one) -> None:
        if len(scripted.bodies) > 2:
            third.set()
            await asyncio.sleep(30)
        await whole(one)

    scripted.script = hang_from_third
    before, _ = leftovers()
    task = asyncio.ensure_future(run_window(place(), jobs(9), concurrency=1, hooks=Hooks(kept.extend)))
    await third.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert [row.index for row in kept] == [0, 1]
    tasks, threads = leftovers()
    assert tasks <= before + 1  # the server's own, which still hangs
    assert threads == set()


async def test_the_clients_own_delay_is_seen(scripted, place):
    async def block(one) -> None:
        await asyncio.sleep(0.05)
        time.sleep(0.15)  # noqa: ASYNC251 (the loop is blocked on purpose)
        await whole(one)

    scripted.script = block
    run = await run_window(place(), jobs(1), concurrency=1, hooks=Hooks(list))
    assert run.lag_max_ns > 50_000_000


async def test_rows_carry_no_api_key_and_the_endpoint_does_not_show_it(scripted, place):
    async def refuse(one) -> None:
        await one.send(head("401 Unauthorized", "text/plain") + b"you sent sk-9")

    scripted.script = refuse
    kept = []
    endpoint = place(secret="sk-9")
    await run_window(endpoint, jobs(1), concurrency=1, hooks=Hooks(kept.extend))
    assert kept[0].error == "you sent [API key]"
    assert "sk-9" not in repr(endpoint)
