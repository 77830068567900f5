"""The shape that a GGUF's metadata states, read as llama.cpp reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdyno.preflight.checkpoints.schema import Checkpoint
from specdyno.preflight.checkpoints.shape import MOST_LAYERS, Layer, LayerKind, Shape, stated

# Every n-th layer is full and the others slide, where a GGUF gives a window and no pattern
# (source: `load_swa_pattern` calls of llama.cpp, build 11434); True: the first is full.
_PERIODS = {
    "gemma2": (2, False), "gemma3": (6, False), "gemma3n": (5, False), "gpt-oss": (2, False), "cohere2": (4, False),
    "exaone4": (4, False), "exaone-moe": (4, False), "olmo2": (4, False), "llama4": (4, False), "afmoe": (4, False),
    "plamo3": (8, False), "smallthinker": (4, True), "cohere2moe": (4, True), "laguna": (4, True),
}  # fmt: skip


def shape(checkpoint: Checkpoint) -> Shape:
    """Keys follow `LLM_KV_*` of llama.cpp, each under the architecture's name; numbers of `ssm` are kept as written."""
    prefix = f"{checkpoint.model_type}."
    table = {key.removeprefix(prefix): value for key, value in checkpoint.config.items() if key.startswith(prefix)}
    vocabulary = stated(table, "vocab_size")
    if vocabulary is None and checkpoint.tokenizer:
        vocabulary = len(checkpoint.tokenizer.ids)
    if checkpoint.tensors and (embedding := checkpoint.tensors.get("token_embd.weight")):
        vocabulary = embedding.shape[0]  # what the engine allocates, padding included
    return Shape(
        hidden_size=stated(table, "embedding_length"),
        vocab_size=vocabulary,
        context_length=stated(table, "context_length"),
        layers=_layers(table, str(checkpoint.model_type)),
        kv_lora_rank=stated(table, "attention.kv_lora_rank"),
        qk_rope_head_dim=stated(table, "rope.dimension_count") if "attention.kv_lora_rank" in table else None,
        next_token_layers=stated(table, "nextn_predict_layers"),
        recurrent={
            key: value
            for key, value in table.items()
            if key.startswith(("ssm.", "shortconv.", "wkv.", "kda.")) and type(value) is int
        },
    )


def _layers(table: Mapping[str, Any], architecture: str) -> tuple[Layer, ...] | None:
    blocks = stated(table, "block_count")
    if blocks is None or blocks > MOST_LAYERS:
        return None
    count = max(blocks - (stated(table, "nextn_predict_layers") or 0), 0)  # llama.cpp counts MTP layers as blocks
    sliding = _sliding(table, architecture, count)
    recurrent = _recurrent(table, count)
    shared = stated(table, "attention.shared_kv_layers") or 0
    return tuple(
        _layer(
            table,
            number,
            LayerKind.RECURRENT if recurrent[number] else LayerKind.SLIDING if sliding[number] else LayerKind.FULL,
            reads_other_cache=number >= count - shared,
        )
        for number in range(count)
    )


def _layer(table: Mapping[str, Any], number: int, kind: LayerKind, *, reads_other_cache: bool) -> Layer:
    if kind is LayerKind.RECURRENT:
        return Layer(kind)
    heads = _at(table.get("attention.head_count"), number)
    kv_heads = _at(table.get("attention.head_count_kv", heads), number)
    hidden = stated(table, "embedding_length")
    derived = hidden // heads if heads and hidden is not None else None
    suffix = "_swa" if kind is LayerKind.SLIDING else ""
    key_dim, value_dim = (
        stated(table, f"attention.{part}_length{suffix}", f"attention.{part}_length") for part in ("key", "value")
    )
    window = _at(table.get("attention.sliding_window"), number) if kind is LayerKind.SLIDING else None
    if kv_heads == 0:  # a layer without attention in a hybrid that lists heads per layer
        return Layer(LayerKind.STATELESS)
    return Layer(kind, heads, kv_heads, key_dim or derived, value_dim or derived, window, reads_other_cache)


def _sliding(table: Mapping[str, Any], architecture: str, count: int) -> list[bool]:
    pattern = table.get("attention.sliding_window_pattern")
    if not _at(table.get("attention.sliding_window"), 0):
        return [False] * count
    if isinstance(pattern, list):
        return [number < len(pattern) and bool(pattern[number]) for number in range(count)]
    period, first_full = _PERIODS.get(architecture, (0, False))
    if type(pattern) is int:
        period = pattern
    if not period:
        return [True] * count
    return [number % period != (0 if first_full else period - 1) for number in range(count)]


def _recurrent(table: Mapping[str, Any], count: int) -> list[bool]:
    listed = table.get("attention.recurrent_layers")
    if isinstance(listed, list):
        return [number < len(listed) and bool(listed[number]) for number in range(count)]
    kv_heads = table.get("attention.head_count_kv")
    has_state = any(key.startswith(("ssm.", "shortconv.", "wkv.", "kda.")) for key in table)
    if not has_state:
        return [False] * count
    if isinstance(kv_heads, list):  # Jamba, Nemotron H, LFM2: a layer without key heads is a recurrent one
        return [_at(kv_heads, number) == 0 for number in range(count)]
    interval = stated(table, "full_attention_interval") or (None if kv_heads is None else 0)
    if interval:
        return [(number + 1) % interval != 0 for number in range(count)]
    return [not kv_heads] * count


def _at(value: Any, number: int) -> int | None:
    """A count for one layer, from one count for all or from a list."""
    if isinstance(value, list):
        value = value[number] if number < len(value) else None
    return value if type(value) is int else None
