"""What a draft adds to the cache: its own layers, by method, as vLLM 0.32.0 registers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from specdyno.plan.schema import Arm, Method
from specdyno.preflight.checkpoints.facts import facts
from specdyno.preflight.checkpoints.schema import Checkpoint
from specdyno.preflight.memory.layers import Layer, LayerKind, NotModelledError, layers_of

# These read the target's cache, or draft without a model.
NO_CACHE = frozenset({Method.NGRAM, Method.SUFFIX, Method.MEDUSA, Method.GEMMA4_MTP})


def draft_layers(
    arm: Arm, target: Checkpoint, draft: Checkpoint | None, *, target_layers: tuple[Layer, ...]
) -> tuple[Layer, ...]:
    """Layers with a cache of their own; empty where the method has none. NotModelledError says why not.

    `draft` is None where the method has none (its MTP layers then lie in the target) or it could not be read.
    """
    if arm.method is None or arm.method in NO_CACHE:
        return ()
    if arm.method is Method.MTP:
        return _mtp_layers(draft or target, target_layers)
    if draft is None:
        raise NotModelledError("the draft's configuration could not be read")
    inner = draft.config.get("transformer_layer_config")  # speculators' format
    return layers_of(replace(draft, config=inner) if isinstance(inner, Mapping) else draft)


def _mtp_layers(holder: Checkpoint, target_layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    count = facts(holder).next_token_layers
    if not count:
        raise NotModelledError("its configuration announces no MTP layers")
    whole = [layer for layer in target_layers if layer.kind in (LayerKind.FULL, LayerKind.LATENT)]
    if not whole or any(layer.window_tokens for layer in target_layers):
        raise NotModelledError("whether its MTP layers keep to a window is not known")
    return (whole[-1],) * count
