"""llama.cpp's methods on the drafts of this repository: python lab/llamacpp_methods.py [--keep] [PLAN/ARM ...].

Boots each arm once (temperature 0, one client, one thread) and prints its acceptance by position; with --keep the
figures go to lab/drafts/acceptance_llamacpp.json, where the live tests read them. llama.cpp tells positions in its
counters only, so each prompt is a window of its own. The drafts become GGUF files on first use.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script: the repository is the package's place

from lab import acceptance, boots, forks, gguf_drafts
from specdyno.demo.checkpoints import cache, target_gguf
from specdyno.engine import server
from specdyno.errors import EngineError
from specdyno.load.boot import BootTask, Rig, WindowPlan, measure, session_for
from specdyno.load.watch import Silent
from specdyno.load.window import Job
from specdyno.plan import parse
from specdyno.plan.schema import Arm, Plan, Role
from specdyno.records.deltas import CounterDelta, difference
from specdyno.records.schema import BootRecord, RequestRecord, WindowKind
from specdyno.workload.prompts import Prompt
from specdyno.workload.sources import load_pools

RECORDED = acceptance.RECORDED.with_name("acceptance_llamacpp.json")
_LISTS = Path(__file__).with_name("prompts")
COPYING = "copying"  # n-grams are drafted from what stands there already, so theirs are tasks of copying
MAX_TOKENS = 48
SYNTHETIC = (0.8, 0.5)  # acceptance that llama.cpp is told to imitate: a truth to find again
RATES = ",".join(map(str, SYNTHETIC))

TARGETS = {"smollm2": "", "copying": "", "smollm2-mtp": "native-mtp", "gemma4": "gemma4-target"}
CANDIDATES = {
    "smollm2": f"""
  - {{method: draft_model, draft: "@simple@", draft_tokens: [3]}}
  - {{method: eagle3, draft: "@eagle3@", draft_tokens: [3]}}
  - {{method: eagle3, draft: "@eagle3@", draft_tokens: [2], options: {{spec-synth-rates: "{RATES}"}}}}
  - {{method: dflash, draft: "@dflash@", draft_tokens: [3]}}
  - {{method: dspark, draft: "@dspark@", draft_tokens: [4]}}
""",
    "copying": """
  - {method: ngram, draft_tokens: [3], options: {spec-type: ngram-map-k, spec-ngram-map-k-size-n: 2}}
  - {method: ngram, draft_tokens: [4], options: {spec-ngram-simple-size-n: 2}}
  - {method: ngram, draft_tokens: [5], options: {spec-type: ngram-map-k4v, spec-ngram-map-k4v-size-n: 2}}
  - {method: ngram, draft_tokens: [6], options: {spec-type: ngram-mod, spec-ngram-mod-n-match: 3}}
  - {method: ngram, draft_tokens: [8], options: {spec-type: ngram-cache}}
""",
    "smollm2-mtp": """
  - {method: mtp, draft_tokens: [3]}
""",
    "gemma4": """
  - {method: gemma4_mtp, draft: "@gemma4-assistant@", draft_tokens: [3]}
""",
}
PLAN = """
study: llamacpp-methods
target: {model: "@target@"}
engine: {kind: llamacpp, args: {ctx-size: 1024, parallel: 1, threads: 1, no-cache-prompt: true}}
workload:
  sampling: {temperature: 0.0}
  classes: [{name: listed, prompts: "@prompts@", share: 1.0, max_tokens: @max_tokens@}]
loads: [{name: one, concurrency: 1, window: 30s}]
objectives: [{name: one client, load: one, measure: time_per_job}]
experiment: {looks: [1]}
candidates:
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt's answer, and what the counters moved by for it."""

    prompt_id: str
    row: RequestRecord
    delta: CounterDelta


@dataclass(frozen=True, slots=True)
class Booted:
    """What one boot of one arm left."""

    arm: Arm
    boot: BootRecord
    asked: tuple[Asked, ...]
    delta: CounterDelta

    def curve(self) -> acceptance.Curve:
        k = self.arm.draft_tokens or 0
        reached = [one.delta.accepted_per_position or (0,) * k for one in self.asked]
        steps = [one.delta.drafts or 0 for one in self.asked]
        names = tuple(one.prompt_id for one in self.asked)
        return acceptance.Curve(names, np.array(steps), np.array(reached).reshape(len(names), k))


def gguf(name: str) -> Path:
    """A draft's GGUF in specdyno's cache, written when it is not there; another maker or draft is another file."""
    folder = cache() / f"gguf-{gguf_drafts.fingerprint()}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.gguf"
    if not path.exists():
        partial = gguf_drafts.MAKERS[name](folder / f"{name}.partial")
        partial.replace(path)
    return path


def text(target: str, candidates: str = "") -> str:
    """A target's plan as YAML, with its own candidates or others."""
    plan = PLAN + (candidates or CANDIDATES[target])
    values = {"target": gguf(TARGETS[target]) if TARGETS[target] else target_gguf()}
    values |= {name: gguf(name) for name in gguf_drafts.MAKERS if f"@{name}@" in plan}
    values |= {"prompts": prompt_list(target), "max_tokens": MAX_TOKENS}
    for name, value in values.items():
        plan = plan.replace(f"@{name}@", str(value))
    return plan


def plan_of(target: str, candidates: str = "") -> Plan:
    return parse.parse(text(target, candidates))


def prompt_list(target: str) -> Path:
    return _LISTS / ("copying.jsonl" if target == COPYING else "acceptance.jsonl")


def prompts_of(plan: Plan) -> tuple[Prompt, ...]:
    """All of a short list, every second of a long one, so that a dozen boots stay within minutes."""
    prompts = load_pools(plan, Path())["listed"].prompts
    return prompts if len(prompts) <= 12 else prompts[::2]


def boot(plan: Plan, arm: Arm, folder: Path) -> Booted:
    """Boot `arm`, ask each prompt in a window of its own, stop it; raises what kept it from serving."""
    prompts = prompts_of(plan)
    with boots.opened(folder, plan, "") as store:
        log = folder / f"{arm.name}.log"
        rig = Rig(plan, server.adapter(plan.engine, plan.target), store, Silent())
        task = BootTask(arm, 0, 0, attempt=0, seed=1, log_path=log.absolute(), log_name=log.name)
        first = [_window(plan, WindowKind.WARM_UP, prompts[-1:])]
        failure: EngineError | None = asyncio.run(
            measure(
                rig,
                task,
                warm_up=first,
                windows=lambda _seen: [_window(plan, WindowKind.MIXED, [prompt]) for prompt in prompts],
            )
        )
        if failure is not None:
            raise failure
        records = store.read_study()
        last = records.boots[-1]
        windows = [one for one in records.windows if one.boot_id == last.id and one.kind is WindowKind.MIXED]
        asked = tuple(
            Asked(row.prompt_id, row, difference(window.before, window.after))
            for window in windows
            for row in store.read_requests(window.id)
        )
    return Booted(arm, last, asked, difference(windows[0].before, windows[-1].after))


async def audit(plan: Plan, pairs: Sequence[tuple[RequestRecord, RequestRecord]], log: Path) -> list[forks.Fork]:
    """Ask a fresh baseline for the likeliest tokens where each (baseline, other) pair of answers parts."""
    prompts = {prompt.id: prompt for prompt in prompts_of(plan)}
    found = []
    async with session_for(plan.engine) as session:
        made = server.adapter(plan.engine, plan.target)
        running = await server.begin(made, plan.arms()[0], log_path=log, session=session, boot_seed=1)
        try:
            await server.wait_ready(running, 60)
            for ours, theirs in pairs:
                messages = [dict(message) for message in prompts[ours.prompt_id].messages or ()]
                found.append(await _fork(running, messages, ours, theirs))
        finally:
            await running.stop()
    return found


async def _fork(running: server.Server, messages: list[dict], ours: RequestRecord, theirs: RequestRecord) -> forks.Fork:
    asked = (await _post(running, "/apply-template", {"messages": messages}))["prompt"]
    stop = await _tokens(running, (await running.ask("/props"))["eos_token"])
    mine, other = [[*await _tokens(running, row.text), *stop] for row in (ours, theirs)]
    at = forks.parting(mine, other)
    assert at is not None, "the two answers have the same tokens"
    prompt = [*await _tokens(running, asked), *mine[:at]]
    answer = await _post(running, "/completion", {"prompt": prompt, "n_predict": 1, "temperature": 0, "n_probs": 20})
    likely = {one["id"]: one["logprob"] for one in answer["completion_probabilities"][0]["top_logprobs"]}
    return forks.fork(ours.prompt_id, at, (mine[at], other[at]), likely)


async def _tokens(running: server.Server, text: str) -> list[int]:
    return (await _post(running, "/tokenize", {"content": text, "add_special": False, "parse_special": True}))["tokens"]


async def _post(running: server.Server, path: str, body: dict) -> dict:
    async with running.session.post(running.base_url + path, json=body) as response:
        response.raise_for_status()
        return await response.json()


def _window(plan: Plan, kind: WindowKind, prompts: Sequence[Prompt]) -> WindowPlan:
    return WindowPlan(plan.loads[0].name, kind, None, 1, tuple(Job(prompt) for prompt in prompts))


def candidates_of(target: str) -> list[str]:
    """Names of a target's candidates, without making a file."""
    plan = parse.parse((PLAN + CANDIDATES[target]).replace("@max_tokens@", str(MAX_TOKENS)))
    return [arm.name for arm in plan.arms() if arm.role is Role.CANDIDATE]


def entry(target: str, found: Booted) -> dict:
    identity = found.boot.identity
    assert identity is not None
    return acceptance.to_entry(
        found.curve(),
        method=str(found.arm.method),
        kind=found.arm.options.get("spec-type", ""),
        engine=f"{identity.engine} {identity.version}",
        mode="temperature 0, one client, one thread",
        prompts=f"{prompt_list(target).name} sha256:{acceptance.prompts_sha256(prompt_list(target))[:16]}",
        max_tokens=MAX_TOKENS,
        measured=dt.datetime.now(tz=dt.UTC).date().isoformat(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="*", metavar="PLAN/ARM")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    entries = acceptance.read(RECORDED) if RECORDED.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        for target in TARGETS:
            for arm in plan_of(target).arms():
                name = f"{target}/{arm.name}"
                if arm.role is Role.CANDIDATE and (not given.arms or name in given.arms):
                    entries[name] = made = entry(target, boot(plan_of(target), arm, Path(scratch) / target))
                    print(f"{name}: {made['joint']} over {made['drafted_steps']} steps", flush=True)
                    if given.keep:
                        acceptance.write(entries, RECORDED)


if __name__ == "__main__":
    main()
