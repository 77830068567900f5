"""What a rule needs to know of a target or a draft, whichever format its files have.

Adds to the shape of a model (`checkpoints.facts`) what only drafts state, in config.json, in the speculators format or
in GGUF metadata; what no file states is None. Layer ids are numbered as vLLM captures them: id n is the output of
the n-th layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specdyno.preflight.checkpoints.facts import Shape, facts
from specdyno.preflight.checkpoints.schema import Checkpoint, Format, Tensor

_PACKED = ("I8", "U8", "I16", "I32", "U32", "I64")
# Role -> names of its tensor, Hugging Face spellings first, then GGUF's.
ROLES: Mapping[str, tuple[str, ...]] = {
    "fc": ("fc.weight", "model.fc.weight", "encoder.fc.weight"),
    "embeddings": ("embed_tokens.weight", "model.embed_tokens.weight", "token_embd.weight"),
    "head": ("lm_head.weight", "model.lm_head.weight", "output.weight"),
    "query": (
        "midlayer.self_attn.q_proj.weight",
        "model.midlayer.self_attn.q_proj.weight",
        "layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "blk.0.attn_q.weight",
    ),
    "vocabulary_map": ("d2t", "model.d2t"),
    "markov_in": ("markov_head.markov_w1.weight", "model.markov_head.markov_w1.weight", "markov_w1.weight"),
    "markov_out": ("markov_head.markov_w2.weight", "model.markov_head.markov_w2.weight", "markov_w2.weight"),
    "projection": ("pre_projection.weight", "model.pre_projection.weight", "nextn.pre_projection.weight"),
    "mask_hidden": ("mask_hidden", "model.mask_hidden"),
}


@dataclass(frozen=True, slots=True)
class Traits:
    """Sizes and names of one checkpoint. Fields that only drafts have are None for a target."""

    hidden_size: int | None = None
    layers: int | None = None
    vocabulary: int | None = None
    context_tokens: int | None = None
    model_type: str | None = None
    architectures: tuple[str, ...] = ()
    layer_kinds: tuple[str, ...] = ()
    cached_kinds: tuple[str, ...] = ()  # of the layers that keep keys and values of their own
    sections_of_rope: bool = False  # M-RoPE
    # drafts
    draft_vocabulary: int | None = None
    target_hidden_size: int | None = None
    target_layers: int | None = None
    captured_layers: tuple[int, ...] | None = None
    block_size: int | None = None
    anchor_sampled: bool | None = None
    mask_token: int | None = None
    markov_rank: int | None = None
    trained_tokens: int | None = None  # draft tokens that a speculators file names
    speculators_type: str | None = None
    verifier: str | None = None
    verifier_architectures: tuple[str, ...] = ()
    aux_hidden_states: bool = True
    heads: int | None = None  # Medusa
    ordered_embeddings: bool = False


def traits(checkpoint: Checkpoint) -> Traits:
    """The facts of a checkpoint, from its configuration or its GGUF metadata."""
    return _of_gguf(checkpoint) if checkpoint.format is Format.GGUF else _of_hugging_face(checkpoint)


def tensor(checkpoint: Checkpoint, role: str) -> Tensor | None:
    """The tensor that has a role, None where the files name none. Ask `readable` before drawing conclusions."""
    found = checkpoint.tensors or {}
    return next((found[name] for name in ROLES[role] if name in found), None)


def rows_and_columns(found: Tensor | None) -> tuple[int, int] | None:
    """Shape of a matrix of plain numbers; None for packed weights, whose shape says nothing about its width."""
    if found is None or len(found.shape) != 2 or found.dtype.upper() in _PACKED:
        return None
    return found.shape[0], found.shape[1]


def whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def at(config: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, None where a step is missing."""
    value: Any = config
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _first(config: Mapping[str, Any], *paths: str) -> Any:
    return next((value for path in paths if (value := at(config, path)) is not None), None)


def _number(config: Mapping[str, Any], *paths: str) -> int | None:
    return next((value for path in paths if (value := whole(at(config, path))) is not None), None)


def _numbers(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list | tuple) or not value or any(whole(item) is None for item in value):
        return None
    return tuple(value)


def _words(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list | tuple) else ()


def _of_hugging_face(checkpoint: Checkpoint) -> Traits:
    config = dict(checkpoint.config)
    speculators = config.get("transformer_layer_config")
    inner = speculators or at(config, "thinker_config.text_config")
    text = inner if isinstance(inner, Mapping) else checkpoint.text_config
    sizes = facts(replace(checkpoint, config=text))
    kinds, cached = _kinds(sizes)
    kind = config.get("speculators_model_type")
    verifier = _first(config, "speculators_config.verifier.name_or_path")
    return Traits(
        hidden_size=sizes.hidden_size,
        layers=sizes.layer_count,
        vocabulary=sizes.vocab_size or _number(config, "vocab_size"),
        context_tokens=sizes.context_length,
        model_type=str(text["model_type"]) if speculators and "model_type" in text else checkpoint.model_type,
        architectures=checkpoint.architectures,
        layer_kinds=kinds,
        cached_kinds=cached,
        sections_of_rope=any(
            at(text, path) is not None
            for path in ("mrope_section", "rope_scaling.mrope_section", "rope_parameters.mrope_section")
        ),
        draft_vocabulary=_number(config, "draft_vocab_size"),
        target_hidden_size=_number(config, "target_hidden_size", "backbone_hidden_size"),
        target_layers=_number(config, "num_target_layers"),
        captured_layers=_captured(config, speculators=kind is not None),
        block_size=_number(config, "dflash_config.block_size", "block_size", "dspark_block_size"),
        anchor_sampled=_anchor(config, speculators=kind is not None),
        mask_token=_number(config, *_MASKS),
        markov_rank=_number(config, "markov_rank"),
        trained_tokens=_proposed(config),
        speculators_type=kind if isinstance(kind, str) else None,
        verifier=verifier if isinstance(verifier, str) else None,
        verifier_architectures=_words(at(config, "speculators_config.verifier.architectures")),
        aux_hidden_states=at(config, "eagle_config.use_aux_hidden_state") is not False,
        heads=_number(config, "medusa_num_heads", "num_heads"),
        ordered_embeddings=config.get("use_ordered_embeddings") is True,
    )


_MASKS = ("dflash_config.mask_token_id", "mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")


def _captured(config: Mapping[str, Any], *, speculators: bool) -> tuple[int, ...] | None:
    ids = _numbers(
        _first(
            config,
            "eagle_aux_hidden_state_layer_ids",
            "aux_hidden_state_layer_ids",
            "eagle_config.eagle_aux_hidden_state_layer_ids",
        )
    )
    if ids is not None or speculators:
        return ids
    before = _numbers(_first(config, "dflash_config.target_layer_ids", "dspark_target_layer_ids", "target_layer_ids"))
    if before is None or config.get("model_type") == "deepseek_v41":  # which takes a layer's input
        return before
    return tuple(number + 1 for number in before)


def _anchor(config: Mapping[str, Any], *, speculators: bool) -> bool | None:
    """Whether the anchor's position is sampled too, so that a block of n gives n draft tokens."""
    stated = _first(config, "sample_from_anchor", "dflash_config.sample_from_anchor")
    if isinstance(stated, bool):
        return stated
    if config.get("dspark_bonus_anchor") is True:
        return False
    return False if speculators else None


def _proposed(config: Mapping[str, Any]) -> int | None:
    methods = at(config, "speculators_config.proposal_methods")
    first = methods[0] if isinstance(methods, list) and methods else None
    return _number(first, "speculative_tokens") if isinstance(first, Mapping) else None


def _of_gguf(checkpoint: Checkpoint) -> Traits:
    config = checkpoint.config
    kind = checkpoint.model_type or ""
    sizes = facts(checkpoint)
    kinds, cached = _kinds(sizes)

    def number(name: str) -> int | None:
        return whole(config.get(f"{kind}.{name}"))

    mapped = tensor(checkpoint, "vocabulary_map")
    markov = tensor(checkpoint, "markov_in")
    anchor = config.get(f"{kind}.sample_from_anchor")
    return Traits(
        hidden_size=sizes.hidden_size,
        layers=sizes.layer_count,
        vocabulary=_tokens(checkpoint) or sizes.vocab_size,
        context_tokens=sizes.context_length,
        model_type=checkpoint.model_type,
        layer_kinds=kinds,
        cached_kinds=cached,
        draft_vocabulary=mapped.shape[0] if mapped is not None and mapped.shape else None,
        target_hidden_size=number("target_hidden_size") or number("embedding_length_out"),
        captured_layers=_numbers(config.get(f"{kind}.target_layers")),
        block_size=number("block_size"),
        anchor_sampled=anchor if isinstance(anchor, bool) else None,
        mask_token=whole(config.get("tokenizer.ggml.mask_token_id")),
        markov_rank=markov.shape[1] if markov is not None and len(markov.shape) == 2 else None,
    )


def _tokens(checkpoint: Checkpoint) -> int | None:
    """llama.cpp compares the tokens that are listed; the embeddings may have more rows."""
    ids = checkpoint.tokenizer.ids if checkpoint.tokenizer is not None else {}
    return max(ids.values()) + 1 if ids else None


def _kinds(sizes: Shape) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The kinds of all layers, and of those that keep keys and values of their own."""
    layers = sizes.layers or ()
    return (
        tuple(str(layer.kind) for layer in layers),
        tuple(str(layer.kind) for layer in layers if not layer.reads_other_cache),
    )
