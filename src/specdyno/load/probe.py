"""One arm of a server that somebody else runs: a warm-up and one mixed window. Evidence for nothing but itself.

Makes the same records as a study's boot, so that the same statistics read them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specdyno.engine import server
from specdyno.errors import PlanError
from specdyno.load.agenda import Stock, warm_up_plans, window_plans
from specdyno.load.boot import Boot, endpoint, session_for
from specdyno.load.watch import Watcher
from specdyno.load.window import WindowPlan
from specdyno.plan.schema import BASELINE, NEEDS_DRAFT, Engine, EngineKind, Method, Plan
from specdyno.records.deltas import POSITION, SPEC_FAMILIES, Family
from specdyno.records.schema import BootStatus, CounterSample, Identity
from specdyno.records.store import Store
from specdyno.workload.sources import load_pools

LOAD = "measured"
_KINDS = {
    "llama.cpp": EngineKind.LLAMACPP,
    "sglang": EngineKind.SGLANG,
    "trtllm": EngineKind.TRTLLM,
    "simulated": EngineKind.SIMULATED,
}


@dataclass(frozen=True, slots=True)
class Probe:
    """What to ask of a running server."""

    base_url: str
    model: str | None
    prompts: tuple[str, ...]
    num_prompts: int
    max_concurrency: int
    max_tokens: int
    temperature: float
    api_key_env: str | None = None
    ca_file: str | None = None
    request_rate: float | None = None  # requests per second, open loop; None: closed loop
    burstiness: float = 1.0
    goodput_ms: tuple[tuple[str, float], ...] = ()  # limits by name: ttft, tpot, e2el
    seed: int = 1
    request_timeout: str = "5m"

    def engine(self) -> Engine:
        return Engine(kind=EngineKind.VLLM, api_key_env=self.api_key_env, ca_file=self.ca_file)


async def measure(probe: Probe, *, opened: Callable[[Plan], Store], watcher: Watcher) -> None:
    """Measure the server into the store that `opened` makes for the plan that describes it.

    Raises EngineError where no server answers, PlanError for prompts that cannot be used.
    """
    async with session_for(probe.engine()) as session:
        base_url = probe.base_url.rstrip("/").removesuffix("/v1")
        running = await server.attach(base_url, probe.engine(), session)
        identity = _counted(await running.identity(), (await running.counters())[0])
        model = probe.model or await running.served_model("")
        if not model:
            raise PlanError("the server names no model: say which with --model")
        plan = described(probe, identity, model)
        pools = load_pools(plan, Path.cwd())
        with opened(plan) as store:
            boot_id = store.begin_boot(
                block=0,
                arm=_arm(plan, identity),
                attempt=0,
                position=0,
                status=BootStatus.READY,
                started_ns=time.monotonic_ns(),
                started_unix_ns=time.time_ns(),
                identity=identity,
            )
            arm = next(one for one in plan.arms() if one.name == _arm(plan, identity))
            reached = await endpoint(running, plan, arm=arm, model=model)
            boot = Boot(boot_id, running, reached, store, watcher)
            stock = Stock(plan, pools)
            warm_ups, windows = warm_up_plans(stock, 0), window_plans(stock, 0, {LOAD: probe.num_prompts})
            status = BootStatus.FAILED
            try:
                for part in warm_ups:
                    await boot.warm_up(part)
                identity = _counted(await running.identity(), (await running.counters())[0])
                store.update_boot(boot_id, identity=identity)
                for window in windows:
                    if isinstance(window, WindowPlan):  # a search is no part of a probe
                        await boot.run(window)
                status = BootStatus.COMPLETE
            except asyncio.CancelledError:
                status = BootStatus.INTERRUPTED
                raise
            finally:
                store.update_boot(boot_id, status=status, ended_ns=time.monotonic_ns(), ended_unix_ns=time.time_ns())


def described(probe: Probe, identity: Identity, model: str) -> Plan:
    """The plan that states what is measured: one load, equal shares, and the speculation that the server reports."""
    kind = _KINDS.get(identity.engine, EngineKind.VLLM)
    names = _names(probe.prompts)
    share = 1.0 / len(names)
    shares = [share] * (len(names) - 1)
    return Plan.model_validate(
        {
            "study": "measure",
            "seed": probe.seed,
            "target": {"model": model},
            "engine": {
                "kind": kind,
                "api_key_env": probe.api_key_env,
                "ca_file": probe.ca_file,
                "request_timeout": probe.request_timeout,
            },
            "candidates": [_candidate(identity)],
            "workload": {
                "sampling": {"temperature": probe.temperature},
                "classes": [
                    {"name": name, "prompts": source, "share": part, "max_tokens": probe.max_tokens}
                    for name, source, part in zip(names, probe.prompts, [*shares, 1.0 - sum(shares)], strict=True)
                ],
            },
            "loads": [{"name": LOAD, "window": "1m", "requests": probe.num_prompts, **_arrivals(probe)}],
            "objectives": [{"name": LOAD, "load": LOAD, **_decided(probe)}],
        }
    )


def _counted(identity: Identity, sample: CounterSample) -> Identity:
    """What a server that does not describe itself gives away by its counters: that it speculates, and K.

    Counters of drafts that are not there prove nothing: an engine may make them with the first draft.
    """
    if identity.speculation is not None or not any(series.name in SPEC_FAMILIES for series in sample.series):
        return identity
    places = [dict(series.labels) for series in sample.series if series.name == Family.SPEC_ACCEPTED_PER_POSITION]
    return replace(
        identity,
        speculation=True,
        draft_tokens=identity.draft_tokens
        or len({labels[POSITION] for labels in places if POSITION in labels})
        or None,
        source=identity.source or sample.source,
    )


def _candidate(identity: Identity) -> dict[str, Any]:
    """The server's own speculation as a candidate; where it reports none, no boot stands there."""
    method = next((known for known in Method if known.value == identity.method), Method.NGRAM)
    draft = {"draft": identity.draft or "not reported"} if method in NEEDS_DRAFT else {}
    return {"method": method.value, "draft_tokens": [identity.draft_tokens or 1], **draft}


def _arm(plan: Plan, identity: Identity) -> str:
    return BASELINE if identity.speculation is False else plan.arms()[1].name


def _arrivals(probe: Probe) -> dict[str, Any]:
    if probe.request_rate is None:
        return {"concurrency": probe.max_concurrency}
    return {"rate": probe.request_rate, "burstiness": probe.burstiness}


def _decided(probe: Probe) -> dict[str, Any]:
    if not probe.goodput_ms:
        return {"measure": "output_tokens_per_s"}
    return {"measure": "goodput", "service_level": {name: f"{limit:f}ms" for name, limit in probe.goodput_ms}}


def _names(sources: tuple[str, ...]) -> list[str]:
    """Class names for prompt sources: the builtin's name or the file's stem, made unique."""
    names: list[str] = []
    for source in sources:
        stem = source.removeprefix("builtin:") if source.startswith("builtin:") else Path(source).stem
        name = "".join(c if c.isalnum() or c in " _.-" else "-" for c in stem)[:30].lstrip(" _.-") or "prompts"
        names.append(name if name not in names else f"{name}-{len(names) + 1}")
    return names
