"""Do target and draft fit together, and what does each draft cost: every arm of a plan, and the checks that follow.

Owns the choice of the device that is counted and the order of the engines; each engine's own arithmetic has a module.
Nothing is booted. A checkpoint that cannot be read leaves an unknown here; why it cannot is for the pair checks to say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from specdyno.errors import PlanError
from specdyno.plan.schema import EngineKind, Plan
from specdyno.preflight.checkpoints import read as checkpoints
from specdyno.preflight.checkpoints.hub import Unreachable
from specdyno.preflight.checkpoints.schema import Checkpoint
from specdyno.preflight.memory import devices, elsewhere, flags, llamacpp, vllm
from specdyno.preflight.memory.devices import Device, DeviceKind
from specdyno.preflight.memory.subject import Subject
from specdyno.preflight.schema import Check, Grade
from specdyno.records.memory import ArmMemory

FITS = "memory_fits"
FREE = "memory_free"
CONCURRENCY = "memory_concurrency"
NAMES = frozenset({FITS, FREE, CONCURRENCY})
"""Every check of this module, as `preflight.accept` may name them."""
_SOURCE = {
    EngineKind.VLLM: "vLLM 0.32.0, v1/core/kv_cache_utils.py",
    EngineKind.LLAMACPP: "llama.cpp build 11434, src/llama-kv-cache.cpp",
}
_REMOTE = frozenset({"ssh", "kubectl", "helm", "srun", "sbatch", "oc", "gcloud", "aws"})

Read = Callable[[str, str | None], Checkpoint]


@dataclass(frozen=True, slots=True)
class Assessment:
    arms: tuple[ArmMemory, ...] = ()  # none for a simulated engine
    checks: tuple[Check, ...] = ()


def assess(plan: Plan, *, read: Read | None = None, environment: Mapping[str, str] = os.environ) -> Assessment:
    """Memory of every arm. `read(source, revision)` gives a checkpoint; the usual one reads files and the hub."""
    if plan.engine.kind is EngineKind.SIMULATED:
        return Assessment()
    variables = {**environment, **plan.engine.env}
    device = _device(plan, variables)
    opened: dict[tuple[str, str | None], Checkpoint | None] = {}

    def known(source: str | None, revision: str | None = None) -> Checkpoint | None:
        if source is None:
            return None
        if (source, revision) not in opened:
            opened[source, revision] = _opened(read or _read, source, revision)
        return opened[source, revision]

    target = known(plan.target.model, plan.target.revision)
    estimate = _ENGINES.get(plan.engine.kind, elsewhere.estimate)
    arms = tuple(
        ArmMemory(arm.name, "not known", notes=("the target's files could not be read",))
        if target is None
        else estimate(Subject(arm, plan.engine.args, target, known(arm.draft), device, variables))
        for arm in plan.arms()
    )
    return Assessment(arms, _joined(check for arm in arms for check in _checks(arm, plan)))


def _joined(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Arms of which the same is seen, in one check."""
    groups: dict[Check, list[str]] = {}
    for check in checks:
        groups.setdefault(replace(check, arm=None), []).append(check.arm or "")
    return tuple(replace(check, arm=", ".join(arms)) for check, arms in groups.items())


def _read(source: str, revision: str | None) -> Checkpoint:
    return checkpoints.read(source, revision=revision)


def _opened(read: Read, source: str, revision: str | None) -> Checkpoint | None:
    try:
        return read(source, revision)
    except (PlanError, Unreachable):
        return None


_ENGINES = {EngineKind.VLLM: vllm.estimate, EngineKind.LLAMACPP: llamacpp.estimate}


def _device(plan: Plan, variables: dict[str, str]) -> Device | None:
    """The device whose memory is counted, the smallest of those the model is split over; None where none is known."""
    given = plan.preflight.device_memory
    if given is not None:
        return Device(DeviceKind.GIVEN, "given by the plan", given)
    started_by = os.path.basename(plan.engine.command[0]) if plan.engine.command else ""  # noqa: PTH119 (text, no path)
    if plan.engine.kind is EngineKind.EXTERNAL or started_by in _REMOTE:
        return None
    if plan.engine.kind is EngineKind.VLLM and vllm.is_on_cpu(None, variables):
        return devices.processor(one_node=True)
    found = devices.accelerators(variables)
    if (
        plan.engine.kind is EngineKind.LLAMACPP
        and flags.text(plan.engine.args, "gpu-layers", "n-gpu-layers", "ngl") == "0"
    ):
        found = ()
    ranks = flags.whole(plan.engine.args, "tensor-parallel-size", "tp", "tp-size") or 1
    if found:
        return min(found[:ranks], key=lambda one: one.free_bytes or one.total_bytes)
    if plan.engine.kind in (EngineKind.VLLM, EngineKind.LLAMACPP):  # both also run on the processor
        return devices.processor(one_node=plan.engine.kind is EngineKind.VLLM)
    return None


def _checks(arm: ArmMemory, plan: Plan) -> list[Check]:
    source = _SOURCE.get(plan.engine.kind, "")
    checks = [_fits(arm, source)]
    if arm.wanted_bytes is not None and arm.free_bytes is not None and arm.wanted_bytes > arm.free_bytes:
        seen = (
            f"the engine will take {_size(arm.wanted_bytes)} ({arm.device}), and {_size(arm.free_bytes)} are free now"
        )
        remedy = "Stop what uses the memory, or give the engine a smaller share of it (gpu-memory-utilization)"
        checks.append(Check(FREE, Grade.WARN, seen, remedy, arm.arm, source, "engine.args"))
    load = max((one.concurrency or one.sessions or 0 for one in plan.measured_loads), default=0)
    if arm.fits and arm.concurrency is not None and arm.concurrency < load:
        seen = (
            f"{arm.concurrency:.2f} requests of {arm.max_model_len:,} tokens fit at once, and a load runs {load}: "
            "shorter requests may fit, longer ones wait"
        )
        remedy = "Lower the longest request (max-model-len) or the concurrency, or give the cache more room"
        checks.append(Check(CONCURRENCY, Grade.WARN, seen, remedy, arm.arm, source, "loads"))
    return checks


def _fits(arm: ArmMemory, source: str) -> Check:
    draft = "none" if arm.draft_bytes == 0 else _size(arm.draft_bytes)
    weights = f"weights {_size(arm.weights_bytes)}, draft {draft}"
    room = f"room for the cache {_size(arm.budget_bytes)} ({arm.device})"
    seen = f"{weights}, {room}"
    if arm.fits is None:
        return Check(FITS, Grade.UNKNOWN, "; ".join((seen, *arm.notes)), "", arm.arm, source)
    if arm.kv_tokens is not None and arm.concurrency is not None and arm.max_model_len is not None:
        seen += f"; {arm.kv_tokens:,} tokens, {arm.concurrency:.2f} requests of {arm.max_model_len:,} tokens at once"
    seen += f"; headroom {_size(arm.headroom_bytes)}"
    if arm.fits:
        return Check(FITS, Grade.PASS, seen, "", arm.arm, source)
    remedy = (
        "Use a smaller or quantised checkpoint, a smaller draft, a lower max-model-len (ctx-size) or more devices; "
        "correct preflight.device_memory where it is wrong"
    )
    return Check(FITS, Grade.FAIL, "; ".join((seen, *arm.notes)), remedy, arm.arm, source, "engine.args")


def _size(size_bytes: int | None) -> str:
    """Bytes in GiB or MiB.

    >>> _size(2**31), _size(-5 * 2**20), _size(112), _size(None)
    ('2.00 GiB', '-5 MiB', '112 B', 'not known')
    """
    if size_bytes is None:
        return "not known"
    if abs(size_bytes) < 2**20:
        return f"{size_bytes:,} B"
    return f"{size_bytes / 2**30:.2f} GiB" if abs(size_bytes) >= 2**30 else f"{size_bytes / 2**20:.0f} MiB"
