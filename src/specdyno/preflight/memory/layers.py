"""What every layer of a model keeps of a sequence: keys and values, a latent vector, or a state of fixed size.

Turns the shape that a checkpoint states into sizes of a cache. A kind of attention that is not known here raises
`NotModelledError` with the reason: an estimate that leaves a layer out would be worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from specdyno.preflight.checkpoints import facts
from specdyno.preflight.checkpoints.facts import Shape
from specdyno.preflight.checkpoints.schema import Checkpoint


class NotModelledError(ValueError):
    """What a model keeps per token cannot be told from its files; the text says why."""


class LayerKind(StrEnum):
    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    LATENT = "latent"  # MLA: one vector for keys and values, on every rank
    STATE = "state"  # Mamba, gated delta net: one state per request


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's cache in elements. `window_tokens` is set for SLIDING and CHUNKED, the last four for STATE."""

    kind: LayerKind
    kv_heads: int = 1
    key_dim: int = 0
    value_dim: int = 0
    window_tokens: int | None = None
    conv_width: int = 0
    conv_kernel: int = 0
    state_heads: int = 0
    state_dim: int = 0  # elements of one head's recurrent state

    def elements_per_token(self, ranks: int = 1) -> int:
        """Elements that one more token takes on one of `ranks` devices; 0 for a state.

        >>> Layer(LayerKind.FULL, kv_heads=8, key_dim=128, value_dim=128).elements_per_token()
        2048
        """
        if self.kind is LayerKind.STATE:
            return 0
        heads = 1 if self.kind is LayerKind.LATENT else max(1, self.kv_heads // ranks)
        return heads * (self.key_dim + self.value_dim)


_NOT_KNOWN = {
    "index_head_dim": "its sparse attention keeps an index beside the latent vectors",
    "compress_ratios": "its cache is compressed layer by layer",
    "block_configs": "its layers differ one by one",
    "swa_num_key_value_heads": "its sliding and full layers have heads of different sizes",
    "swa_head_dim": "its sliding and full layers have heads of different sizes",
}
# Models whose every layer keeps to the window that the configuration states.
_ALL_SLIDING = frozenset({"mistral", "mixtral", "phi3", "starcoder2"})
_LISTS = ("layer_types", "layers_block_type", "hybrid_override_pattern", "block_types", "per_layer_config")
_PATTERN = ("sliding_window_pattern", "_sliding_window_pattern", "max_window_layers")


def layers_of(checkpoint: Checkpoint) -> tuple[Layer, ...]:
    """The cached layers of a model, layers that read another layer's cache left out. NotModelledError says why not."""
    config, shape = checkpoint.text_config, facts.facts(checkpoint)
    for key, why in _NOT_KNOWN.items():
        if config.get(key):
            raise NotModelledError(f"{why} ({key})")
    if any(".indexer." in key for key in config):
        raise NotModelledError(_NOT_KNOWN["index_head_dim"])
    if not shape.layers:
        raise NotModelledError("its configuration states no number of layers")
    _refuse_a_guessed_window(config, shape)
    own = [
        _cached(layer, shape, _overrides(config, layer, index))
        for index, layer in enumerate(shape.layers)
        if not layer.reads_other_cache and layer.kind is not facts.LayerKind.STATELESS
    ]
    if {LayerKind.LATENT} < {one.kind for one in own} - {LayerKind.STATE}:
        raise NotModelledError("it mixes latent vectors with windows")
    return tuple(own)


def _refuse_a_guessed_window(config: Mapping[str, Any], shape: Shape) -> None:
    """A window without a word on which layers keep to it tells nothing about a model that is not known here."""
    listed = any(config.get(key) for key in _LISTS) or any(isinstance(config.get(key), int) for key in _PATTERN)
    if listed or "general.architecture" in config or config.get("model_type") in _ALL_SLIDING:
        return
    if shape.layers and all(layer.kind is facts.LayerKind.SLIDING for layer in shape.layers):
        raise NotModelledError("it states a sliding_window and not which layers keep to it")


def _overrides(config: Mapping[str, Any], layer: facts.Layer, index: int) -> dict[str, int]:
    """Heads of single layers as transformers 5 writes them, and Gemma 4's defaults where it does not."""
    listed = config.get("per_layer_config")
    if isinstance(listed, Mapping):
        own = listed.get(str(index))
        stated = own if isinstance(own, Mapping) else {}
    elif str(config.get("model_type")).startswith("gemma4") and layer.kind is facts.LayerKind.FULL:
        stated = {"head_dim": config.get("global_head_dim") or 512}
        if config.get("attention_k_eq_v") is False:
            stated["num_key_value_heads"] = config.get("num_key_value_heads")
    else:
        stated = {}
    return {key: value for key, value in stated.items() if isinstance(value, int)}


def _cached(layer: facts.Layer, shape: Shape, overrides: dict[str, int]) -> Layer:
    match layer.kind:
        case facts.LayerKind.RECURRENT:
            return _state(shape.recurrent)
        case facts.LayerKind.PARALLEL | facts.LayerKind.UNKNOWN:
            raise NotModelledError(f"its layers of the kind {layer.kind} are not known here")
    if shape.is_latent and layer.kind is facts.LayerKind.FULL:
        width = _stated(shape.kv_lora_rank, "kv_lora_rank") + _stated(shape.qk_rope_head_dim, "qk_rope_head_dim")
        return Layer(LayerKind.LATENT, 1, width, 0)
    kind = {
        facts.LayerKind.FULL: LayerKind.FULL,
        facts.LayerKind.SLIDING: LayerKind.SLIDING,
        facts.LayerKind.CHUNKED: LayerKind.CHUNKED,
    }[layer.kind]
    found = Layer(
        kind,
        overrides.get("num_key_value_heads") or _stated(layer.kv_heads, "number of key-value heads"),
        overrides.get("head_dim") or _stated(layer.key_dim, "size of a head"),
        overrides.get("head_dim") or _stated(layer.value_dim, "size of a head"),
    )
    return found if kind is LayerKind.FULL else replace(found, window_tokens=_stated(layer.window, "window"))


def _state(sizes: Mapping[str, int]) -> Layer:
    """A gated delta net, or Mamba 2 in either of its spellings."""
    if "linear_num_value_heads" in sizes:
        keys, values = _size(sizes, "linear_num_key_heads"), _size(sizes, "linear_num_value_heads")
        key_dim, value_dim = _size(sizes, "linear_key_head_dim"), _size(sizes, "linear_value_head_dim")
        return Layer(
            LayerKind.STATE,
            conv_width=2 * keys * key_dim + values * value_dim,
            conv_kernel=_size(sizes, "linear_conv_kernel_dim"),
            state_heads=values,
            state_dim=key_dim * value_dim,
        )
    if "mamba_n_heads" in sizes or "mamba_num_heads" in sizes:
        heads, head_dim = (
            _size(sizes, "mamba_n_heads", "mamba_num_heads"),
            _size(sizes, "mamba_d_head", "mamba_head_dim"),
        )
        groups, size = _size(sizes, "mamba_n_groups", "n_groups"), _size(sizes, "mamba_d_state", "ssm_state_size")
        return Layer(
            LayerKind.STATE,
            conv_width=heads * head_dim + 2 * groups * size,
            conv_kernel=_size(sizes, "mamba_d_conv", "conv_kernel"),
            state_heads=heads,
            state_dim=head_dim * size,
        )
    raise NotModelledError("its recurrent layers are of a kind that is not known here")


def _size(sizes: Mapping[str, int], *names: str) -> int:
    return _stated(next((sizes[name] for name in names if name in sizes), None), names[0])


def _stated(value: int | None, what: str) -> int:
    if not value:
        raise NotModelledError(f"its configuration states no {what}")
    return value
