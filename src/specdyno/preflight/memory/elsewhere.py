"""Engines whose memory is not modelled in detail: weights and bytes per token, and what a stated space holds of them.

SGLang and TensorRT-LLM (not run here) and external engines. Blocks, windows and what the engine takes for itself are
left out, so tokens are an upper bound; without a figure for the device nothing is claimed about the room.
"""

from __future__ import annotations

from dataclasses import replace

from specdyno.preflight.checkpoints.facts import facts
from specdyno.preflight.memory import flags as flag
from specdyno.preflight.memory.devices import Device
from specdyno.preflight.memory.drafts import draft_layers
from specdyno.preflight.memory.layers import LayerKind, NotModelledError, layers_of
from specdyno.preflight.memory.subject import NO_DEVICE, NO_WEIGHTS, Subject
from specdyno.records.memory import ArmMemory

_ELEMENT_BYTES = 2
_RANKS = ("tp-size", "tensor-parallel-size", "tp_size", "tp")
_SHARE = ("mem-fraction-static",)
_LENGTH = ("context-length", "max_seq_len", "max-model-len")


def estimate(subject: Subject) -> ArmMemory:
    """One arm's memory on one device, as far as it follows from the files alone."""
    ranks = flag.whole(subject.flags, *_RANKS) or 1
    longest = flag.whole(subject.flags, *_LENGTH) or facts(subject.target).context_length
    found = subject.begun(load_dtype=None, ranks=ranks, max_model_len=longest)
    try:
        own = layers_of(subject.target)
        layers = (*own, *draft_layers(subject.arm, subject.target, subject.draft, target_layers=own))
    except NotModelledError as why:
        return replace(found, notes=(f"KV cache not known: {why}",))
    per_token = sum(layer.elements_per_token(ranks) for layer in layers) * _ELEMENT_BYTES
    found = replace(found, kv_bytes_per_token=per_token, notes=("16-bit cache, every layer at full length",))
    if any(layer.kind is LayerKind.STATE for layer in layers):
        return replace(found, notes=(*found.notes, "recurrent states are not counted for this engine"))
    return _placed(found, flag.number(subject.flags, *_SHARE) or 1.0, subject.device)


def _placed(found: ArmMemory, share: float, device: Device | None) -> ArmMemory:
    if device is None:
        return replace(found, notes=(*found.notes, NO_DEVICE))
    if found.weights_bytes is None or found.draft_bytes is None or not found.kv_bytes_per_token:
        return replace(found, notes=(*found.notes, NO_WEIGHTS))
    budget = int(device.total_bytes * share) - found.weights_bytes - found.draft_bytes
    tokens, length = max(0, budget) // found.kv_bytes_per_token, found.max_model_len
    return replace(
        found,
        budget_bytes=max(0, budget),
        kv_tokens=tokens,
        concurrency=tokens / length if length else None,
        headroom_bytes=budget - length * found.kv_bytes_per_token if length else None,
        # Windows would need less than this counts: only weights that do not fit are certain.
        fits=False if budget <= 0 else None,
        notes=(*found.notes, "an upper bound: what the engine takes for itself is not known"),
    )
