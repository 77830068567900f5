"""What llama.cpp allocates: a KV cache of fixed size for target and draft, whatever the traffic.

Read in build 11434 (`src/llama-context.cpp`, `src/llama-kv-cache*.cpp`, `tools/server/server.cpp`,
`common/speculative.cpp`). The draft's context is as long as the target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specdyno.preflight.checkpoints.facts import facts
from specdyno.preflight.memory import flags as flag
from specdyno.preflight.memory.devices import DeviceKind
from specdyno.preflight.memory.drafts import draft_layers
from specdyno.preflight.memory.layers import Layer, LayerKind, NotModelledError, layers_of
from specdyno.preflight.memory.subject import NO_DEVICE, NO_WEIGHTS, Subject
from specdyno.records.memory import ArmMemory

_PAD = 256
_USUAL_SLOTS = 4
# Bytes and elements of a block of each type a cache may have.
_TYPES = {
    "f32": (4, 1), "f16": (2, 1), "bf16": (2, 1), "q8_0": (34, 32), "q4_0": (18, 32), "q4_1": (20, 32),
    "iq4_nl": (18, 32), "q5_0": (22, 32), "q5_1": (24, 32),
}  # fmt: skip


Widths = tuple[tuple[int, int], tuple[int, int]]  # of keys and of values: bytes and elements of a block


@dataclass(frozen=True, slots=True)
class Cells:
    """The cache's size in tokens."""

    total: int  # over all slots
    slots: int
    unified: bool  # one pool for all slots, else `total` is cut into equal parts
    batch: int  # physical batch: a window's layer holds so many tokens more

    @property
    def per_slot(self) -> int:
        return self.total if self.unified else self.total // self.slots

    def kept(self, layer: Layer) -> int:
        """Cells of one layer over all slots."""
        streams = 1 if self.unified else self.slots
        if layer.window_tokens is None:
            return self.per_slot * streams
        window = layer.window_tokens * (self.slots if self.unified else 1) + self.batch
        return _padded(min(self.per_slot, window)) * streams


def cells(flags: flag.Flags, trained_tokens: int | None) -> Cells | None:
    """The context that the flags ask for, padded as llama.cpp pads it; None where its length is not known."""
    slots = flag.whole(flags, "parallel", "np")
    stated = flag.switch(flags, "kv-unified")
    unified = stated if stated is not None else slots is None
    slots = slots or _USUAL_SLOTS
    context = flag.whole(flags, "ctx-size", "c") or trained_tokens
    if context is None:
        return None
    total = _padded(context)
    if not unified:
        total = _padded(total // slots) * slots
    return Cells(total, slots, unified, flag.whole(flags, "ubatch-size", "ub") or 512)


def estimate(subject: Subject) -> ArmMemory:
    """One arm's memory. What cannot be known is None, with its reason in `notes`."""
    size = cells(subject.flags, facts(subject.target).context_length)
    found = subject.begun(load_dtype=None, ranks=1, max_model_len=size.per_slot if size is not None else None)
    if size is None:
        return replace(found, notes=("KV cache not known: the file states no context length; set ctx-size",))
    found = replace(found, kv_tokens=size.total, concurrency=1.0 if size.unified else float(size.slots))
    try:
        own = layers_of(subject.target)
        added = draft_layers(subject.arm, subject.target, subject.draft, target_layers=own)
        widths, draft_widths = _all_widths(subject)
        _refuse_unknown_kinds((*own, *added))
    except NotModelledError as why:
        return replace(found, notes=(f"KV cache not known: {why}",))
    cache_bytes = _cache_bytes(own, size, widths) + _cache_bytes(added, size, draft_widths)
    per_token = sum(_token_bytes(one, widths) for one in own) + sum(_token_bytes(one, draft_widths) for one in added)
    found = replace(found, kv_bytes_per_token=int(per_token), state_bytes=0, budget_bytes=cache_bytes)
    return _placed(found, subject)


def _refuse_unknown_kinds(layers: Sequence[Layer]) -> None:
    if any(layer.kind in (LayerKind.STATE, LayerKind.CHUNKED) for layer in layers):
        raise NotModelledError("recurrent layers and chunks are not modelled for llama.cpp")


def _all_widths(subject: Subject) -> tuple[Widths, Widths]:
    """Cache types of target and draft; the draft's may also stand among the candidate's options."""
    own = {key: value for key, value in subject.arm.options.items() if isinstance(value, str)}
    keys = ("spec-draft-type-k", "cache-type-k-draft", "ctkd")
    values = ("spec-draft-type-v", "cache-type-v-draft", "ctvd")
    return (
        _widths(subject.flags, ("cache-type-k", "ctk"), ("cache-type-v", "ctv")),
        _widths({**subject.flags, **own}, keys, values),
    )


def _placed(found: ArmMemory, subject: Subject) -> ArmMemory:
    device = subject.device
    if device is None:
        return replace(found, notes=(NO_DEVICE,))
    if found.weights_bytes is None or found.draft_bytes is None or found.budget_bytes is None:
        return replace(found, notes=(NO_WEIGHTS,))
    wanted = found.weights_bytes + found.draft_bytes + found.budget_bytes
    headroom = device.total_bytes - wanted
    notes = ["compute buffers are not counted"]
    fits: bool | None = headroom >= 0
    if not fits and device.kind in (DeviceKind.NVIDIA, DeviceKind.AMD):
        # By default llama.cpp moves layers to the host, and shortens a context that was not stated.
        fits = None
        notes.append("what does not fit on the device is moved to the host unless --fit is off")
    if flag.whole(subject.flags, "ctx-size", "c") is None:
        notes.append("ctx-size is not set: llama.cpp may shorten the context to what fits")
    return replace(
        found,
        headroom_bytes=headroom,
        wanted_bytes=wanted,
        free_bytes=device.free_bytes,
        fits=fits,
        notes=tuple(notes),
    )


def _widths(flags: flag.Flags, keys: Sequence[str], values: Sequence[str]) -> Widths:
    stated = (flag.text(flags, *keys) or "f16", flag.text(flags, *values) or "f16")
    for one in stated:
        if one not in _TYPES:
            raise NotModelledError(f"the cache type {one} is not known here")
    return _TYPES[stated[0]], _TYPES[stated[1]]


def _token_bytes(layer: Layer, widths: Widths) -> float:
    (key_bytes, key_block), (value_bytes, value_block) = widths
    keys = layer.kv_heads * layer.key_dim * key_bytes / key_block
    return keys + layer.kv_heads * layer.value_dim * value_bytes / value_block


def _cache_bytes(layers: Sequence[Layer], size: Cells, widths: Widths) -> int:
    return int(sum(_token_bytes(layer, widths) * size.kept(layer) for layer in layers))


def _padded(tokens: int) -> int:
    return -(-tokens // _PAD) * _PAD
