"""One boot on the simulated engine: how it ends is on record, and an engine's death is never a complete boot."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psutil
import pytest
from tests.unit.load.scripted_server import jobs

from specdyno.engine import server
from specdyno.engine.base import Adapter
from specdyno.engine.simulated.adapter import SimulatedAdapter
from specdyno.errors import EngineError, PlanError
from specdyno.load.boot import BootTask, Rig, WindowPlan, measure, session_for
from specdyno.load.watch import Silent
from specdyno.plan import parse
from specdyno.plan.schema import Engine
from specdyno.records.schema import BootStatus, Outcome, WindowKind

PLAN = """
study: boots
target: {model: sim/model}
engine: {kind: simulated, args: {time-scale: 0.01}, request_timeout: 5s, ready_timeout: 20s}
candidates: [{method: eagle3, draft: d, draft_tokens: [2]}]
workload:
  sampling: {temperature: 0.0}
  classes: [{name: code, prompts: "builtin:code", share: 1, max_tokens: 16}]
loads: [{name: one, concurrency: 2, window: 1s}]
objectives: [{name: one, load: one, measure: time_per_job}]
"""
KEY = "sk-of-the-test"


@pytest.fixture
def measured(store, tmp_path):
    """Measures one boot with the given faults; returns its failure and its records."""

    async def run(*faults: str, count: int = 6, watcher=None, windows=None, text: str = PLAN):
        plan = parse.parse(text)
        options = {"fault": list(faults), "truth": {"ready_delay_s": 0.0, "output_tokens": 8}}
        arm = plan.arms()[1].model_copy(update={"options": options})
        rig = Rig(plan, server.adapter(plan.engine, plan.target), store, watcher or Silent())
        task = BootTask(arm, 0, 1, 0, 3, tmp_path / "logs" / "a.log", "logs/a.log")
        one = WindowPlan("one", WindowKind.MIXED, None, 2, tuple(jobs(count)))
        warm_up = [replace(one, kind=WindowKind.WARM_UP, jobs=tuple(jobs(2)))]
        failure = await measure(rig, task, warm_up=warm_up, windows=windows or (lambda _seen: [one, one]))
        return failure, store.read_study()

    return run


async def test_a_complete_boot_has_its_windows_its_counters_and_who_served(measured):
    seen = []

    def windows(warm_ups):
        seen.extend(warm_ups)
        return [WindowPlan("one", WindowKind.MIXED, None, 2, tuple(jobs(6)))]

    failure, records = await measured(windows=windows)
    (boot,) = records.boots
    assert failure is None
    assert (boot.status, boot.failure, boot.arm, boot.log_path) == (BootStatus.COMPLETE, "", "eagle3-k2", "logs/a.log")
    assert boot.started_ns < boot.ready_ns < boot.ended_ns
    assert (boot.identity.method, boot.identity.draft_tokens) == ("eagle3", 2)
    assert boot.memory_bytes > 1_000_000
    assert "--speculative-config" in boot.command
    assert [window.kind for window in records.windows] == [WindowKind.WARM_UP, WindowKind.MIXED]
    for window in records.windows:
        assert window.before.stamp_ns <= window.started_ns <= window.ended_ns <= window.after.stamp_ns
        assert 0 <= window.host_busy <= 1
        assert window.client_lag_max_ns >= 0
    assert len(records.requests) == 8
    (warm_up,) = seen
    assert (warm_up.load, warm_up.concurrency, warm_up.done) == ("one", 2, 2)
    assert warm_up.seconds > 0
    assert not psutil.pid_exists(boot.pid)


@pytest.mark.parametrize("ordinal", [4, 8])
async def test_an_engine_that_dies_under_load_is_a_failed_boot(measured, ordinal):
    """Also where its death cuts the last request of the list, so that no further one is refused."""
    one = WindowPlan("one", WindowKind.MIXED, None, 1, tuple(jobs(6)))
    failure, records = await measured(f"die_after:{ordinal}", windows=lambda _seen: [one])
    (boot,) = records.boots
    assert "died under load" in str(failure)
    assert boot.status is BootStatus.FAILED
    assert "died under load" in boot.failure
    assert records.windows[-1].ended_ns is None
    codes = [list(Outcome)[code] for code in records.requests.outcome_code]
    # One is cut; the next may still reach the dying process's socket before it refuses.
    assert 1 <= codes.count(Outcome.BROKEN_STREAM) <= 2
    assert len(codes) <= ordinal + 2


async def test_an_engine_that_does_not_boot_is_a_failed_boot_with_its_last_words(measured):
    failure, records = await measured("refuse_boot:1")
    (boot,) = records.boots
    assert isinstance(failure, EngineError)
    assert boot.status is BootStatus.FAILED
    assert boot.ready_ns is None
    assert "config.json" in boot.failure
    assert records.windows == ()


async def test_a_warm_up_without_a_single_answer_fails_with_what_the_server_said(measured):
    failure, records = await measured("http_500:1")
    assert "none of the 2 warm-up requests was answered (2 http_error)" in str(failure)
    assert "EngineCore encountered an issue" in failure.remedy
    assert records.boots[0].status is BootStatus.FAILED


async def test_broken_streams_of_a_living_engine_are_rows(measured):
    failure, records = await measured("break_stream:0.5", count=20)
    assert failure is None
    assert records.boots[0].status is BootStatus.COMPLETE
    codes = {list(Outcome)[code] for code in records.requests.outcome_code}
    assert codes == {Outcome.CUT_AT_LIMIT, Outcome.BROKEN_STREAM} or codes == {Outcome.FINISHED, Outcome.BROKEN_STREAM}


async def test_a_cancelled_boot_is_interrupted_keeps_its_rows_and_its_engine_is_gone(measured, store):
    under_load = asyncio.Event()

    class Watcher(Silent):
        def window(self, load, kind, class_name, planned):
            if kind is WindowKind.MIXED:
                under_load.set()

    task = asyncio.ensure_future(measured(watcher=Watcher(), count=400))
    await under_load.wait()
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    records = store.read_study()
    (boot,) = records.boots
    assert boot.status is BootStatus.INTERRUPTED
    assert boot.ended_ns is not None
    assert records.windows[-1].ended_ns is None
    assert 2 < len(records.requests) < 402
    assert not psutil.pid_exists(boot.pid)


async def test_an_api_key_is_in_no_record(measured, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_KEY", KEY)
    text = PLAN.replace("kind: simulated,", "kind: simulated, api_key_env: MY_KEY,")
    failure, records = await measured("log_secrets", "die_after:4", text=text)
    assert "Bearer [API key]" in records.boots[0].failure
    assert failure is not None
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"Bearer [API key]" in kept
    assert KEY.encode() not in kept


async def test_a_session_sends_the_key_and_nothing_without_one(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    async with session_for(Engine(kind="vllm", api_key_env="MY_KEY")) as session:
        assert session.headers["Authorization"] == f"Bearer {KEY}"
    async with session_for(Engine(kind="vllm")) as session:
        assert "Authorization" not in session.headers
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(PlanError, match="MY_KEY is not set"):
        session_for(Engine(kind="vllm", api_key_env="MY_KEY"))


@pytest.mark.parametrize("held", [True, False])
async def test_another_draft_length_ends_the_boot_of_an_engine_that_is_held_to_it(measured, monkeypatch, held):
    if held:  # as every real engine is; the simulated one is let through so that findings can be seen at work
        monkeypatch.setattr(SimulatedAdapter, "refusal", Adapter.refusal)
    failure, records = await measured("wrong_k:1", windows=lambda _seen: [])
    (boot,) = records.boots
    assert boot.identity is not None
    assert boot.identity.draft_tokens == 1
    if not held:
        assert failure is None
        assert [window.kind for window in records.windows] == [WindowKind.WARM_UP]
        return
    assert isinstance(failure, EngineError)
    assert "asks for 2 draft tokens, in force are 1" in str(failure)
    assert "draft_tokens" in failure.remedy
    assert failure.log_path
    assert boot.status is BootStatus.FAILED
    assert "in force are 1" in boot.failure
    assert records.windows == ()
