"""Rules on what a draft was made for: the target's layers, its name, the block, the mask, the Markov head."""

from __future__ import annotations

from specdyno.plan.methods import Method
from specdyno.preflight.checkpoints.schema import Format
from specdyno.preflight.pair.rule import Judged, Pair, failed, passed, unknown, warned
from specdyno.preflight.pair.traits import rows_and_columns, tensor

_OTHER_TARGET = "Use a draft that was trained for this very target"
_LLAMACPP_EAGLE3 = 3


def aux_layer_ids(pair: Pair) -> Judged | None:
    """The layers whose hidden states the draft takes are there, in rising order."""
    captured, layers = pair.of_draft.captured_layers, pair.of_target.layers
    if captured is None:
        return None if pair.method is Method.EAGLE3 else unknown("the draft names no layers of the target")
    if layers is None:
        return unknown("the number of the target's layers is not stated")
    if beyond := [number for number in captured if not 0 <= number <= layers]:
        lowest = "" if pair.method is Method.EAGLE3 else " (counted from 1)"
        return failed(f"the draft takes layer {beyond[0]}{lowest}, the target has {layers}", _OTHER_TARGET)
    if pair.kind == "llamacpp" and pair.method is Method.EAGLE3 and len(captured) != _LLAMACPP_EAGLE3:
        return failed(f"the draft takes {len(captured)} layers, llama.cpp's EAGLE-3 exactly three", "Use vLLM for it")
    return _in_order(captured, layers)


def _in_order(captured: tuple[int, ...], layers: int) -> Judged:
    published = "Compare with the draft's published config.json"
    if len(set(captured)) < len(captured):
        return failed(f"a layer stands twice in {list(captured)}", published)
    if list(captured) != sorted(captured):
        return warned(f"the layers {list(captured)} are not rising: vLLM hands them out in rising order", published)
    return passed(f"layers {list(captured)} of {layers}")


def num_target_layers(pair: Pair) -> Judged | None:
    """The depth of the target that the draft names."""
    stated, layers = pair.of_draft.target_layers, pair.of_target.layers
    if stated is None:
        return None
    if layers is None:
        return unknown("the number of the target's layers is not stated")
    if stated != layers:
        return failed(f"made for a target of {stated} layers, this one has {layers}", _OTHER_TARGET)
    return passed(f"both {layers}")


def verifier_named(pair: Pair) -> Judged | None:
    """The speculators format names the target that the draft was trained for."""
    verifier = pair.of_draft.verifier
    if verifier is None:
        return None
    known = pair.of_draft.verifier_architectures
    ours = pair.of_target.architectures
    if known and ours and not set(known) & set(ours):
        return failed(
            f'trained for "{verifier}" ({known[0]}), the target is {ours[0]}: a draft for another target',
            _OTHER_TARGET,
        )
    names = {_last(pair.target_name), _last(str(pair.target.config.get("_name_or_path", "")))}
    if _last(verifier) in names:
        return passed(f'trained for "{verifier}"')
    return warned(
        f'trained for "{verifier}"; the target here is called "{pair.target_name}"',
        "Check that it is the same model (a quantised copy of it is)",
    )


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()


def block_size(pair: Pair) -> Judged | None:
    """The trained block is stated, so that it is known which draft lengths the draft was trained for."""
    size = pair.of_draft.block_size
    if size is None:
        return unknown("block_size is not stated: which draft lengths were trained is not known")
    if size < 2:
        return failed(f"block_size is {size}", "Compare with the draft's published config.json")
    return passed(f"{size}")


def _in_parallel(pair: Pair) -> bool:
    """Whether all positions of a draft are computed at once (P-EAGLE among the EAGLE-3 drafts)."""
    asked = bool(pair.option("parallel_drafting")) or pair.of_draft.speculators_type == "peagle"
    return pair.method is not Method.EAGLE3 or asked


def mask_hidden(pair: Pair) -> Judged | None:
    """P-EAGLE puts a trained hidden state at masked positions."""
    if not _in_parallel(pair):
        return None
    if pair.draft.tensors is None:
        return unknown("the draft's tensors cannot be read")
    if tensor(pair.draft, "mask_hidden") is None:
        return failed("no tensor mask_hidden, which parallel drafting needs", "Leave parallel_drafting out")
    return passed("mask_hidden is there")


def mask_token(pair: Pair) -> Judged | None:
    """Masked positions need a token of the draft's vocabulary."""
    if not _in_parallel(pair):
        return None
    token, vocabulary = pair.of_draft.mask_token, pair.of_draft.vocabulary
    if token is None:
        if pair.draft.format is Format.GGUF:
            return unknown("tokenizer.ggml.mask_token_id is not stated")
        return failed(
            "config.json names no mask token (dflash_config.mask_token_id, mask_token_id, dspark_noise_token_id, "
            "pard_token or ptd_token_id)",
            "Add the one that the draft was trained with",
        )
    if vocabulary is not None and not 0 <= token < vocabulary:
        return failed(f"mask token {token}, the vocabulary ends at {vocabulary - 1}", _OTHER_TARGET)
    return passed(f"token {token}")


def markov_head(pair: Pair) -> Judged | None:
    """DSpark's Markov head: rank, and both matrices of that rank."""
    if "deepseek" in (pair.of_draft.model_type or ""):
        return None  # its heads lie among the target's own layers
    rank = pair.of_draft.markov_rank
    if rank is None or rank <= 0:
        return failed(
            f"markov_rank is {rank or 'not stated'}", "This is no DSpark draft; without a Markov head use dflash"
        )
    if pair.draft.tensors is None:
        return unknown(f"markov_rank {rank}; the draft's tensors cannot be read")
    expected = {"markov_in": pair.of_draft.vocabulary, "markov_out": pair.draft_vocabulary}
    for role, rows in expected.items():
        found = tensor(pair.draft, role)
        name = "markov_w1" if role == "markov_in" else "markov_w2"
        if found is None:
            packed = any(name in one for one in pair.draft.tensors)
            return (
                unknown(f"the weights of {name} are packed: their width cannot be read")
                if packed
                else failed(f"markov_rank is {rank}, and there is no tensor {name}", "Fetch the draft again")
            )
        size = rows_and_columns(found)
        if size is not None and (size[1] != rank or (rows is not None and size[0] != rows)):
            return failed(
                f"{found.name} is {list(size)}; markov_rank is {rank} and the vocabulary {rows}",
                "Fetch the draft again",
            )
    return passed(f"rank {rank}")
