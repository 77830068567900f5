"""What vLLM makes of the memory of a device: weights first, the KV cache takes the rest of its share.

Read in vLLM 0.32.0: `config/cache.py` (share 0.92, blocks), `engine/arg_utils.py` (batch sizes), `config/vllm.py`
(batches in flight), `platforms/cpu.py` and `v1/worker/cpu_worker.py` (the CPU build). Activations and graphs of a GPU
are known only after vLLM's own profile run: the room for the cache is then an upper bound, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from specdyno.plan.schema import Method
from specdyno.preflight.checkpoints.facts import Shape, facts
from specdyno.preflight.checkpoints.schema import Checkpoint
from specdyno.preflight.memory import flags as flag
from specdyno.preflight.memory.devices import Device, DeviceKind
from specdyno.preflight.memory.drafts import draft_layers
from specdyno.preflight.memory.layers import Layer, NotModelledError, layers_of
from specdyno.preflight.memory.pool import Capacity, PoolRules, bytes_per_token, capacity, state_bytes
from specdyno.preflight.memory.subject import NO_DEVICE, NO_WEIGHTS, Subject
from specdyno.records.memory import ArmMemory

GIB = 2**30
CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"
_SHARE = 0.92
_NOT_MODELLED_FLAGS = (
    "pipeline-parallel-size", "pp", "decode-context-parallel-size", "dcp", "prefill-context-parallel-size", "pcp",
)  # fmt: skip
_WIDTHS = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4}
_CACHE_WIDTHS = {**_WIDTHS, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1}
# vLLM derives a longer context from these spellings of stretched positions.
_SCALED_ROPE = ("linear", "dynamic", "longrope")
_UPPER_BOUND = "at most: what vLLM takes beside the weights is known only after its own profile run"
_SYNCHRONOUS = frozenset({Method.NGRAM, Method.SUFFIX, Method.MEDUSA})


@dataclass(frozen=True, slots=True)
class Room:
    """Space for the KV cache on one device; without notes exactly this, because the user fixed it."""

    budget_bytes: int
    wanted_bytes: int  # weights and cache, or the engine's share
    fits: bool  # weights and cache together lie within what the device has
    notes: tuple[str, ...] = ()


def estimate(subject: Subject) -> ArmMemory:
    """One arm's memory on one device. What cannot be known is None, with its reason in `notes`."""
    found = subject.begun(
        load_dtype=flag.text(subject.flags, "dtype"), ranks=_ranks(subject), max_model_len=max_model_len(subject)
    )
    try:
        rules = _rules(subject)
        own = layers_of(subject.target)
        layers = (*own, *draft_layers(subject.arm, subject.target, subject.draft, target_layers=own))
    except NotModelledError as why:
        return replace(found, notes=(f"KV cache not known: {why}",))
    found = replace(found, kv_bytes_per_token=bytes_per_token(layers, rules), state_bytes=state_bytes(layers, rules))
    if found.weights_bytes is None or found.draft_bytes is None:
        return replace(found, notes=(NO_WEIGHTS,))
    if subject.device is None:
        return replace(found, notes=(NO_DEVICE,))
    room = _room(subject, subject.device, loaded_bytes=found.weights_bytes + found.draft_bytes)
    return _filled(replace(found, free_bytes=subject.device.free_bytes), room, layers, rules)


def _filled(found: ArmMemory, room: Room, layers: Sequence[Layer], rules: PoolRules) -> ArmMemory:
    try:
        pool: Capacity = capacity(layers, room.budget_bytes, rules)
    except NotModelledError as why:
        return replace(found, budget_bytes=room.budget_bytes, notes=(*room.notes, f"KV cache not known: {why}"))
    headroom = room.budget_bytes - pool.request_bytes
    return replace(
        found,
        budget_bytes=room.budget_bytes,
        wanted_bytes=room.wanted_bytes,
        kv_tokens=pool.kv_tokens,
        concurrency=pool.concurrency,
        headroom_bytes=headroom,
        fits=room.fits and headroom >= 0,
        notes=room.notes,
    )


def max_model_len(subject: Subject) -> int | None:
    """Longest request: as the plan states it, else as vLLM derives it; None where that is not known here."""
    stated = flag.whole(subject.flags, "max-model-len")
    if stated is not None:
        return stated
    config = subject.target.text_config
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    kind = str(rope.get("rope_type", rope.get("type", "default"))) if isinstance(rope, Mapping) else "default"
    return None if kind in _SCALED_ROPE else facts(subject.target).context_length


def _ranks(subject: Subject) -> int:
    return flag.whole(subject.flags, "tensor-parallel-size", "tp") or 1


def _rules(subject: Subject) -> PoolRules:
    flags, target = subject.flags, subject.target
    for name in _NOT_MODELLED_FLAGS:
        if (flag.whole(flags, name) or 1) > 1:
            raise NotModelledError(f"--{name} is not modelled here")
    longest = max_model_len(subject)
    if longest is None:
        raise NotModelledError("the longest request is not known; set max-model-len")
    model_bytes = _WIDTHS.get(flag.text(flags, "dtype") or "", 2)
    conv_bytes = _WIDTHS.get(flag.text(flags, "mamba-cache-dtype") or "", model_bytes)
    on_cpu = is_on_cpu(subject.device, subject.environment)
    return PoolRules(
        max_model_len=longest,
        block_tokens=flag.whole(flags, "block-size") or _usual_block(facts(target), on_cpu=on_cpu),
        in_flight_tokens=_in_flight(subject, longest, on_cpu=on_cpu),
        element_bytes=_element_bytes(flags, target, model_bytes),
        conv_bytes=conv_bytes,
        state_bytes=_recurrent_bytes(flags, target, conv_bytes),
        draft_tokens=subject.arm.draft_tokens or 0,
        aligned_states=flag.switch(flags, "enable-prefix-caching") is not False,
        ranks=_ranks(subject),
    )


def is_on_cpu(device: Device | None, environment: Mapping[str, str]) -> bool:
    return bool(environment.get(CPU_SPACE)) or (device is not None and device.kind is DeviceKind.CPU)


def _usual_block(shape: Shape, *, on_cpu: bool) -> int:
    if shape.is_latent:
        return 16 if on_cpu else 64
    return 128 if on_cpu else 16


def _element_bytes(flags: flag.Flags, target: Checkpoint, model_bytes: int) -> int:
    stated = flag.text(flags, "kv-cache-dtype") or "auto"
    if stated == "auto":
        quantised = target.config.get("quantization_config")
        if isinstance(quantised, Mapping) and (
            quantised.get("kv_cache_scheme") or quantised.get("kv_cache_quant_algo")
        ):
            raise NotModelledError("the checkpoint asks for a quantised cache; set kv-cache-dtype")
        return model_bytes
    if stated not in _CACHE_WIDTHS:
        raise NotModelledError(f"the layout of kv-cache-dtype {stated} is not modelled here")
    return _CACHE_WIDTHS[stated]


def _recurrent_bytes(flags: flag.Flags, target: Checkpoint, conv_bytes: int) -> int:
    """Width of a recurrent state: the flag, else what the configuration asks for, else that of the convolution's."""
    config = target.text_config
    stated = flag.text(flags, "mamba-ssm-cache-dtype")
    if stated in (None, "auto"):
        written = config.get("mamba_ssm_dtype") or config.get("mamba_ssm_cache_dtype")
        stated = str(written) if written else "auto"
    return _WIDTHS.get(stated or "auto", conv_bytes)


def _in_flight(subject: Subject, longest: int, *, on_cpu: bool) -> int:
    """Tokens scheduled and not yet settled: a whole batch for each of the steps that overlap."""
    flags = subject.flags
    usual, requests = _usual_batch(subject, on_cpu=on_cpu)
    requests = flag.whole(flags, "max-num-seqs") or requests
    if flag.switch(flags, "enable-chunked-prefill") is False:
        usual = max(usual, longest)
    batch = flag.whole(flags, "max-num-batched-tokens") or min(requests * longest, usual)
    stated_off = flag.switch(flags, "async-scheduling") is False
    return batch if on_cpu or stated_off or subject.arm.method in _SYNCHRONOUS else 2 * batch


def _usual_batch(subject: Subject, *, on_cpu: bool) -> tuple[int, int]:
    """The default batch of vLLM's server: tokens and requests, by the kind and size of the device."""
    if on_cpu:
        return 2048 * _ranks(subject), 128 * _ranks(subject)
    device = subject.device
    if device is not None and device.total_bytes >= 160 * GIB:
        return 16384, 1024
    if device is not None and device.total_bytes >= 70 * GIB and "a100" not in device.name.lower():
        return 8192, 1024
    return 2048, 256


def _room(subject: Subject, device: Device, *, loaded_bytes: int) -> Room:
    space = subject.environment.get(CPU_SPACE, "").strip()
    fixed = int(space) * GIB if space.isascii() and space.isdigit() else None
    if fixed is None:
        fixed = flag.whole(subject.flags, "kv-cache-memory-bytes", "kv-cache-memory")
    if fixed is not None:
        wanted = fixed + loaded_bytes
        return Room(fixed, wanted, wanted <= device.total_bytes)
    share = flag.number(subject.flags, "gpu-memory-utilization", "memory-utilization") or _SHARE
    wanted = int(device.total_bytes * share)
    return Room(max(wanted - loaded_bytes, 0), wanted, wanted > loaded_bytes, (_UPPER_BOUND,))
