"""Worker processes: the same rows as without them, a lost one is an error, and none is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

import psutil
import pytest
import uvloop
from tests.unit.load.scripted_server import Scripted, whole

from specdyno.errors import EngineError
from specdyno.load.client import exchange
from specdyno.load.crew import Crew
from specdyno.load.http import Client
from specdyno.load.window import Hooks, Job, run_window
from specdyno.load.workers import Workers, wanted
from specdyno.records.schema import Outcome
from specdyno.workload.prompts import Prompt


def jobs(count: int) -> list[Job]:
    return [Job(Prompt(f"p{i}", "code", None, f"q{i}", None, None, None, 64, "")) for i in range(count)]


@pytest.fixture
async def workers():
    made = await Workers.start(2, {"Authorization": "Bearer sk-1"}, None)
    yield made
    await made.stop()
    assert not [pid for pid in made.pids if psutil.pid_exists(pid)]


@pytest.mark.parametrize("open_loop", [False, True])
async def test_a_window_with_workers_has_the_rows_of_one_without(scripted, place, workers, open_loop):
    how = {"offsets_ns": [i * 2_000_000 for i in range(40)]} if open_loop else {"concurrency": 6}
    found = []
    for endpoint in (place(), replace(place(), workers=workers)):
        rows = []
        run = await run_window(endpoint, jobs(40), hooks=Hooks(rows.extend), **how)
        assert (run.rows, run.done) == (40, 40)
        assert all(row.intended_ns <= row.sent_ns <= row.first_byte_ns <= row.last_byte_ns for row in rows)
        found.append(
            sorted((r.index, r.prompt_id, r.text, r.chunk_chars, r.completion_tokens, r.outcome) for r in rows)
        )
    assert found[0] == found[1]
    assert sorted(body["prompt"] for body in scripted.bodies) == sorted(2 * [f"q{i}" for i in range(40)])
    assert scripted.headers[-1]["authorization"] == "bearer sk-1"


async def test_a_key_stands_on_no_command_line(workers):
    assert not [pid for pid in workers.pids if "sk-1" in " ".join(psutil.Process(pid).cmdline())]


async def test_a_lost_worker_ends_the_window_and_what_was_answered_is_kept(scripted, place, workers):
    rows = []

    async def mortal(one) -> None:
        if len(scripted.bodies) > 10:
            for pid in workers.pids:
                os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(30)
        await whole(one)

    scripted.script = mortal
    with pytest.raises(EngineError, match="ended in the middle"):
        await run_window(replace(place(), workers=workers), jobs(40), concurrency=2, hooks=Hooks(rows.extend))
    assert len(rows) >= 8
    assert all(row.outcome is Outcome.FINISHED for row in rows)


async def test_an_interrupted_window_leaves_no_request_at_the_server(scripted, place, workers):
    async def hang(_one) -> None:
        await asyncio.sleep(30)

    scripted.script = hang
    endpoint = replace(place(), workers=workers)
    task = asyncio.ensure_future(run_window(endpoint, jobs(4), concurrency=4, hooks=Hooks(list)))
    while scripted.in_flight < 4:  # noqa: ASYNC110 - the server's own count
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_late_warm_up_gives_this_boot_and_all_later_ones_workers(place):
    crew, told = Crew(cores=4), []
    async with crew:
        assert (await crew.fitted(place(), (1_000_000, 0.1), tell=told.append)).workers is None
        assert not told
        first = (await crew.fitted(place(), (80_000_000, 0.1), tell=told.append)).workers
    async with crew:
        later = (await crew.fitted(place(), (1_000_000, 0.1), tell=told.append)).workers
        assert later not in (None, first)
    assert not [pid for pid in (*first.pids, *later.pids) if psutil.pid_exists(pid)]
    assert len(told) == 1
    assert "80 ms late" in told[0]


@pytest.mark.parametrize(
    ("lag_ms", "busy", "cores", "count"),
    [(10, 0.3, 16, 0), (60, 0.3, 16, 8), (10, 0.7, 4, 2), (60, 0.9, 3, 0), (60, 0.9, 2, 0)],
)
def test_workers_are_wanted_where_the_loop_is_late_or_busy_and_cores_are_spare(lag_ms, busy, cores, count):
    assert wanted(lag_ms * 1_000_000, busy, cores) == count


def test_the_client_works_under_the_loop_that_studies_run_on():
    async def ask() -> bytes:
        served = Scripted()
        server = await asyncio.start_server(served.handle, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            raw = await exchange(Client(), url, b"{}", timeout_s=5)
            await served.close()
        assert (raw.status, raw.failure) == (200, None)
        return b"".join(part for _, part in raw.reads)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        assert loop.run(ask()).endswith(b"[DONE]\n\n")
