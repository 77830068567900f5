"""Whatever a file of a checkpoint holds, the reader answers with facts or with a message, never with a traceback."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.preflight.small_checkpoint import folder, sharded

from specdyno.errors import PlanError
from specdyno.preflight.checkpoints.facts import facts
from specdyno.preflight.checkpoints.read import read
from specdyno.preflight.checkpoints.schema import Checkpoint, Format

KEYS = [
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "layer_types",
    "full_attention_interval", "sliding_window", "sliding_window_pattern", "use_sliding_window", "max_window_layers",
    "attn_layer_period", "attn_layer_offset", "attn_type_list", "linear_attn_config", "full_attn_layers",
    "kv_lora_rank", "num_kv_shared_layers", "text_config", "model_type", "bos_token_id", "eos_token_id",
    "hybrid_override_pattern",
]  # fmt: skip
GGUF_KEYS = [
    "block_count", "nextn_predict_layers", "embedding_length", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.sliding_window", "attention.sliding_window_pattern", "ssm.state_size",
    "attention.recurrent_layers", "full_attention_interval", "attention.shared_kv_layers", "vocab_size",
]  # fmt: skip
TEXT_KEYS = [
    "model", "vocab", "added_tokens", "content", "id", "type", "bos_token", "eos_token", "chat_template",
    "added_tokens_decoder", "weight_map", "name", "template", "7", "model-00001-of-00002.safetensors",
]  # fmt: skip
FILES = [
    "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "chat_template.json", "model.safetensors.index.json",
]  # fmt: skip
SCALAR = st.none() | st.booleans() | st.integers(-3, 2**53) | st.integers(0, 9) | st.floats() | st.text(max_size=4)


def json_of(keys: list[str]):
    return st.recursive(
        SCALAR,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(keys), inner, max_size=5),
        max_leaves=12,
    )


def objects(keys: list[str]):
    return st.dictionaries(st.sampled_from(keys), json_of(keys), max_size=8)


@given(config=objects(KEYS))
def test_any_config_has_a_shape(config) -> None:
    shape = facts(Checkpoint("x", Format.HUGGING_FACE, config))
    assert shape.layer_count is None or shape.layer_count == len(shape.layers)


@given(config=objects(GGUF_KEYS))
def test_any_metadata_has_a_shape(config) -> None:
    keys = {f"llama.{key}": value for key, value in config.items()} | {"general.architecture": "llama"}
    shape = facts(Checkpoint("x", Format.GGUF, keys))
    assert shape.layer_count is None or shape.layer_count <= config["block_count"]


@given(
    name=st.sampled_from(FILES),
    content=objects(TEXT_KEYS + KEYS).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=60),
)
def test_any_text_file_gives_facts_or_a_message(tmp_path_factory, name, content) -> None:
    path = tmp_path_factory.mktemp("checkpoint")
    (sharded if name.endswith("index.json") else folder)(path)
    (path / name).write_bytes(content)
    try:
        said = read(str(path)).source
    except PlanError as error:
        said = str(error)
    assert str(path) in said
