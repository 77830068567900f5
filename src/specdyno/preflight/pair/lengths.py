"""Rules on the draft length: which an engine takes, and which the draft was trained for."""

from __future__ import annotations

from specdyno.plan.methods import Method
from specdyno.preflight.pair.mtp import mtp_layers
from specdyno.preflight.pair.rule import Judged, Pair, failed, passed, unknown, warned
from specdyno.preflight.pair.traits import Traits

_BLOCKS = frozenset({Method.DFLASH, Method.DSPARK})
_OMNI = "Qwen3OmniDSparkModel"
_BLOCK_ONLY = {"sglang": "SGLang", "trtllm": "TensorRT-LLM"}  # DSpark: the trained block and nothing else


def trained_limit(
    method: Method,
    *,
    block_size: int | None = None,
    anchor_sampled: bool | None = None,
    speculative_tokens: int | None = None,
) -> int | None:
    """Most draft tokens per step that a draft was trained for; None where there is no such limit or it is unknown.

    A DFlash block of n holds the anchor and n - 1 masked positions. DSpark samples the anchor's position too, unless
    its file says otherwise (`anchor_sampled` False). `speculative_tokens` is what a speculators file proposes.
    Sources: vLLM 0.32.0, config/speculative.py and transformers_utils/configs/speculators/algos.py; llama.cpp build
    11434, common/speculative.cpp.

    >>> trained_limit(Method.DFLASH, block_size=8), trained_limit(Method.DSPARK, block_size=7)
    (7, 7)
    """
    if method not in _BLOCKS or block_size is None:
        return speculative_tokens
    whole_block = method is Method.DSPARK and anchor_sampled is not False
    return block_size if whole_block else block_size - 1


def limit_of(method: Method, draft: Traits) -> int | None:
    """`trained_limit` of a draft from its files."""
    return trained_limit(
        method,
        block_size=draft.block_size,
        anchor_sampled=draft.anchor_sampled,
        speculative_tokens=draft.trained_tokens,
    )


def draft_tokens_legal(pair: Pair) -> Judged | None:
    """The engine takes this draft length, and does not quietly cut it."""
    if pair.method is Method.MTP:
        return _mtp(pair)
    if pair.method is Method.MEDUSA:
        return _medusa(pair)
    block = pair.of_draft.block_size
    limit = limit_of(pair.method, pair.of_draft)
    if pair.method is Method.DSPARK and block is not None and _takes_the_block_only(pair) and pair.k != block:
        return failed(
            f"{pair.k} draft tokens; it takes the trained block of {block} only", f"Write draft_tokens: {block}"
        )
    if pair.kind == "llamacpp" and pair.method in _BLOCKS and limit is not None and pair.k > limit:
        return failed(
            f"{pair.k} draft tokens; llama.cpp cuts them to {limit}, the trained block", f"Write at most {limit}"
        )
    return passed(f"{pair.k}")


def _takes_the_block_only(pair: Pair) -> bool:
    if pair.kind == "vllm":
        return _OMNI in pair.of_draft.architectures
    return pair.kind in _BLOCK_ONLY


def _mtp(pair: Pair) -> Judged | None:
    layers = mtp_layers(pair.draft)
    if not layers:
        return None  # mtp_target says so
    if pair.kind == "vllm" and pair.k > layers and pair.k % layers:
        remedy = f"Write a length up to {layers}, or a multiple of it"
        return failed(f"{pair.k} draft tokens are no multiple of {layers} MTP layers", remedy)
    if pair.kind == "llamacpp" and layers > 1 and pair.k > layers:
        return failed(f"{pair.k} draft tokens; llama.cpp cuts them to {layers} MTP layers", f"Write at most {layers}")
    repeated = f": {'its one layer is' if layers == 1 else f'its {layers} layers are'} run again and again"
    return passed(f"{pair.k}{repeated if pair.k > layers else ''}")


def _medusa(pair: Pair) -> Judged:
    heads = pair.of_draft.heads
    if heads is None:
        return unknown("the number of Medusa heads is not stated")
    if pair.k > heads:
        return failed(
            f"{pair.k} draft tokens, {heads} trained heads: the rest would start untrained", f"Write at most {heads}"
        )
    return passed(f"{pair.k} of {heads} heads")


def draft_tokens_trained(pair: Pair) -> Judged | None:
    """The draft was trained for this length."""
    limit = limit_of(pair.method, pair.of_draft)
    if limit is None:
        return unknown("no file says which lengths were trained") if pair.method in _BLOCKS else None
    if pair.k <= limit:
        return passed(f"{pair.k} of {limit} trained")
    seen = f"{pair.k} draft tokens, {limit} were trained"
    if pair.method in _BLOCKS and pair.kind == "llamacpp":
        return None  # draft_tokens_legal says that they are cut
    if pair.method in _BLOCKS:
        return failed(f"{seen}: the rest is guessed from positions that the draft never saw", f"Write at most {limit}")
    return warned(seen, "Acceptance beyond is what the draft was not made for")
