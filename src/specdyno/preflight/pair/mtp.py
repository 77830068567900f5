"""Rules on native multi-token prediction: which targets have it, and whether the uploaded files still hold it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specdyno.preflight.checkpoints.schema import Checkpoint, Format
from specdyno.preflight.pair.architectures import MTP_KEYS, MTP_TARGETS, REFUSES_MTP, MtpTarget
from specdyno.preflight.pair.rule import Judged, Pair, failed, passed, unknown
from specdyno.preflight.pair.traits import at, whole

_MTP_TENSOR = re.compile(r"(^|\.)(mtp(_layers|_block)?|nextn)\.|(^|\.)mtp_")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_WITHOUT = "Use an upload that kept them (the original one), or a draft of its own (eagle3, draft_model)"


def mtp_entry(checkpoint: Checkpoint) -> MtpTarget | None:
    """The entry in vLLM for a target that can draft for itself, by its first architecture or its model type."""
    kind, first = checkpoint.model_type, checkpoint.architectures[:1]
    by_name = (entry for entry in MTP_TARGETS if first and first[0] in entry.architectures)
    by_type = (entry for entry in MTP_TARGETS if kind in entry.model_types)
    return next(by_name, None) or next(by_type, None)


def mtp_layers(checkpoint: Checkpoint) -> int | None:
    """How many tokens one pass of the MTP layers predicts (vLLM's n_predict); None where nothing announces any."""
    if checkpoint.format is Format.GGUF:
        return whole(checkpoint.config.get(f"{checkpoint.model_type}.nextn_predict_layers"))
    entry = mtp_entry(checkpoint)
    if entry is None:
        return next((found for key in MTP_KEYS if (found := _stated(checkpoint, key)) is not None), None)
    if entry.key is None:
        return 1
    found = _stated(checkpoint, entry.key)
    if found is None and entry.draft == "Qwen4ExpMTP":
        found = _stated(checkpoint, "num_nextn_predict_layers")
    return entry.missing if found is None else found


def _stated(checkpoint: Checkpoint, key: str) -> int | None:
    inner: Mapping[str, Any] = checkpoint.text_config
    return next((found for one in (checkpoint.config, inner) if (found := whole(at(one, key))) is not None), None)


def mtp_target(pair: Pair) -> Judged | None:
    """The engine knows how this target drafts for itself, and its configuration announces the layers."""
    source = pair.draft
    count = mtp_layers(source)
    name = source.architectures[0] if source.architectures else source.model_type or "it"
    if pair.kind == "vllm" and source.format is Format.HUGGING_FACE:
        if source.model_type in REFUSES_MTP:
            return failed(f"{name} has no MTP layers of the usual kind", "Use method dspark with it as its own draft")
        if mtp_entry(source) is None:
            return failed(
                f"{name} (model type {source.model_type}) is no target that vLLM knows MTP layers of",
                "Use another method, or a draft of its own (eagle3, draft_model)",
            )
    if not count:
        key = "nextn_predict_layers" if source.format is Format.GGUF else " or ".join(MTP_KEYS)
        return failed(f"{name} announces no MTP layers ({key})", "Use a checkpoint that has them, or another method")
    return passed(f"{name} announces {count} MTP layer{'s' if count > 1 else ''}")


def mtp_tensors_present(pair: Pair) -> Judged | None:
    """The announced layers are in the files: quantised uploads often leave them out."""
    count = mtp_layers(pair.draft)
    if not count:
        return None  # mtp_target says so
    if pair.draft.tensors is None:
        return unknown("the tensors cannot be read")
    found = [name for name in pair.draft.tensors if _is_mtp(name, pair.of_draft.layers)]
    if not found:
        announced = "1 MTP layer" if count == 1 else f"{count} MTP layers"
        words = (
            f"the configuration announces {announced}, and none of {len(pair.draft.tensors):,} tensors belongs to one"
        )
        return failed(words, _WITHOUT)
    return passed(f"{len(found)} tensors, e.g. {found[0]}")


def _is_mtp(name: str, layers: int | None) -> bool:
    if _MTP_TENSOR.search(name):
        return True
    layer = _LAYER.search(name)
    return layer is not None and layers is not None and int(layer[1]) >= layers
