"""Every rule on pairs, as data: its name, its judgement, where it applies, and where it was read.

The names are stable: plans accept them, and the documentation lists them.
"""

from __future__ import annotations

from specdyno.plan.methods import Method
from specdyno.preflight.pair import gemma4, launch, layers, lengths, mtp, vocabulary, widths
from specdyno.preflight.pair.rule import ELSEWHERE, Rule
from specdyno.preflight.pair.support import LLAMACPP, VLLM

SUPPORTED = "method_supported"  # where it fails no other rule is asked
READABLE = "checkpoint_readable"  # no entry below: whether files can be read at all
_FILES = {ELSEWHERE: "the files themselves"}
_COMPARED = "common/speculative.cpp, common_speculative_are_compatible"
_HEADS = frozenset({Method.EAGLE, Method.EAGLE3, Method.DFLASH, Method.DSPARK})
_BLOCKS = frozenset({Method.DFLASH, Method.DSPARK})
_MODELS = frozenset({Method.DRAFT_MODEL, Method.PARD})
_EAGLE3 = frozenset({Method.EAGLE3})
_MTP = frozenset({Method.MTP})
_GEMMA4 = frozenset({Method.GEMMA4_MTP})
_NOTHING: frozenset[str] = frozenset()
_DRAFT = frozenset({"draft"})


def _of(vllm: str = "", llamacpp: str = "", *, files: bool = True) -> dict[str, str]:
    """Sources by engine; `files`: what stands in the files holds for every other engine too."""
    found = dict(_FILES) if files else {}
    found |= {"vllm": f"{VLLM}, {vllm}"} if vllm else {}
    return found | ({"llamacpp": f"{LLAMACPP}, {llamacpp}"} if llamacpp else {})


RULES: tuple[Rule, ...] = (
    Rule(
        SUPPORTED,
        launch.method_supported,
        {ELSEWHERE: ""},  # the table has a source per entry
        reads=_NOTHING,
        of_version=True,
        about="method",
    ),
    Rule(
        "file_format",
        launch.file_format,
        {
            "llamacpp": f"{LLAMACPP}, src/llama-model-loader.cpp",
            "vllm": f"{VLLM}, model_executor/layers/quantization (no GGUF among its formats)",
        },
        of_version=True,
    ),
    Rule(
        "path_words",
        launch.path_words,
        _of("config/speculative.py, __post_init__", files=False),
        frozenset(Method) - {Method.NGRAM, Method.SUFFIX},
        _NOTHING,
        of_version=True,
    ),
    Rule(
        "method_derived",
        launch.method_derived,
        _of("config/speculative.py, __post_init__", files=False),
        _MODELS,
        _DRAFT,
        of_version=True,
        about="method",
    ),
    Rule(
        "architecture_known",
        launch.architecture_known,
        _of("model_executor/models/registry.py", "src/llama-arch.cpp, src/models", files=False),
        _HEADS | {Method.MEDUSA},
        of_version=True,
    ),
    Rule(
        "hidden_states_handed_out",
        launch.hidden_states_handed_out,
        _of("model_executor/models/interfaces.py, SupportsEagle3", files=False),
        frozenset({Method.EAGLE3, Method.DFLASH, Method.DSPARK}),
        of_version=True,
        about="method",
    ),
    Rule(
        "runner_available",
        launch.runner_available,
        _of("config/vllm.py, use_v2_model_runner", files=False),
        reads=_DRAFT,
        of_version=True,
        about="method",
    ),
    Rule(
        "right_on_cpu",
        launch.right_on_cpu,
        _of("its CPU build's rms_norm", files=False),
        frozenset({Method.DFLASH}),
        _DRAFT,
        of_version=True,
        about="method",
    ),
    Rule(
        "package_present",
        launch.package_present,
        _of("config/speculative.py, _validate_suffix_decoding", files=False),
        frozenset({Method.SUFFIX}),
        _NOTHING,
        of_version=True,
        about="method",
    ),
    Rule(
        "draft_tensor_parallel",
        launch.draft_tensor_parallel,
        _of("config/speculative.py, _verify_and_get_draft_tp", files=False),
        reads=_NOTHING,
        of_version=True,
        about="options",
    ),
    Rule(
        "mrope", launch.mrope, _of("v1/spec_decode/llm_base_proposer.py", files=False), _MODELS, _DRAFT, of_version=True
    ),
    Rule("verifier_named", layers.verifier_named, _FILES, _HEADS),
    Rule(
        "vocabulary_equal",
        vocabulary.vocabulary_equal,
        _of("config/speculative.py, verify_equal_vocab_size_if_draft_model", _COMPARED),
        _HEADS | _MODELS | _GEMMA4,
    ),
    Rule(
        "tokens_equal",
        vocabulary.tokens_equal,
        _of("config/speculative.py (which compares sizes only)", _COMPARED),
        _HEADS | _MODELS | _GEMMA4,
    ),
    Rule("hidden_size", widths.hidden_size, _FILES, _HEADS | _GEMMA4 | {Method.MEDUSA}),
    Rule("num_target_layers", layers.num_target_layers, _FILES, _BLOCKS),
    Rule(
        "aux_layer_ids",
        layers.aux_layer_ids,
        _of("v1/worker/gpu_model_runner.py, _get_eagle3_aux_layers_from_config", "src/models/eagle3.cpp, dflash.cpp"),
        frozenset({Method.EAGLE3, Method.DFLASH, Method.DSPARK}),
    ),
    Rule(
        "fc_width",
        widths.fc_width,
        _of(
            "model_executor/models/llama_eagle3.py, qwen3_dflash.py, gemma4_mtp.py", "src/models/eagle3.cpp, dflash.cpp"
        ),
        _HEADS | _GEMMA4,
    ),
    Rule(
        "q_proj_width",
        widths.q_proj_width,
        _of("model_executor/models/llama_eagle3.py", "src/models/eagle3.cpp"),
        _EAGLE3,
    ),
    Rule(
        "embeddings_shared",
        widths.embeddings_shared,
        _of("v1/spec_decode/llm_base_proposer.py, _maybe_share_embeddings", "src/models/eagle3.cpp, dflash.cpp"),
        _HEADS,
    ),
    Rule(
        "lm_head_rows",
        vocabulary.lm_head_rows,
        _of("model_executor/models/llama_eagle3.py, qwen3_dspark.py", "src/models/eagle3.cpp, dflash.cpp"),
        _HEADS,
    ),
    Rule(
        "draft_vocabulary_map",
        vocabulary.draft_vocabulary_map,
        _of("model_executor/models/llama_eagle3.py, qwen3_dspark.py", "src/models/eagle3.cpp, dflash.cpp"),
        frozenset({Method.EAGLE3, Method.DFLASH, Method.DSPARK}),
    ),
    Rule(
        "mask_token",
        layers.mask_token,
        _of("v1/spec_decode/llm_base_proposer.py, _init_parallel_drafting_params", "common/speculative.cpp"),
        _BLOCKS | {Method.PARD, Method.EAGLE3},
        _DRAFT,
    ),
    Rule("mask_hidden", layers.mask_hidden, _of("model_executor/models/llama_eagle3.py", files=False), _EAGLE3, _DRAFT),
    Rule("block_size", layers.block_size, _FILES, _BLOCKS, _DRAFT),
    Rule(
        "markov_head",
        layers.markov_head,
        _of("model_executor/models/qwen3_dspark.py", "src/models/dflash.cpp"),
        frozenset({Method.DSPARK}),
        _DRAFT,
    ),
    Rule(
        "mtp_target",
        mtp.mtp_target,
        _of("config/speculative.py, hf_config_override", "src/llama-context.cpp"),
        _MTP,
        _DRAFT,
        about="method",
    ),
    Rule("mtp_tensors_present", mtp.mtp_tensors_present, _FILES, _MTP, _DRAFT, about="method"),
    Rule("assistant_known", gemma4.assistant_known, _of("config/speculative.py", "src/llama-arch.cpp"), _GEMMA4),
    Rule(
        "assistant_layers",
        gemma4.assistant_layers,
        _of("v1/spec_decode/gemma4.py, _setup_gemma4_kv_sharing", "src/models/gemma4-assistant.cpp"),
        _GEMMA4,
    ),
    Rule(
        "assistant_heads",
        gemma4.assistant_heads,
        _of("v1/spec_decode/gemma4.py", "src/models/gemma4-assistant.cpp"),
        _GEMMA4,
    ),
    Rule(
        "ordered_embeddings",
        gemma4.ordered_embeddings,
        _of("v1/spec_decode/gemma4.py, _setup_centroids_cuda_graphs", files=False),
        _GEMMA4,
        _DRAFT,
        of_version=True,
    ),
    Rule("context_length", launch.context_length, _of("config/speculative.py"), _MODELS),
    Rule(
        "draft_tokens_legal",
        lengths.draft_tokens_legal,
        _of("config/speculative.py", "common/speculative.cpp"),
        frozenset(Method) - {Method.NGRAM, Method.SUFFIX},
        _DRAFT,
        of_version=True,
        per_length=True,
        about="draft_tokens",
    ),
    Rule(
        "draft_tokens_trained",
        lengths.draft_tokens_trained,
        _FILES,
        _HEADS,
        _DRAFT,
        per_length=True,
        about="draft_tokens",
    ),
)
NAMES = frozenset({READABLE, *(rule.name for rule in RULES)})
