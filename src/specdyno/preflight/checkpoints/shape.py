"""The words for a model's shape: what a layer keeps of a sequence, and the sizes that pairs and memory are told by.

Owns the types alone; `facts` fills them from either format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

MOST_LAYERS = 10_000  # a count beyond is a broken file's, and would fill the memory


class LayerKind(StrEnum):
    FULL = "full_attention"  # keeps every token
    SLIDING = "sliding_attention"  # keeps the last `window` tokens
    CHUNKED = "chunked_attention"  # keeps the tokens of the current chunk of `window`
    RECURRENT = "recurrent"  # keeps one state per request: Mamba, gated delta net, short convolution
    PARALLEL = "attention_and_recurrent"  # both side by side in one layer (Falcon H1)
    STATELESS = "stateless"  # keeps nothing: a feed-forward or expert layer of its own
    UNKNOWN = "unknown"  # the config's own word for it is not known here


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the trunk. Heads and widths are None where not stated, and where the layer has no attention."""

    kind: LayerKind
    heads: int | None = None
    kv_heads: int | None = None
    key_dim: int | None = None  # per head
    value_dim: int | None = None  # per head
    window: int | None = None  # tokens
    reads_other_cache: bool = False  # reuses the keys and values of an earlier layer and keeps none of its own


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's shape. `layers` leaves out MTP layers, which `next_token_layers` counts; None is "not stated"."""

    hidden_size: int | None = None
    vocab_size: int | None = None
    context_length: int | None = None  # tokens the model was trained for
    layers: tuple[Layer, ...] | None = None
    kv_lora_rank: int | None = None  # latent attention (MLA): width of the compressed keys and values
    qk_rope_head_dim: int | None = None  # latent attention: width of the rotary part of a key
    next_token_layers: int | None = None  # MTP layers inside this checkpoint
    dtype: str | None = None  # of the activations, as config.json spells it
    recurrent: Mapping[str, int] = field(default_factory=dict)  # sizes of recurrent states, keys as written

    @property
    def layer_count(self) -> int | None:
        return None if self.layers is None else len(self.layers)

    @property
    def is_latent(self) -> bool:
        return self.kv_lora_rank is not None


def stated(table: Mapping[str, Any], *names: str) -> int | None:
    """The first of these keys that holds a count; a JSON true, a text or a negative number is none."""
    for name in names:
        value = table.get(name)
        if type(value) is int and value >= 0:
            return value
    return None
