"""The shape of a model in one vocabulary, from config.json or from a GGUF's metadata.

A fact that is not stated, and that no loader derives from stated ones, is None. What a layer keeps per token is listed
per layer, because hybrids, sliding windows and shared caches differ from layer to layer.
"""

from __future__ import annotations

from specdyno.preflight.checkpoints import gguf_shape, huggingface_shape
from specdyno.preflight.checkpoints.schema import Checkpoint, Format
from specdyno.preflight.checkpoints.shape import Layer, LayerKind, Shape

__all__ = ["Layer", "LayerKind", "Shape", "facts"]


def facts(checkpoint: Checkpoint) -> Shape:
    """The shape of a checkpoint's language model, whatever the format."""
    if checkpoint.format is Format.GGUF:
        return gguf_shape.shape(checkpoint)
    return huggingface_shape.shape(checkpoint)
