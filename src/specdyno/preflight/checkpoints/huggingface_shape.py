"""The shape that a config.json states, under any of the names that model families give the same fact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdyno.preflight.checkpoints.schema import Checkpoint
from specdyno.preflight.checkpoints.shape import MOST_LAYERS, Layer, LayerKind, Shape, stated

# Words for a layer, as configs spell them. Sources: `layer_types` of transformers 5.19, `layers_block_type` of Bamba,
# Zamba and Jamba, `hybrid_override_pattern` of Nemotron H.
_KINDS = {
    "full_attention": LayerKind.FULL, "attention": LayerKind.FULL, "global": LayerKind.FULL, "*": LayerKind.FULL,
    "sliding_attention": LayerKind.SLIDING, "local": LayerKind.SLIDING, "local_attention": LayerKind.SLIDING,
    "chunked_attention": LayerKind.CHUNKED,
    "linear_attention": LayerKind.RECURRENT, "mamba": LayerKind.RECURRENT, "mamba2": LayerKind.RECURRENT,
    "conv": LayerKind.RECURRENT, "recurrent": LayerKind.RECURRENT, "M": LayerKind.RECURRENT,
    "hybrid": LayerKind.PARALLEL,
    "moe": LayerKind.STATELESS, "mlp": LayerKind.STATELESS, "E": LayerKind.STATELESS, "-": LayerKind.STATELESS,
}  # fmt: skip
# Every n-th layer is full and the others slide, where the config gives a window and no pattern.
_PERIODS = {"gemma2": 2, "gemma3_text": 6, "gemma3": 6, "cohere2": 4}
_RECURRENT_KEYS = (
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
    "linear_conv_kernel_dim", "mamba_num_heads", "mamba_n_heads", "mamba_head_dim", "mamba_d_head", "mamba_d_state",
    "mamba_d_conv", "mamba_d_ssm", "mamba_expand", "mamba_n_groups", "ssm_state_size", "conv_kernel", "n_groups",
    "expand", "state_size", "time_step_rank", "conv_L_cache", "lru_width", "conv1d_width",
)  # fmt: skip
_NEXT_TOKEN_KEYS = (
    "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers", "n_predict",
)  # fmt: skip


def shape(checkpoint: Checkpoint) -> Shape:
    """The shape of the language model; of a wrapper, that of its `text_config`."""
    config = checkpoint.text_config
    hidden = stated(config, "hidden_size", "n_embd", "d_model")
    next_token = stated(config, *_NEXT_TOKEN_KEYS)
    dtype = next(
        (
            table[key]
            for table in (config, checkpoint.config)
            for key in ("dtype", "torch_dtype")
            if isinstance(table.get(key), str)
        ),
        None,
    )
    return Shape(
        hidden_size=hidden,
        vocab_size=stated(config, "vocab_size"),
        context_length=stated(config, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
        layers=_layers(config, hidden),
        kv_lora_rank=stated(config, "kv_lora_rank"),
        qk_rope_head_dim=stated(config, "qk_rope_head_dim"),
        next_token_layers=next_token if next_token is not None else stated(checkpoint.config, *_NEXT_TOKEN_KEYS),
        dtype=dtype,
        recurrent={key: config[key] for key in _RECURRENT_KEYS if stated(config, key) is not None},
    )


def _layers(config: Mapping[str, Any], hidden: int | None) -> tuple[Layer, ...] | None:
    count = stated(config, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    kinds = _kinds(config, count) if count is None or count <= MOST_LAYERS else None
    if kinds is None:
        return None
    shared = stated(config, "num_kv_shared_layers") or 0
    return tuple(
        _layer(config, hidden, kind, reads_other_cache=number >= len(kinds) - shared)
        for number, kind in enumerate(kinds)
    )


def _layer(config: Mapping[str, Any], hidden: int | None, kind: LayerKind, *, reads_other_cache: bool) -> Layer:
    if kind in (LayerKind.RECURRENT, LayerKind.STATELESS):
        return Layer(kind)
    heads = stated(config, "num_attention_heads", "n_head", "num_heads")
    kv_heads = stated(config, "num_key_value_heads", "num_kv_heads", "multi_query_group_num")
    if kv_heads is None:
        kv_heads = 1 if config.get("multi_query") is True else heads
    key_dim = stated(config, "head_dim", "attention_head_dim", "kv_channels")
    if key_dim is None and heads and hidden is not None and hidden % heads == 0:
        key_dim = hidden // heads  # as every loader derives it
    value_dim = stated(config, "v_head_dim") or key_dim
    if kind is LayerKind.FULL and (wide := stated(config, "global_head_dim")):  # Gemma 4: full layers have wider heads
        key_dim = value_dim = wide
        kv_heads = stated(config, "num_global_key_value_heads") or kv_heads
    if stated(config, "kv_lora_rank") is not None:
        nope, rope = stated(config, "qk_nope_head_dim"), stated(config, "qk_rope_head_dim")
        key_dim = nope + rope if nope is not None and rope is not None else key_dim
    window = None
    if kind is LayerKind.SLIDING:
        window = stated(config, "sliding_window", "sliding_window_size", "attention_window_size")
    elif kind is LayerKind.CHUNKED:
        window = stated(config, "attention_chunk_size")
    return Layer(kind, heads, kv_heads, key_dim, value_dim, window, reads_other_cache)


def _kinds(config: Mapping[str, Any], count: int | None) -> list[LayerKind] | None:
    """What each layer is: as listed, else by the config's rule, else by its window."""
    for key in ("layer_types", "layers_block_type", "hybrid_override_pattern", "block_types"):
        listed = config.get(key)
        if isinstance(listed, str | list) and listed:
            kinds = [_KINDS.get(str(word), LayerKind.UNKNOWN) for word in listed]
            # A repeating pattern (RecurrentGemma) is shorter than the model.
            return kinds if count is None else [kinds[number % len(kinds)] for number in range(count)]
    if count is None:
        return None
    return _attention_among_recurrent(config, count) or _windows(config, count)


def _attention_among_recurrent(config: Mapping[str, Any], count: int) -> list[LayerKind] | None:
    """Hybrids that state by a rule which layers have attention; None for a model without recurrent layers."""
    listed, linear = config.get("attn_type_list"), config.get("linear_attn_config")
    if interval := stated(config, "full_attention_interval"):
        full = {number for number in range(count) if (number + 1) % interval == 0}
    elif period := stated(config, "attn_layer_period"):
        offset = stated(config, "attn_layer_offset") or 0
        full = {number for number in range(count) if number % period == offset}
    elif isinstance(listed, list):  # MiniMax: 1 is full attention
        full = {number for number, word in enumerate(listed) if word == 1}
    elif isinstance(linear, dict) and isinstance(linear.get("full_attn_layers"), list):  # Kimi Linear counts from 1
        full = {number - 1 for number in linear["full_attn_layers"] if type(number) is int}
    elif str(config.get("model_type")) in ("mamba", "mamba2", "falcon_mamba"):
        full = set()
    elif str(config.get("model_type")) == "falcon_h1":
        return [LayerKind.PARALLEL] * count
    else:
        return None
    return [LayerKind.FULL if number in full else LayerKind.RECURRENT for number in range(count)]


def _windows(config: Mapping[str, Any], count: int) -> list[LayerKind]:
    window = stated(config, "sliding_window")
    if not window or config.get("use_sliding_window") is False:
        return [LayerKind.FULL] * count
    model_type = str(config.get("model_type"))
    period = stated(config, "sliding_window_pattern", "_sliding_window_pattern") or _PERIODS.get(model_type)
    if period:
        return [LayerKind.FULL if (number + 1) % period == 0 else LayerKind.SLIDING for number in range(count)]
    first = stated(config, "max_window_layers") or 0 if config.get("use_sliding_window") is True else 0
    return [LayerKind.SLIDING if number >= first else LayerKind.FULL for number in range(count)]
