"""Good pairs pass every rule; each rule speaks up after one small edit of a good pair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.preflight.small_pairs import PAIRS, TOKENS, H, SmallPair, graded, interpreter, llama, pair, plain, texts

from specdyno.plan.methods import Method
from specdyno.preflight.pair.rules import RULES
from specdyno.preflight.schema import Grade

Edit = Callable[[SmallPair], object]


@pytest.mark.parametrize("name", PAIRS)
def test_a_good_pair_passes(name: str, tmp_path: Path) -> None:
    checks = pair(name).checks(tmp_path)
    assert graded(checks, Grade.FAIL) == {}
    assert graded(checks, Grade.PASS)
    assert "method_supported" in checks


def _set(**config: object) -> Edit:
    return lambda one: one.draft.config.update(config)


def _tensor(name: str, shape: tuple[int, ...] | None, dtype: str = "BF16") -> Edit:
    def edit(one: SmallPair) -> None:
        if shape is None:
            del one.draft.tensors[name]
        else:
            one.draft.tensors[name] = (dtype, shape)

    return edit


def _verifier(**keys: object) -> Edit:
    return lambda one: one.draft.config["speculators_config"]["verifier"].update(keys)


def _both(*edits: Edit) -> Edit:
    return lambda one: [edit(one) for edit in edits]


def _text(**config: object) -> Edit:
    return lambda one: one.draft.config["text_config"].update(config)


def _metadata(**keys: object) -> Edit:
    return lambda one: one.draft.keys.update({f"{{arch}}.{key}": value for key, value in keys.items()})


def _without_mtp_tensors(one: SmallPair) -> None:
    one.target.tensors = {name: shape for name, shape in one.target.tensors.items() if "mtp" not in name}


def _without_nextn(one: SmallPair) -> None:
    one.target.tensors = {name: shape for name, shape in one.target.tensors.items() if "nextn" not in name}


def _named(folder: str) -> Edit:
    return lambda one: setattr(one.draft or one.target, "folder", folder)


def _is(**attributes: object) -> Edit:
    return lambda one: [setattr(one, name, value) for name, value in attributes.items()]


def _tokens(*changed: tuple[int, str], kind: str | None = None) -> Edit:
    def edit(one: SmallPair) -> None:
        for number, text in changed:
            one.draft.tokens[number] = text
        if kind is not None:
            one.draft.keys["tokenizer.ggml.model"] = kind

    return edit


F, W, U = Grade.FAIL, Grade.WARN, Grade.UNKNOWN
FAULTS: list[tuple[str, str, Edit, Grade, str]] = [
    # rule, good pair, edit, grade, words of what was seen
    ("method_supported", "gguf eagle3", _is(method=Method.EAGLE), F, "llama.cpp has no eagle"),
    ("method_supported", "medusa", _is(kind="sglang"), F, "SGLang has no medusa"),
    ("method_supported", "gemma4_mtp", _is(kind="trtllm"), U, "neither confirmed nor ruled out"),
    ("method_supported", "eagle3", _is(kind="external"), U, "external engine's methods are known to itself"),
    ("file_format", "eagle3", _is(kind="llamacpp"), F, "Hugging Face folder, llama.cpp reads GGUF"),
    ("file_format", "gguf eagle3", _is(kind="vllm"), F, "GGUF file, which vLLM does not load"),
    ("path_words", "draft_model", _named("my-EAGLE-1b"), F, "make the method eagle"),
    ("path_words", "draft_model", _named("smol_eagle3"), F, "make the method eagle3"),
    ("path_words", "gemma4_mtp", _named("dflash-runs/assistant"), F, "make the method dflash"),
    ("path_words", "mtp", _named("dspark_target"), F, "make the method dspark"),
    ("method_derived", "draft_model", _set(model_type="qwen3_5"), F, "mtp"),
    ("method_derived", "draft_model", _set(architectures=["Qwen3DSparkModel"]), F, "dspark"),
    ("method_derived", "draft_model", _set(model_type="medusa"), F, "medusa"),
    ("architecture_known", "eagle3", _set(architectures=["MambaForCausalLM"]), F, "no eagle3 draft Eagle3Mamba"),
    ("architecture_known", "eagle", _set(architectures=["Qwen3ForCausalLM"]), F, "no eagle draft EagleQwen3"),
    ("architecture_known", "dspark", _set(architectures=["DFlashDraftModel"]), F, "no dspark draft DFlash"),
    ("architecture_known", "speculators", _set(speculators_model_type="mlp"), F, "mlp of llama"),
    ("architecture_known", "gguf eagle3", lambda one: setattr(one.draft, "architecture", "llama"), F, '"llama"'),
    ("architecture_known", "gguf dspark", _is(method=Method.DFLASH, lengths=[6]), F, "has a Markov head"),
    ("hidden_states_handed_out", "eagle3", _is(target=llama(architectures=["MambaForCausalLM"])), F, "hands out no"),
    ("hidden_states_handed_out", "eagle3", _is(target=llama(architectures=["OwnForCausalLM"])), U, "Transformers"),
    ("runner_available", "dspark", _is(engine={"env": {"VLLM_USE_V2_MODEL_RUNNER": "0"}}), F, "needs the V2 runner"),
    ("runner_available", "suffix", _is(engine={"env": {"VLLM_USE_V2_MODEL_RUNNER": "1"}}), F, "only the V1 runner"),
    ("runner_available", "dspark", _is(), W, "needs the V2 runner"),
    ("package_present", "suffix", _is(), U, "cannot be seen"),
    ("draft_tensor_parallel", "eagle3", _is(options={"tensor_parallel_size": 1}), F, "refused by vLLM"),
    ("draft_tensor_parallel", "eagle3", _is(options={"draft-tensor-parallel-size": 2}), F, "the target's 1"),
    (
        "draft_tensor_parallel",
        "draft_model",
        _is(options={"draft_tensor_parallel_size": 1}, engine={"args": {"tensor-parallel-size": 2}}),
        W,
        "V1 runner refuses",
    ),
    ("mrope", "pard", _set(rope_parameters={"mrope_section": [1, 1, 2]}), F, "M-RoPE"),
    ("mrope", "draft_model", _set(rope_scaling={"mrope_section": [1, 1, 2]}), W, "M-RoPE"),
    ("verifier_named", "speculators", _verifier(architectures=["Qwen3ForCausalLM"]), F, "a draft for another target"),
    ("verifier_named", "speculators", _verifier(name_or_path="org/other"), W, 'trained for "org/other"'),
    ("vocabulary_equal", "draft_model", _set(vocab_size=48), F, "32 tokens, the draft 48"),
    ("vocabulary_equal", "eagle3", _set(vocab_size=48), F, "32 tokens, the draft 48"),
    ("vocabulary_equal", "dspark", _set(vocab_size=48), F, "32 tokens, the draft 48"),
    (
        "vocabulary_equal",
        "dspark",
        _both(_set(vocab_size=48), _tensor("embed_tokens.weight", (48, H))),
        W,
        "rows of its own",
    ),
    ("vocabulary_equal", "gguf draft_model", lambda one: setattr(one.draft, "tokens", texts(200)), F, "draft 200"),
    ("tokens_equal", "draft_model", _tokens((5, "t6"), (6, "t5")), F, "2 of 32 tokens have another id"),
    ("tokens_equal", "draft_model", lambda one: setattr(one.draft, "tokens", None), U, "draft has no tokenizer"),
    ("tokens_equal", "gguf draft_model", _tokens((7, "other")), F, '7: "t7", "other"'),
    ("tokens_equal", "gguf draft_model", _tokens(kind="llama"), F, "tokenizer is gpt2, the draft's llama"),
    (
        "tokens_equal",
        "gguf draft_model",
        lambda one: one.draft.keys.update({"tokenizer.ggml.add_bos_token": True}),
        F,
        "add_bos_token",
    ),
    ("hidden_size", "eagle3", _set(target_hidden_size=16), F, "of 16, the target has 8"),
    ("hidden_size", "gemma4_mtp", _set(backbone_hidden_size=16), F, "of 16, the target has 8"),
    ("hidden_size", "medusa", _set(hidden_size=16), F, "of 16, the target has 8"),
    ("hidden_size", "gguf eagle3", _metadata(target_hidden_size=16), F, "of 16, the target has 8"),
    ("num_target_layers", "dflash", _set(num_target_layers=36), F, "36 layers, this one has 6"),
    ("aux_layer_ids", "dflash", _set(dflash_config={"mask_token_id": 0, "target_layer_ids": [1, 3, 6]}), F, "layer 7"),
    ("aux_layer_ids", "eagle3", _set(eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 18, 33]}), F, "layer 18"),
    ("aux_layer_ids", "dspark", _set(target_layer_ids=[3, 1, 5]), W, "not rising"),
    ("aux_layer_ids", "dspark", _set(target_layer_ids=[1, 1, 5]), F, "stands twice"),
    ("aux_layer_ids", "gguf eagle3", _metadata(target_layers=[2, 3]), F, "exactly three"),
    ("fc_width", "eagle3", _tensor("fc.weight", (H, 2 * H)), F, "need [8, 24]"),
    ("fc_width", "eagle", _tensor("fc.weight", (H, 3 * H)), F, "need [8, 16]"),
    ("fc_width", "dflash", _tensor("fc.weight", None), F, "no tensor fc.weight"),
    ("fc_width", "gemma4_mtp", _tensor("pre_projection.weight", (4, H)), F, "need [4, 16]"),
    ("fc_width", "gguf dflash", lambda one: one.draft.tensors.update({"fc.weight": (H, H)}), F, "need [8, 24]"),
    (
        "fc_width",
        "eagle3",
        _both(_tensor("fc.weight", None), _tensor("fc.weight_packed", (H, 3), "I32")),
        U,
        "packed",
    ),
    ("q_proj_width", "eagle3", _tensor("midlayer.self_attn.q_proj.weight", (H, H)), F, "takes 8 inputs"),
    ("embeddings_shared", "dflash", _set(hidden_size=4, target_hidden_size=H), F, "have width 8, the draft 4"),
    ("lm_head_rows", "eagle3", _tensor("lm_head.weight", (12, H)), F, "12 rows, 16 tokens are drafted"),
    ("lm_head_rows", "eagle3", _tensor("lm_head.weight", None), F, "no lm_head"),
    ("draft_vocabulary_map", "eagle3", _tensor("d2t", None), F, "no tensor d2t"),
    ("draft_vocabulary_map", "eagle3", _tensor("d2t", (12,), "I64"), F, "d2t is [12]"),
    ("draft_vocabulary_map", "eagle3", _set(draft_vocab_size=64), F, "draft_vocab_size is 64"),
    ("mask_token", "dflash", _set(dflash_config={"target_layer_ids": [1, 3, 5]}), F, "names no mask token"),
    ("mask_token", "dspark", _set(mask_token_id=TOKENS), F, "mask token 32"),
    ("mask_token", "pard", lambda one: one.draft.config.pop("pard_token"), F, "names no mask token"),
    ("mask_token", "eagle3", _is(options={"parallel_drafting": True}), F, "names no mask token"),
    ("mask_hidden", "eagle3", _is(options={"parallel_drafting": True}), F, "no tensor mask_hidden"),
    ("block_size", "dflash", lambda one: one.draft.config.pop("block_size"), U, "not stated"),
    ("block_size", "dspark", _set(block_size=1), F, "block_size is 1"),
    ("markov_head", "dspark", _set(markov_rank=0), F, "markov_rank is not stated"),
    ("markov_head", "dspark", _set(markov_rank=4), F, "markov_rank is 4"),
    ("markov_head", "dspark", _tensor("markov_head.markov_w2.weight", None), F, "no tensor markov_w2"),
    ("mtp_target", "mtp", _is(target=llama()), F, "no target that vLLM knows MTP layers of"),
    ("mtp_target", "mtp", lambda one: one.target.config.update(num_nextn_predict_layers=0), F, "announces no MTP"),
    ("mtp_target", "mtp", lambda one: one.target.config.update(model_type="deepseek_v41"), F, "of the usual kind"),
    ("mtp_target", "gguf mtp", lambda one: one.target.keys.pop("{arch}.nextn_predict_layers"), F, "announces no MTP"),
    ("mtp_tensors_present", "mtp", _without_mtp_tensors, F, "announces 1 MTP layer, and none of 1 tensors"),
    ("mtp_tensors_present", "gguf mtp", _without_nextn, F, "announces 1 MTP layer, and none of 1 tensors"),
    ("assistant_known", "gemma4_mtp", _set(model_type="gemma4_text"), F, "draft's model type is gemma4_text"),
    ("assistant_known", "gemma4_mtp", _is(target=llama()), F, "target's model type is llama"),
    ("assistant_layers", "gemma4_mtp", _text(layer_types=["chunked_attention"] * 2), F, "chunked_attention"),
    ("assistant_heads", "gemma4_mtp", _text(head_dim=8), F, "head_dim is 8 in the assistant and 4"),
    ("ordered_embeddings", "gemma4_mtp", _set(use_ordered_embeddings=True), U, "needs a GPU"),
    ("context_length", "draft_model", _set(max_position_embeddings=16), W, "16 tokens, 64 are planned"),
    ("draft_tokens_legal", "medusa", _is(lengths=[5]), F, "5 draft tokens, 4 trained heads"),
    (
        "draft_tokens_legal",
        "mtp",
        _both(_is(lengths=[3]), lambda one: one.target.config.update(num_nextn_predict_layers=2)),
        F,
        "3 draft tokens are no multiple of 2 MTP layers",
    ),
    ("draft_tokens_legal", "gguf dflash", _is(lengths=[7]), F, "llama.cpp cuts them to 6"),
    ("draft_tokens_legal", "gguf dspark", _is(lengths=[8]), F, "llama.cpp cuts them to 7"),
    ("draft_tokens_legal", "dspark", _is(kind="sglang", lengths=[5]), F, "trained block of 7 only"),
    ("draft_tokens_trained", "dflash", _is(lengths=[8]), F, "8 draft tokens, 7 were trained"),
    ("draft_tokens_trained", "dspark", _is(lengths=[8]), F, "8 draft tokens, 7 were trained"),
    ("draft_tokens_trained", "speculators", _is(lengths=[5]), W, "5 draft tokens, 3 were trained"),
    ("draft_tokens_trained", "dflash", lambda one: one.draft.config.pop("block_size"), U, "no file says"),
]


@pytest.mark.parametrize(
    ("rule", "name", "edit", "grade", "words"), FAULTS, ids=lambda part: "edit" if callable(part) else str(part)
)
def test_one_edit_is_found_by_its_rule(
    rule: str, name: str, edit: Edit, grade: Grade, words: str, tmp_path: Path
) -> None:
    one = pair(name)
    edit(one)
    check = one.checks(tmp_path)[rule]
    assert (check.grade, words in check.seen) == (grade, True), check
    assert check.remedy or grade is not Grade.FAIL, "a failure says what to do"
    assert check.place.startswith("candidates[0].")
    assert check.source


def test_every_rule_is_shown_to_speak_up() -> None:
    elsewhere = {"right_on_cpu"}  # needs an installation: test_pair_engines
    assert {rule.name for rule in RULES} - {rule for rule, *_ in FAULTS} == elsewhere


def test_a_draft_for_another_target_fails_by_several_facts(tmp_path: Path) -> None:
    one = pair("eagle3")
    one.target = llama(hidden_size=16, vocab_size=64, num_hidden_layers=2)
    failed = graded(one.checks(tmp_path), Grade.FAIL)
    assert {"hidden_size", "vocabulary_equal", "fc_width", "embeddings_shared"} <= failed.keys()


def test_what_llamacpp_cuts_is_told_by_one_rule(tmp_path: Path) -> None:
    one = pair("gguf dflash")
    one.lengths = [7]
    assert graded(one.checks(tmp_path), Grade.FAIL).keys() == {"draft_tokens_legal"}


def test_a_few_differing_special_tokens_are_a_warning(tmp_path: Path) -> None:
    one = pair("draft_model")
    many = texts(1_000)
    one.target, one.draft = llama(vocab_size=1_000), llama(vocab_size=1_000, num_hidden_layers=2)
    one.target.tokens, one.draft.tokens, one.draft.folder = many, [*many[:-1], "<|tool|>"], "draft"
    check = one.checks(tmp_path)["tokens_equal"]
    assert check.grade is Grade.WARN
    assert "2 of 1,000 tokens" in check.seen
    assert '"t999" is 999 and absent' in check.seen


def test_a_map_between_vocabularies_lifts_the_size_rule(tmp_path: Path) -> None:
    one = pair("draft_model")
    one.draft.config["vocab_size"], one.options = 48, {"use_heterogeneous_vocab": True}
    checks = one.checks(tmp_path)
    assert checks["vocabulary_equal"].grade is Grade.PASS
    assert checks["tokens_equal"].grade is Grade.PASS


def test_llamacpp_lets_sizes_within_128_pass(tmp_path: Path) -> None:
    one = pair("gguf draft_model")
    one.draft.tokens = texts(TOKENS + 128)
    assert one.checks(tmp_path / "within")["vocabulary_equal"].grade is Grade.PASS
    one.draft.tokens = texts(TOKENS + 129)
    assert one.checks(tmp_path / "beyond")["vocabulary_equal"].grade is Grade.FAIL


def test_llamacpp_compares_texts_from_id_five_on(tmp_path: Path) -> None:
    one = pair("gguf draft_model")
    one.draft.tokens[4] = "other"
    assert one.checks(tmp_path / "four")["tokens_equal"].grade is Grade.PASS
    one.draft.tokens[5] = "another"
    assert one.checks(tmp_path / "five")["tokens_equal"].grade is Grade.FAIL


def test_drafts_of_quantised_weights_pass_by_their_dtype(tmp_path: Path) -> None:
    """Packed weights have another width than the layer: no conclusion is drawn from it."""
    one = pair("eagle3")
    one.draft.tensors["fc.weight"] = ("I32", (H, 3))
    assert one.checks(tmp_path)["fc_width"].grade is Grade.UNKNOWN


def test_mtp_layers_counted_among_the_targets_own_are_found(tmp_path: Path) -> None:
    """DeepSeek's way: the layer behind the last."""
    one = pair("mtp")
    one.target.config.update(architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3")
    one.target.tensors = plain(model__embed_tokens__weight=(TOKENS, H), model__layers__5__mlp__weight=(H, H))
    assert one.checks(tmp_path / "without")["mtp_tensors_present"].grade is Grade.FAIL
    one.target.tensors |= plain(model__layers__6__eh_proj__weight=(H, 2 * H))
    assert one.checks(tmp_path / "with")["mtp_tensors_present"].grade is Grade.PASS


def test_a_nemotron_without_mtp_layers_stays_a_draft_model(tmp_path: Path) -> None:
    one = pair("draft_model")
    one.draft.config["model_type"] = "nemotron_h"
    assert one.checks(tmp_path / "without")["method_derived"].grade is Grade.PASS
    one.draft.config["num_nextn_predict_layers"] = 1
    assert one.checks(tmp_path / "with")["method_derived"].grade is Grade.FAIL


def test_an_external_engine_is_checked_by_the_files_alone(tmp_path: Path) -> None:
    one = pair("eagle3")
    one.kind = "external"
    checks = one.checks(tmp_path)
    assert graded(checks, Grade.FAIL) == {}
    assert {"hidden_size", "fc_width", "draft_vocabulary_map"} <= checks.keys()
    assert not {"architecture_known", "path_words", "runner_available"} & checks.keys()


def test_the_simulated_engine_loads_nothing_and_is_not_checked(tmp_path: Path) -> None:
    one = pair("eagle3")
    one.kind = "simulated"
    assert one.checks(tmp_path) == {}


def test_a_venv_without_suffix_decoding_fails_where_its_files_are_seen(tmp_path: Path) -> None:
    one = pair("suffix")
    one.engine = {"command": [interpreter(tmp_path, "vllm-0.32.0"), "-m", "vllm"]}
    assert one.checks(tmp_path)["package_present"].grade is Grade.FAIL
    interpreter(tmp_path, "arctic_inference-0.1.1")
    assert one.checks(tmp_path)["package_present"].grade is Grade.PASS
