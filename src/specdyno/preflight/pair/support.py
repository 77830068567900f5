"""Which engine has which method, under which name and with which draft lengths: a table, one entry per pair.

vLLM and llama.cpp were read in their sources and run; SGLang and TensorRT-LLM were read in source and not run.
Engines are keyed by the value of their kind in the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specdyno.plan.methods import Method

VLLM_VERSION = "0.32.0"
VLLM = f"vLLM {VLLM_VERSION}"
LLAMACPP = "llama.cpp build 11434"
SGLANG = "SGLang 0.5.23 (read in source, not run)"
TRTLLM = "TensorRT-LLM main branch (read in source, not run)"


@dataclass(frozen=True, slots=True)
class Support:
    """One method on one engine. `supported` None: not to be known from here."""

    supported: bool | None
    name: str = ""  # the engine's own word for the method
    lengths: str = ""  # which draft lengths it takes
    runner: str = ""  # vLLM: the model runners that have it
    keys: tuple[str, ...] = ()  # further keys that `options` may hold
    note: str = ""
    source: str = ""


_SHARED_KEYS = (
    "draft_tensor_parallel_size",
    "quantization",
    "max_model_len",
    "draft_sample_method",
    "attention_backend",
)


def _vllm(  # noqa: PLR0913 (the columns of the table)
    name: str, runner: str, lengths: str, *, keys: tuple[str, ...] = _SHARED_KEYS, note: str = "", file: str = ""
) -> Support:
    return Support(True, name, lengths, runner, keys, note, f"{VLLM}, {file or 'config/speculative.py'}")


def _has(engine: str, name: str, lengths: str, *, keys: tuple[str, ...] = (), note: str = "") -> Support:
    return Support(True, name, lengths, keys=keys, note=note, source=engine)


def _lacks(engine: str, note: str = "") -> Support:
    return Support(False, note=note, source=engine)


_ANY = "any"
_VLLM_TABLE = {
    Method.NGRAM: _vllm(
        "ngram",
        "V1, V2",
        "any; an upper limit on V1, always that many on V2",
        keys=("prompt_lookup_min", "prompt_lookup_max"),
    ),
    Method.SUFFIX: _vllm(
        "suffix",
        "V1",
        "an upper limit",
        keys=("suffix_decoding_max_tree_depth", "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob"),
        note="needs the package arctic-inference",
    ),
    Method.DRAFT_MODEL: _vllm("draft_model", "V1, V2", _ANY, keys=(*_SHARED_KEYS, "use_heterogeneous_vocab")),
    Method.PARD: _vllm("draft_model with parallel_drafting", "V1", _ANY, file="config/vllm.py"),
    Method.EAGLE: _vllm("eagle", "V1, V2", _ANY),
    Method.EAGLE3: _vllm("eagle3", "V1, V2", _ANY, keys=(*_SHARED_KEYS, "parallel_drafting")),
    Method.MTP: _vllm("mtp", "V1, V2", "up to the number of MTP layers, or a multiple of it"),
    Method.GEMMA4_MTP: _vllm("mtp with an assistant as model", "V1, V2", _ANY),
    Method.DFLASH: _vllm("dflash", "V1, V2", "any; trained for block_size - 1", note="several KV groups: V2 only"),
    Method.DSPARK: _vllm("dspark", "V2", "any; trained for block_size", file="config/vllm.py"),
    Method.MEDUSA: _vllm("medusa", "V1", "up to the number of heads", file="transformers_utils/configs/medusa.py"),
}
_LLAMACPP_TABLE = {
    Method.NGRAM: _has(LLAMACPP, "ngram-simple", "an upper limit, from the lookup size up", keys=("spec-type",)),
    Method.SUFFIX: _lacks(LLAMACPP, "ngram-map-k and ngram-mod (options: {spec-type: …}) are its near relatives"),
    Method.DRAFT_MODEL: _has(LLAMACPP, "draft-simple", _ANY, keys=("spec-draft-p-min", "spec-draft-n-min")),
    Method.PARD: _lacks(LLAMACPP),
    Method.EAGLE: _lacks(LLAMACPP, "it has EAGLE-3 only"),
    Method.EAGLE3: _has(LLAMACPP, "draft-eagle3", _ANY),
    Method.MTP: _has(LLAMACPP, "draft-mtp", "up to the number of MTP layers where there are several"),
    Method.GEMMA4_MTP: _has(LLAMACPP, "draft-mtp with an assistant as draft", _ANY),
    Method.DFLASH: _has(LLAMACPP, "draft-dflash", "up to block_size - 1; more is cut"),
    Method.DSPARK: _has(LLAMACPP, "draft-dspark", "up to block_size; more is cut"),
    Method.MEDUSA: _lacks(LLAMACPP),
}
_SGLANG_TABLE = {
    Method.NGRAM: _has(SGLANG, "NGRAM", "an upper limit", note="a trie: its drafts differ from vLLM's"),
    Method.SUFFIX: _lacks(SGLANG),
    Method.DRAFT_MODEL: _has(SGLANG, "STANDALONE", _ANY, note="no data-parallel attention"),
    Method.PARD: _lacks(SGLANG),
    Method.EAGLE: _has(SGLANG, "EAGLE", _ANY),
    Method.EAGLE3: _has(SGLANG, "EAGLE3", _ANY),
    Method.MTP: _has(SGLANG, "NEXTN", _ANY),
    Method.GEMMA4_MTP: _has(SGLANG, "EAGLE, which an assistant turns into FROZEN_KV_MTP", _ANY),
    Method.DFLASH: _has(SGLANG, "DFLASH", "any; trained for block_size - 1", note="pipeline parallel size 1"),
    Method.DSPARK: _has(SGLANG, "DSPARK", "the draft's block_size only"),
    Method.MEDUSA: _lacks(SGLANG),
}
_TRTLLM_TABLE = {
    Method.NGRAM: _has(TRTLLM, "NGram", "an upper limit", keys=("max_matching_ngram_size",)),
    Method.SUFFIX: _has(TRTLLM, "SA", "an upper limit"),
    Method.DRAFT_MODEL: _has(TRTLLM, "Draft_Target", _ANY),
    Method.PARD: _has(TRTLLM, "PARD", _ANY),
    Method.EAGLE: _lacks(TRTLLM, "EAGLE-1 and EAGLE-2 heads cannot be loaded"),
    Method.EAGLE3: _has(TRTLLM, "Eagle3", _ANY),
    Method.MTP: _has(TRTLLM, "MTP", _ANY),
    Method.GEMMA4_MTP: Support(None, note="neither confirmed nor ruled out", source=TRTLLM),
    Method.DFLASH: _has(TRTLLM, "DFlash", "any; trained for block_size - 1"),
    Method.DSPARK: _has(TRTLLM, "DSpark", "the draft's block_size only"),
    Method.MEDUSA: _lacks(TRTLLM),
}
_FOREIGN = Support(None, note="an external engine's methods are known to itself only", source="the plan's engine.kind")
_SIMULATED = Support(True, name="as the plan says", lengths=_ANY, note="nothing is loaded", source="specdyno")

TABLE: Mapping[str, Mapping[Method, Support]] = {
    "vllm": _VLLM_TABLE,
    "llamacpp": _LLAMACPP_TABLE,
    "sglang": _SGLANG_TABLE,
    "trtllm": _TRTLLM_TABLE,
    "external": dict.fromkeys(Method, _FOREIGN),
    "simulated": dict.fromkeys(Method, _SIMULATED),
}
NAMES = {
    "vllm": "vLLM",
    "llamacpp": "llama.cpp",
    "sglang": "SGLang",
    "trtllm": "TensorRT-LLM",
    "external": "an external engine",
    "simulated": "the simulated engine",
}


def methods_of(engine: str) -> tuple[str, ...]:
    """Neutral names of the methods that an engine has, in the order of the table."""
    return tuple(str(method) for method, entry in TABLE[engine].items() if entry.supported)
