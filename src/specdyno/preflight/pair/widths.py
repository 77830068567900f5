"""Rules on widths: hidden sizes, the fusing layer, the first attention layer, and what is shared with the target."""

from __future__ import annotations

from specdyno.plan.methods import Method
from specdyno.preflight.pair.rule import Judged, Pair, failed, passed, unknown
from specdyno.preflight.pair.traits import rows_and_columns, tensor

_OTHER_TARGET = "Use a draft that was trained for this very target"
_USUAL_CAPTURED = 3  # hidden states that a target hands out when the draft names no layers
_FUSING = frozenset({Method.EAGLE3, Method.DFLASH, Method.DSPARK})


def hidden_size(pair: Pair) -> Judged | None:
    """The hidden size that the draft was made for is the target's."""
    target = pair.of_target.hidden_size
    draft = pair.of_draft.target_hidden_size or pair.of_draft.hidden_size
    if target is None or draft is None:
        return unknown(f"hidden size of the {'target' if target is None else 'draft'} is not stated")
    if draft != target:
        return failed(f"the draft takes hidden states of {draft}, the target has {target}", _OTHER_TARGET)
    return passed(f"both {target}")


def fc_width(pair: Pair) -> Judged | None:
    """The layer that fuses the target's hidden states: its inputs and outputs."""
    if pair.method in _FUSING and not pair.of_draft.aux_hidden_states:
        return None
    if pair.draft.tensors is None:
        return unknown("the draft's tensors cannot be read")
    role, name = ("projection", "pre_projection") if pair.method is Method.GEMMA4_MTP else ("fc", "fc")
    found, expected = tensor(pair.draft, role), _expected_fc(pair)
    if found is None:
        return _without(name, packed=any(f"{name}." in one for one in pair.draft.tensors))
    size = rows_and_columns(found)
    if size is None or None in expected:
        return unknown(f"{found.name} is {list(found.shape)}; what it should be is not stated")
    words = f"{found.name} is {list(size)}"
    if size != expected:
        return failed(f"{words}; this target and these layers need {list(expected)}", _OTHER_TARGET)
    return passed(words)


def _without(name: str, *, packed: bool) -> Judged:
    if packed:
        return unknown(f"the weights of {name} are packed: their width cannot be read")
    return failed(f"the draft has no tensor {name}.weight", "Fetch the draft again, or use another method for it")


def _expected_fc(pair: Pair) -> tuple[int | None, int | None]:
    own, target = pair.of_draft.hidden_size, pair.of_target.hidden_size
    if pair.method is Method.EAGLE:
        return own, None if own is None else 2 * own
    if pair.method is Method.GEMMA4_MTP:
        return own, None if target is None else 2 * target
    captured = pair.of_draft.captured_layers
    count = len(captured) if captured else _USUAL_CAPTURED if pair.method is Method.EAGLE3 else None
    return own, None if count is None or target is None else count * target


def q_proj_width(pair: Pair) -> Judged | None:
    """EAGLE-3's first layer sees the token's embedding beside the fused hidden state: twice the hidden size."""
    size, own = rows_and_columns(tensor(pair.draft, "query")), pair.of_draft.hidden_size
    if size is None or own is None:
        return None  # latent attention has no such tensor
    if size[1] != 2 * own:
        return failed(
            f"the first layer's q_proj takes {size[1]} inputs, EAGLE-3 gives it {2 * own}",
            "This is no EAGLE-3 draft; EAGLE-1 heads take method eagle",
        )
    return passed(f"takes {size[1]} inputs")


def embeddings_shared(pair: Pair) -> Judged | None:
    """A draft without embeddings takes the target's, which then must have its width."""
    if pair.draft.tensors is None:
        return unknown("the draft's tensors cannot be read")
    own, target = pair.of_draft.hidden_size, pair.of_target.hidden_size
    if tensor(pair.draft, "embeddings") is not None:
        return passed("the draft has embeddings of its own")
    if own is None or target is None:
        return unknown("hidden sizes are not stated")
    if own != target:
        return failed(
            f"no embeddings in the draft, and the target's have width {target}, the draft {own}",
            "Ask the draft's author for the file with embed_tokens",
        )
    return passed("the target's embeddings are used")
