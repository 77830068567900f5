"""Rules on what target and draft call a token: sizes, texts, and the map from a smaller draft vocabulary."""

from __future__ import annotations

from collections.abc import Mapping

from specdyno.plan.methods import Method
from specdyno.plan.spelling import quoted
from specdyno.preflight.checkpoints.schema import Tokenizer
from specdyno.preflight.pair.rule import Judged, Pair, failed, passed, unknown, warned
from specdyno.preflight.pair.traits import ROLES, rows_and_columns, tensor

_LLAMACPP_SLACK = 128  # tokens by which the sizes may differ
_LLAMACPP_FIRST = 5  # ids below are not compared
_FOREIGN_SHARE = 0.01  # more differing tokens than this: another tokenizer, not a few special tokens
_OWN_TOKENS = frozenset({Method.DRAFT_MODEL, Method.PARD})


def vocabulary_equal(pair: Pair) -> Judged | None:
    """Sizes of the two vocabularies, as the engine compares them."""
    target, draft = pair.of_target.vocabulary, pair.of_draft.vocabulary
    if target is None or draft is None:
        return unknown(f"vocabulary of the {'target' if target is None else 'draft'} is not stated")
    if target == draft:
        return passed(f"both have {target:,} tokens")
    seen = f"the target has {target:,} tokens, the draft {draft:,}"
    if allowed := _allowed_difference(pair, abs(target - draft)):
        return passed(f"{seen}: {allowed}")
    if pair.method is Method.DSPARK and draft > target and tensor(pair.draft, "embeddings") is not None:
        return warned(f"{seen}: it has rows of its own beyond the target's")
    return failed(seen, _vocabulary_remedy(pair))


def _allowed_difference(pair: Pair, difference: int) -> str:
    if pair.method is not Method.DRAFT_MODEL:
        return ""
    if pair.kind == "llamacpp" and difference <= _LLAMACPP_SLACK:
        return f"within the {_LLAMACPP_SLACK} that llama.cpp lets pass"
    if pair.kind == "vllm" and pair.option("use_heterogeneous_vocab"):
        return "mapped to each other (use_heterogeneous_vocab)"
    return ""


def _vocabulary_remedy(pair: Pair) -> str:
    if pair.method is Method.DRAFT_MODEL and pair.kind == "vllm":
        return (
            "Use a draft whose vocab_size is the same (padded sizes differ within one family), or set "
            "options: {use_heterogeneous_vocab: true}, which needs vLLM's V1 runner"
        )
    if pair.method in _OWN_TOKENS:
        return "Use a draft of the target's own family whose vocab_size is the same (padded sizes differ within one)"
    return "Use a draft that was trained for this very target"


def tokens_equal(pair: Pair) -> Judged | None:
    """Token texts of the same ids: an engine that does not compare them drafts nonsense without a word."""
    target, draft = pair.target.tokenizer, pair.draft.tokenizer
    if draft is None and pair.method not in _OWN_TOKENS:
        return None  # takes the target's
    if target is None or draft is None:
        return unknown(f"the {'target' if target is None else 'draft'} has no tokenizer that can be read here")
    if pair.target.format is not pair.draft.format:
        return unknown("a GGUF file and a Hugging Face folder spell their tokens differently: not compared")
    if pair.kind == "llamacpp" and pair.method is Method.DRAFT_MODEL:
        return _as_llamacpp_compares(pair, target, draft)
    return _compared(pair, target, draft)


def _compared(pair: Pair, target: Tokenizer, draft: Tokenizer) -> Judged:
    if pair.option("use_heterogeneous_vocab"):
        return passed("tokens are mapped by their texts (use_heterogeneous_vocab)")
    count, example = _differences(target.ids, draft.ids)
    if count == 0:
        return passed(f"{len(target.ids):,} tokens have the same ids")
    seen = f"{count:,} of {len(target.ids):,} tokens have another id or none in the draft, e.g. {example}"
    if count > _FOREIGN_SHARE * len(target.ids):
        return failed(seen, "Use a draft with the target's tokenizer: the engine compares sizes only")
    return warned(seen, "Drafts that hold such a token are never accepted there")


def _differences(target: Mapping[str, int], draft: Mapping[str, int]) -> tuple[int, str]:
    """How many texts of either have not the same id in the other, and the first of them by the target's ids."""
    by_id = sorted(target, key=lambda text: target[text])
    differing = [text for text in by_id if draft.get(text) != target[text]]
    added = [text for text in draft if text not in target]
    if differing:
        first = differing[0]
        return len(differing) + len(added), f"{quoted(first)} is {target[first]} and {draft.get(first, 'absent')}"
    return len(added), f"{quoted(added[0])} is absent and {draft[added[0]]}" if added else ""


_SETTINGS = (
    ("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id"),
    ("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id"),
)


def _as_llamacpp_compares(pair: Pair, target: Tokenizer, draft: Tokenizer) -> Judged:
    remedy = "Use a draft with the target's tokenizer: llama.cpp would serve without speculation"
    if target.kind != draft.kind:
        return failed(f"the target's tokenizer is {target.kind}, the draft's {draft.kind}", remedy)
    for added, token in _SETTINGS:
        ours, theirs = (
            (one.config.get(added), one.config.get(token) if one.config.get(added) else None)
            for one in (pair.target, pair.draft)
        )
        if None not in (ours[0], theirs[0]) and ours != theirs:
            return failed(f"{added} and {token} are {ours} in the target and {theirs} in the draft", remedy)
    texts = {number: text for text, number in draft.ids.items()}
    differing = [
        (number, text)
        for text, number in target.ids.items()
        if number >= _LLAMACPP_FIRST and number in texts and texts[number] != text
    ]
    if not differing:
        return passed(f"{min(len(target.ids), len(draft.ids)):,} tokens have the same texts")
    number, text = min(differing)
    seen = (
        f"{len(differing):,} ids have other texts in the draft, e.g. {number}: {quoted(text)}, {quoted(texts[number])}"
    )
    return failed(seen, remedy)


def draft_vocabulary_map(pair: Pair) -> Judged | None:
    """A smaller draft vocabulary needs the tensor d2t, one entry per row."""
    draft, target = pair.of_draft.draft_vocabulary, pair.of_target.vocabulary
    if draft is None or target is None or draft == target:
        return None
    if draft > target:
        return failed(
            f"draft_vocab_size is {draft:,}, the target has {target:,} tokens",
            "Use a draft that was trained for this very target",
        )
    if pair.draft.tensors is None:
        return unknown(f"draft_vocab_size is {draft:,}; whether d2t is there cannot be read")
    found = tensor(pair.draft, "vocabulary_map")
    if found is None:
        return failed(
            f"draft_vocab_size is {draft:,} of {target:,}, and no tensor d2t maps its rows to the target's",
            "Ask the draft's author for the file with d2t; without it every draft is nonsense",
        )
    if found.shape != (draft,):
        return failed(f"d2t is {list(found.shape)}, draft_vocab_size {draft:,}", "Fetch the draft again")
    return passed(f"d2t maps {draft:,} rows into {target:,}")


def lm_head_rows(pair: Pair) -> Judged | None:
    """One row of the output head for each token that the draft can propose."""
    expected = pair.draft_vocabulary
    head = rows_and_columns(tensor(pair.draft, "head"))
    if pair.draft.tensors is None:
        return unknown("the draft's tensors cannot be read")
    if head is None:
        return _without_head(pair) if tensor(pair.draft, "head") is None else None
    if expected is None:
        return unknown("the size of the draft's vocabulary is not stated")
    if head[0] != expected:
        return failed(f"{_name(pair, 'head')} has {head[0]:,} rows, {expected:,} tokens are drafted", "Fetch it again")
    return passed(f"{head[0]:,} rows")


def _without_head(pair: Pair) -> Judged:
    draft, target = pair.of_draft.draft_vocabulary, pair.of_target.vocabulary
    if draft is not None and target is not None and draft != target:
        return failed(
            f"no lm_head in the draft, and the target's has {target:,} rows for {draft:,} drafted tokens",
            "Ask the draft's author for the file with lm_head",
        )
    return passed("the target's head is used")


def _name(pair: Pair, role: str) -> str:
    found = tensor(pair.draft, role)
    return found.name if found is not None else ROLES[role][0]
