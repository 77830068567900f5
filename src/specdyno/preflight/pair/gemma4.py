"""Rules on Gemma 4's assistants, which read the target's KV cache: layer kinds and heads must be the target's."""

from __future__ import annotations

from specdyno.preflight.checkpoints.schema import Checkpoint, Format
from specdyno.preflight.pair.architectures import ASSISTANTS
from specdyno.preflight.pair.rule import Judged, Pair, failed, passed, unknown

_HEADS = ("head_dim", "global_head_dim", "num_key_value_heads", "num_global_key_value_heads")
_SAME_SIZE = "Use the assistant that was published for this very target"


def assistant_known(pair: Pair) -> Judged | None:
    """The draft is a Gemma 4 assistant, the target a Gemma 4."""
    wanted = {"gemma4-assistant"} if pair.draft.format is Format.GGUF else ASSISTANTS
    if pair.draft.model_type not in wanted:
        return failed(f"the draft's model type is {pair.draft.model_type}", "Name the target's -assistant checkpoint")
    if "gemma4" not in (pair.target.model_type or ""):
        return failed(f"the target's model type is {pair.target.model_type}", "Assistants draft for Gemma 4 only")
    return passed(f"{pair.draft.model_type} for {pair.target.model_type}")


def assistant_layers(pair: Pair) -> Judged | None:
    """Each kind of attention in the assistant is found among the target's layers that keep a cache of their own."""
    kept, needed = set(pair.of_target.cached_kinds), set(pair.of_draft.layer_kinds)
    if not kept or not needed:
        return unknown("layer_types are not stated")
    if lacking := sorted(needed - kept):
        return failed(f"the assistant has {lacking[0]} layers, the target keeps no cache of such", _SAME_SIZE)
    return passed(", ".join(sorted(needed)))


def assistant_heads(pair: Pair) -> Judged | None:
    """Heads that read the target's cache have its shape."""
    compared = []
    for key in _HEADS:
        target, draft = _stated(pair.target, key), _stated(pair.draft, key)
        if target is None or draft is None:
            continue
        if target != draft:
            return failed(f"{key} is {draft} in the assistant and {target} in the target", _SAME_SIZE)
        compared.append(f"{key} {target}")
    return passed(", ".join(compared)) if compared else unknown("heads are not stated")


def ordered_embeddings(pair: Pair) -> Judged | None:
    """A clustered output head captures a CUDA graph as the server starts."""
    if not pair.of_draft.ordered_embeddings:
        return passed("no clustered head")
    if pair.installed.vllm_on_cpu:
        return failed(
            "use_ordered_embeddings is true, and its clustered head needs a GPU",
            "Use an assistant without it (the ones of 12B and above)",
        )
    if not pair.installed.found:
        return unknown("use_ordered_embeddings is true: its clustered head needs a GPU")
    return passed("clustered head, on a GPU")


def _stated(checkpoint: Checkpoint, key: str) -> object:
    return checkpoint.text_config.get(key)
