"""One vocabulary for a model's shape, whatever the format and whatever the config's own words."""

from __future__ import annotations

import pytest
from tests.unit.preflight.small_checkpoint import folder, gguf_file

from specdyno.preflight.checkpoints.facts import LayerKind, facts
from specdyno.preflight.checkpoints.read import read
from specdyno.preflight.checkpoints.schema import Checkpoint, Format

FULL, SLIDING, RECURRENT = LayerKind.FULL, LayerKind.SLIDING, LayerKind.RECURRENT
BASE = {"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}


def shape_of(**config):
    return facts(Checkpoint("x", Format.HUGGING_FACE, {**BASE, **config}))


def kinds_of(**config) -> list[LayerKind]:
    return [layer.kind for layer in shape_of(**config).layers]


def gguf_shape(architecture="llama", **keys):
    stated = {"block_count": 4, "embedding_length": 32, "attention.head_count": 4, "attention.head_count_kv": 2} | keys
    config = {f"{architecture}.{key}": value for key, value in stated.items()} | {"general.architecture": architecture}
    return facts(Checkpoint("x", Format.GGUF, config))


def test_the_same_model_has_the_same_shape_in_both_formats(tmp_path) -> None:
    ours, theirs = (facts(read(str(path))) for path in (folder(tmp_path / "hf"), gguf_file(tmp_path / "m.gguf")))
    for shape in (ours, theirs):
        assert (shape.hidden_size, shape.vocab_size, shape.context_length, shape.layer_count) == (8, 6, 64, 2)
    assert ours.layers == theirs.layers
    assert (ours.layers[0].heads, ours.layers[0].kv_heads, ours.layers[0].key_dim) == (4, 2, 2)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, [FULL] * 4),
        ({"layer_types": ["sliding_attention", "full_attention"] * 2}, [SLIDING, FULL] * 2),
        ({"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, [RECURRENT] * 3 + [FULL]),
        ({"layer_types": ["conv", "a new word"] * 2}, [RECURRENT, LayerKind.UNKNOWN] * 2),
        ({"hybrid_override_pattern": "M-*E"}, [RECURRENT, LayerKind.STATELESS, FULL, LayerKind.STATELESS]),
        ({"block_types": ["recurrent", "attention"]}, [RECURRENT, FULL] * 2),
        ({"full_attention_interval": 2}, [RECURRENT, FULL] * 2),
        ({"attn_layer_period": 4, "attn_layer_offset": 1}, [RECURRENT, FULL, RECURRENT, RECURRENT]),
        ({"attn_type_list": [0, 1, 0, 1]}, [RECURRENT, FULL] * 2),
        ({"linear_attn_config": {"full_attn_layers": [4]}}, [RECURRENT] * 3 + [FULL]),
        ({"model_type": "mamba2"}, [RECURRENT] * 4),
        ({"model_type": "falcon_h1"}, [LayerKind.PARALLEL] * 4),
        ({"model_type": "mistral", "sliding_window": 8}, [SLIDING] * 4),
        ({"sliding_window": 8, "use_sliding_window": False}, [FULL] * 4),
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3}, [FULL] * 3 + [SLIDING]),
        ({"sliding_window": 8, "sliding_window_pattern": 4}, [SLIDING] * 3 + [FULL]),
        ({"sliding_window": 8, "model_type": "gemma2"}, [SLIDING, FULL] * 2),
    ],
)
def test_layers_are_told_by_list_rule_or_window(config, expected) -> None:
    assert kinds_of(**config) == expected


def test_a_window_belongs_to_sliding_layers_alone() -> None:
    layers = shape_of(sliding_window=8, layer_types=["sliding_attention", "full_attention"] * 2).layers
    assert [layer.window for layer in layers] == [8, None, 8, None]


def test_gemma_4_has_wider_heads_in_full_layers_and_shares_its_last_caches() -> None:
    layers = shape_of(
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=8, head_dim=16, global_head_dim=64, num_global_key_value_heads=1, num_kv_shared_layers=2,
    ).layers  # fmt: skip
    assert [(layer.key_dim, layer.value_dim, layer.kv_heads) for layer in layers[:2]] == [(16, 16, 2), (64, 64, 1)]
    assert [layer.reads_other_cache for layer in layers] == [False, False, True, True]


def test_latent_attention_is_told_by_its_ranks() -> None:
    shape = shape_of(
        kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, num_nextn_predict_layers=1
    )
    assert (shape.is_latent, shape.kv_lora_rank, shape.qk_rope_head_dim, shape.next_token_layers) == (True, 512, 64, 1)
    assert (shape.layers[0].key_dim, shape.layers[0].value_dim) == (192, 128)


def test_the_language_model_of_a_wrapper_counts() -> None:
    outer = {"text_config": {**BASE, "vocab_size": 32}, "vocab_size": 64, "dtype": "bfloat16"}
    shape = facts(Checkpoint("x", Format.HUGGING_FACE, outer))
    assert (shape.layer_count, shape.vocab_size, shape.dtype) == (4, 32, "bfloat16")


def test_what_is_not_stated_is_not_zero() -> None:
    shape = facts(
        Checkpoint("x", Format.HUGGING_FACE, {"num_hidden_layers": True, "hidden_size": "8", "vocab_size": -1})
    )
    assert (shape.layers, shape.hidden_size, shape.vocab_size, shape.next_token_layers) == (None,) * 4
    assert shape_of(num_attention_heads=None, num_key_value_heads=None).layers[0].kv_heads is None


def test_recurrent_sizes_are_kept_as_written() -> None:
    assert shape_of(linear_num_value_heads=4, mamba_d_state=16).recurrent == {
        "linear_num_value_heads": 4, "mamba_d_state": 16,
    }  # fmt: skip


def test_mtp_blocks_of_a_gguf_are_no_layers_of_the_trunk() -> None:
    shape = gguf_shape(nextn_predict_layers=1)
    assert (shape.layer_count, shape.next_token_layers) == (3, 1)


@pytest.mark.parametrize(
    ("architecture", "keys", "expected"),
    [
        ("llama", {}, [FULL] * 4),
        ("gemma2", {"attention.sliding_window": 8}, [SLIDING, FULL] * 2),
        ("smallthinker", {"attention.sliding_window": 8}, [FULL, SLIDING, SLIDING, SLIDING]),
        ("mistral", {"attention.sliding_window": 8}, [SLIDING] * 4),
        ("x", {"attention.sliding_window": 8, "attention.sliding_window_pattern": [1, 0] * 2}, [SLIDING, FULL] * 2),
        ("x", {"attention.sliding_window": 8, "attention.sliding_window_pattern": 4}, [SLIDING] * 3 + [FULL]),
        ("qwen35", {"ssm.state_size": 4, "full_attention_interval": 4}, [RECURRENT] * 3 + [FULL]),
        ("x", {"ssm.state_size": 4, "attention.recurrent_layers": [False, True, False, True]}, [FULL, RECURRENT] * 2),
        ("jamba", {"ssm.state_size": 4, "attention.head_count_kv": [0, 2, 0, 2]}, [RECURRENT, FULL] * 2),
        ("mamba", {"ssm.state_size": 4, "attention.head_count_kv": 0}, [RECURRENT] * 4),
    ],
)  # fmt: skip
def test_layers_of_a_gguf_are_told_as_llama_cpp_tells_them(architecture, keys, expected) -> None:
    assert [layer.kind for layer in gguf_shape(architecture, **keys).layers] == expected


def test_a_gguf_states_heads_and_widths_per_layer() -> None:
    keys = {"attention.head_count_kv": [1, 2, 2, 4], "attention.key_length": 64, "attention.key_length_swa": 16}
    layers = gguf_shape(
        "gemma4",
        **keys,
        **{
            "attention.sliding_window": 8,
            "attention.shared_kv_layers": 1,
            "attention.sliding_window_pattern": [True, False, False, False],
        },
    ).layers
    assert [layer.kv_heads for layer in layers] == [1, 2, 2, 4]
    assert [layer.key_dim for layer in layers] == [16, 64, 64, 64]
    assert [layer.value_dim for layer in layers] == [8] * 4, "derived from the width where not stated"
    assert [layer.reads_other_cache for layer in layers] == [False, False, False, True]
