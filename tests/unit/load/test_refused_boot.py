"""A ready engine that runs something else than its arm is not measured: the boot fails before the first request."""

from __future__ import annotations

import pytest
from tests.unit.load.scripted_server import jobs

from specdyno.engine import server
from specdyno.engine.base import Adapter
from specdyno.engine.simulated.adapter import SimulatedAdapter
from specdyno.errors import EngineError
from specdyno.load.boot import BootTask, Rig, WindowPlan, measure
from specdyno.load.watch import Silent
from specdyno.plan import parse
from specdyno.records.schema import BootStatus, StudyHeader, WindowKind
from specdyno.records.store import Store

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


@pytest.mark.parametrize("held", [True, False])
async def test_another_draft_length_ends_the_boot_of_an_engine_that_is_held_to_it(tmp_path, monkeypatch, held):
    if held:  # as every real engine is; the simulated one is let through so that findings can be seen at work
        monkeypatch.setattr(SimulatedAdapter, "refusal", Adapter.refusal)
    plan = parse.parse(PLAN)
    options = {"fault": ["wrong_k:1"], "truth": {"ready_delay_s": 0.0, "output_tokens": 8}}
    arm = plan.arms()[1].model_copy(update={"options": options})
    header = StudyHeader(plan={}, plan_yaml="", plan_sha256="", created_unix_ns=0, provenance={})
    with Store.create(tmp_path / "study.sqlite", header) as store:
        rig = Rig(plan, server.adapter(plan.engine, plan.target), store, Silent())
        task = BootTask(arm, 0, 1, 0, 3, tmp_path / "logs" / "a.log", "logs/a.log")
        one = WindowPlan("one", WindowKind.WARM_UP, None, 2, tuple(jobs(2)))
        failure = await measure(rig, task, warm_up=[one], windows=lambda _seen: [])
        (boot,) = store.read_study().boots
        windows = store.read_study().windows
    assert boot.identity is not None
    assert boot.identity.draft_tokens == 1
    if not held:
        assert failure is None
        assert len(windows) == 1
        return
    assert isinstance(failure, EngineError)
    assert "asks for 2 draft tokens, in force are 1" in str(failure)
    assert "draft_tokens" in failure.remedy
    assert failure.log_path
    assert boot.status is BootStatus.FAILED
    assert "in force are 1" in boot.failure
    assert windows == ()
