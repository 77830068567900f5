"""Which layers keep what, by the configuration; what is not known is refused with its reason."""

from __future__ import annotations

import pytest

from specdyno.plan.schema import Arm, Method, Role
from specdyno.preflight.checkpoints.schema import Checkpoint, Format
from specdyno.preflight.memory.drafts import draft_layers
from specdyno.preflight.memory.layers import Layer, LayerKind, NotModelledError, layers_of

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "max_position_embeddings": 131_072,
}  # fmt: skip
FULL = Layer(LayerKind.FULL, 8, 128, 128)
DEEPSEEK = {
    **LLAMA, "model_type": "deepseek_v3", "num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "num_nextn_predict_layers": 1,
}  # fmt: skip
NEXT = {
    "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "num_nextn_predict_layers": 1,
}  # fmt: skip


def checkpoint(config, **changed):
    return Checkpoint("org/model", Format.HUGGING_FACE, {**config, **changed})


def kinds(config, **changed):
    return [layer.kind for layer in layers_of(checkpoint(config, **changed))]


def drafted(method, *, target=None, draft=None, k=3, source="org/draft"):
    arm = Arm(name="one", role=Role.CANDIDATE, method=method, draft=source if draft else None, draft_tokens=k)
    whole = checkpoint(target or LLAMA)
    return draft_layers(arm, whole, checkpoint(draft) if draft else None, target_layers=layers_of(whole))


def test_grouped_queries():
    assert layers_of(checkpoint(LLAMA)) == (FULL,) * 32


def test_a_wrapper_s_language_model_counts():
    whole = Checkpoint("org/model", Format.HUGGING_FACE, {"model_type": "vision", "text_config": LLAMA})
    assert layers_of(whole) == (FULL,) * 32


def test_latent_attention_keeps_one_vector():
    assert layers_of(checkpoint(DEEPSEEK)) == (Layer(LayerKind.LATENT, 1, 576, 0),) * 61


def test_one_full_layer_in_six():
    found = kinds(LLAMA, model_type="gemma3_text", sliding_window=1024, num_hidden_layers=12)
    assert [place for place, kind in enumerate(found) if kind is LayerKind.FULL] == [5, 11]
    assert found.count(LayerKind.SLIDING) == 10


def test_listed_layers_are_taken_as_listed():
    listed = ["sliding_attention", "full_attention", "chunked_attention"]
    found = layers_of(
        checkpoint(LLAMA, num_hidden_layers=3, layer_types=listed, sliding_window=512, attention_chunk_size=8192)
    )
    assert [(layer.kind, layer.window_tokens) for layer in found] == [
        (LayerKind.SLIDING, 512), (LayerKind.FULL, None), (LayerKind.CHUNKED, 8192),
    ]  # fmt: skip


def test_a_window_that_is_switched_off_binds_nothing():
    assert set(kinds(LLAMA, model_type="qwen2", sliding_window=4096, use_sliding_window=False)) == {LayerKind.FULL}


def test_a_hybrid_keeps_a_state_in_three_layers_of_four():
    found = layers_of(checkpoint(NEXT))
    assert [layer.kind for layer in found].count(LayerKind.FULL) == 12
    # Worked as vLLM's gated_delta_net_state_shape: 2 x 16 x 128 + 32 x 128 wide, 32 heads of 128 x 128.
    assert found[0] == Layer(LayerKind.STATE, conv_width=8192, conv_kernel=4, state_heads=32, state_dim=16_384)


def test_mamba_2_keeps_its_state():
    sizes = {"mamba_num_heads": 64, "mamba_head_dim": 80, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4}
    found = layers_of(checkpoint(LLAMA, num_hidden_layers=4, hybrid_override_pattern="M-*E", **sizes))
    assert found == (
        Layer(LayerKind.STATE, conv_width=64 * 80 + 2 * 8 * 128, conv_kernel=4, state_heads=64, state_dim=80 * 128),
        FULL,
    )  # feed-forward and expert layers keep nothing


def test_layers_that_read_another_cache_keep_nothing():
    assert len(layers_of(checkpoint(LLAMA, num_kv_shared_layers=12))) == 20


def test_gemma_4_has_wider_heads_in_its_full_layers():
    listed = ["sliding_attention", "full_attention"]
    shape = {
        "model_type": "gemma4_text", "num_hidden_layers": 2, "layer_types": listed, "sliding_window": 512,
        "head_dim": 256, "num_key_value_heads": 4, "num_global_key_value_heads": 2,
    }  # fmt: skip
    slides, full = layers_of(checkpoint(LLAMA, **shape, global_head_dim=512, attention_k_eq_v=True))
    assert (slides.kv_heads, slides.key_dim, full.kv_heads, full.key_dim) == (4, 256, 2, 512)
    _, full = layers_of(checkpoint(LLAMA, **shape, attention_k_eq_v=False))
    assert (full.kv_heads, full.key_dim) == (4, 512)  # transformers' default where nothing is stated
    _, full = layers_of(checkpoint(LLAMA, **shape, per_layer_config={"1": {"head_dim": 128}}))
    assert full.key_dim == 128
    _, full = layers_of(checkpoint(LLAMA, **shape, per_layer_config={}))
    assert full.key_dim == 256


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"index_head_dim": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64}, "index"),
        ({"compress_ratios": [4, 128]}, "compressed layer by layer"),
        ({"layer_types": ["full_attention", "quantum_attention"] * 16}, "not known here"),
        ({"model_type": "novel", "sliding_window": 1024}, "not which layers keep to it"),
        ({"layer_types": ["hybrid"] * 32}, "not known here"),
        ({"layer_types": ["mamba"] * 32}, "recurrent layers"),
        ({"num_hidden_layers": None}, "number of layers"),
        ({"num_attention_heads": None, "num_key_value_heads": None}, "key-value heads"),
        ({"layer_types": ["sliding_attention"] * 32}, "window"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim"),
    ],
)
def test_what_is_not_known_is_refused_with_its_reason(changed, reason):
    with pytest.raises(NotModelledError, match=reason):
        layers_of(checkpoint(LLAMA, **changed))


def test_methods_without_a_cache_add_nothing():
    for method in (Method.NGRAM, Method.SUFFIX, Method.MEDUSA, Method.GEMMA4_MTP):
        assert drafted(method, draft=LLAMA) == ()


def test_a_draft_model_brings_its_own_cache():
    small = {**LLAMA, "num_hidden_layers": 16, "num_key_value_heads": 4, "head_dim": 64}
    assert drafted(Method.DRAFT_MODEL, draft=small) == (Layer(LayerKind.FULL, 4, 64, 64),) * 16


@pytest.mark.parametrize(("method", "count"), [(Method.EAGLE, 1), (Method.EAGLE3, 1), (Method.DFLASH, 5)])
def test_a_draft_head_brings_its_own_layers(method, count):
    assert drafted(method, draft={**LLAMA, "num_hidden_layers": count}) == (FULL,) * count


def test_speculators_hold_the_draft_s_shape_inside():
    assert drafted(Method.EAGLE3, draft={"transformer_layer_config": {**LLAMA, "num_hidden_layers": 1}}) == (FULL,)


def test_native_mtp_layers_are_like_the_target_s_own():
    assert drafted(Method.MTP, target=DEEPSEEK) == (Layer(LayerKind.LATENT, 1, 576, 0),)
    assert drafted(Method.MTP, target=NEXT) == (Layer(LayerKind.FULL, 2, 256, 256),)


def test_mtp_beside_windows_and_mtp_that_is_not_announced_are_refused():
    with pytest.raises(NotModelledError, match="keep to a window"):
        drafted(
            Method.MTP, target={**LLAMA, "model_type": "mistral", "sliding_window": 64, "num_nextn_predict_layers": 1}
        )
    with pytest.raises(NotModelledError, match="announces no MTP"):
        drafted(Method.MTP)


def test_a_draft_that_could_not_be_read_is_refused():
    with pytest.raises(NotModelledError, match="could not be read"):
        drafted(Method.EAGLE3)
