"""Bytes that the weights of target and draft take once loaded, from tensor headers alone.

Counts what is in the files; buffers that an engine builds beside them (fused scales, graphs, workspaces) are not known
before it runs. Tensors that a draft takes from its target are simply not in its file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from specdyno.preflight.checkpoints.schema import Checkpoint, Format, Tensor

# Names of a native multi-token-prediction module; a baseline does not load it.
_MTP = re.compile(r"(^|\.)(mtp|mtp_layers|mtp_block|nextn)\.")
_LAYER = re.compile(r"(^|\.)layers\.(\d+)\.")
_HEADS, _EMBEDDINGS = ("lm_head.weight",), ("embed_tokens.weight",)
_WIDE = {"F32", "F64"}
_HALF = {"BF16", "F16"}


def is_mtp(name: str, *, layers: int | None) -> bool:
    """Whether a tensor belongs to a native MTP module: named so, or a layer beyond the model's own.

    >>> is_mtp("model.layers.61.eh_proj.weight", layers=61), is_mtp("model.layers.60.mlp.gate.weight", layers=61)
    (True, False)
    """
    beyond = _LAYER.search(name)
    return _MTP.search(name) is not None or (layers is not None and beyond is not None and int(beyond[2]) >= layers)


def weight_bytes(checkpoint: Checkpoint, *, load_dtype: str | None, mtp: bool | None = None) -> int | None:
    """Loaded size of a checkpoint; None without tensor headers.

    `load_dtype` is the engine's `--dtype`; None or "auto" means that of the configuration, where 32-bit files become
    16-bit ones in vLLM. `mtp`: only (True) or all but (False) the tensors of the native MTP module; None: everything.
    """
    if checkpoint.tensors is None:
        return None
    tensors: Iterable[Tensor] = checkpoint.tensors.values()
    layers = checkpoint.text_config.get("num_hidden_layers")
    count = layers if isinstance(layers, int) else None
    if mtp is not None:
        tensors = [one for one in tensors if is_mtp(one.name, layers=count) is mtp]
    if _shares_embeddings(checkpoint):
        tensors = [one for one in tensors if not one.name.endswith(_HEADS)]
    keep = checkpoint.format is Format.GGUF or "quantization_config" in checkpoint.config
    return sum(one.size_bytes if keep else _loaded(one, load_dtype) for one in tensors)


def _shares_embeddings(checkpoint: Checkpoint) -> bool:
    """The output layer is the embedding: a copy in the file is not loaded."""
    names = checkpoint.tensors or {}
    stated = checkpoint.config.get("tie_word_embeddings", checkpoint.text_config.get("tie_word_embeddings"))
    return stated is True and any(name.endswith(_EMBEDDINGS) for name in names)


def _loaded(tensor: Tensor, load_dtype: str | None) -> int:
    """A floating tensor takes the width of the type it is loaded as; every other one stays as it is."""
    if tensor.dtype not in _WIDE | _HALF:
        return tensor.size_bytes
    elements = 1
    for length in tensor.shape:
        elements *= length
    return elements * (4 if load_dtype in ("float32", "float") else 2)
