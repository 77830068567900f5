"""GGUF files being read and written, and what checkpoints call by other names: layers, shapes, tokenizers.

Metadata keys and tensor names are those that llama.cpp's build 11434 loads (`src/models/*.cpp`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from lab import checkpoints
from specdyno.demo import eightbit

NORM, NEOX = "interleaved", "halves"  # llama.cpp's two orders of the rotated dimensions

# Hugging Face's name in a decoder layer -> llama.cpp's name in a block
LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
GEMMA_LAYER = {
    **LAYER,
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "layer_scalar": "layer_output_scale.weight",
}


class Checkpoint:
    """A restored draft: its configuration and its weights as float32 (integers stay integers)."""

    def __init__(self, folder: Path) -> None:
        self.config = checkpoints.read_json(folder / "config.json")
        self.tensors = {
            name: (array.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else array
            for name, (dtype, array) in eightbit.read(folder / "model.safetensors").items()
        }


class Target:
    """The target's GGUF: metadata and raw tensors, read once."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.layers = int(self.fields["llama.block_count"].contents())
        self.heads = int(self.fields["llama.attention.head_count"].contents())
        self.kv_heads = int(self.fields["llama.attention.head_count_kv"].contents())

    @functools.cached_property
    def values(self) -> dict[str, Any]:
        return {key: field.contents() for key, field in self.fields.items()}

    def copy_metadata(self, file: File, wanted: Callable[[str], bool]) -> None:
        """Copy what `wanted` says, under the new architecture's prefix."""
        for key, field in self.fields.items():
            if key == "general.architecture" or not wanted(key):
                continue
            kind, inner = field.types[0], field.types[-1] if len(field.types) > 1 else None
            file.writer.add_key_value(key.replace("llama.", f"{file.arch}.", 1), self.values[key], kind, inner)


class File:
    """One GGUF being written; matrices as float16, vectors as float32."""

    def __init__(self, path: Path, arch: str) -> None:
        self.path, self.arch = path, arch
        self.writer = gguf.GGUFWriter(path, arch)

    def set(self, key: str, value: Any) -> None:
        """A metadata value under the architecture's prefix."""
        key = f"{self.arch}.{key}"
        if isinstance(value, bool):
            self.writer.add_bool(key, value)
        elif isinstance(value, float):
            self.writer.add_float32(key, value)
        elif isinstance(value, list):
            self.writer.add_array(key, value)
        else:
            self.writer.add_uint32(key, value)

    def add(self, name: str, array: np.ndarray) -> None:
        if array.dtype == np.int64:
            self.writer.add_tensor(name, np.ascontiguousarray(array))
        else:
            self.writer.add_tensor(
                name, np.ascontiguousarray(array, dtype=np.float16 if array.ndim > 1 else np.float32)
            )

    def copy(self, tensor: gguf.ReaderTensor, *, name: str = "", rows: np.ndarray | None = None) -> None:
        """A tensor of another file, quantised as it is; `rows` gives it another order of rows."""
        data = tensor.data if rows is None else np.ascontiguousarray(tensor.data[rows])
        self.writer.add_tensor(name or tensor.name, data, raw_dtype=tensor.tensor_type)

    def write(self) -> Path:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        return self.path


def shape(file: File, config: dict[str, Any], *, rope_theta: float) -> None:
    file.set("block_count", config["num_hidden_layers"])
    file.set("context_length", config["max_position_embeddings"])
    file.set("embedding_length", config["hidden_size"])
    file.set("feed_forward_length", config["intermediate_size"])
    file.set("attention.head_count", config["num_attention_heads"])
    file.set("attention.head_count_kv", config["num_key_value_heads"])
    file.set("attention.key_length", config["head_dim"])
    file.set("attention.value_length", config["head_dim"])
    file.set("attention.layer_norm_rms_epsilon", float(config["rms_norm_eps"]))
    file.set("rope.freq_base", float(rope_theta))
    file.set("rope.dimension_count", config["head_dim"])
    file.set("vocab_size", config["vocab_size"])


def layer_tensors(
    tensors: dict[str, np.ndarray],
    prefix: str,
    config: dict[str, Any],
    *,
    rotation: str,
    names: dict[str, str] = LAYER,
) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors of one decoder layer under llama.cpp's names."""
    heads = {"attn_q.weight": config["num_attention_heads"], "attn_k.weight": config["num_key_value_heads"]}
    for theirs, ours in names.items():
        if (array := tensors.get(prefix + theirs)) is None:
            continue
        if rotation == NORM and ours in heads:
            array = array[interleaved(len(array), heads[ours])]
        yield ours, array


def interleaved(rows: int, heads: int) -> np.ndarray:
    """Order of rows that pairs dimension i of a head with i + half, side by side."""
    return np.arange(rows).reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)


def halves(rows: int, heads: int) -> np.ndarray:
    """The order that undoes `interleaved`."""
    return np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)


def byte_level_tokenizer(file: File, folder: Path) -> None:
    stored = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    ids = stored["model"]["vocab"] | {token["content"]: token["id"] for token in stored["added_tokens"]}
    special = {token["id"] for token in stored["added_tokens"] if token["special"]}
    writer = file.writer
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(sorted(ids, key=lambda text: ids[text]))
    kinds = [gguf.TokenType.CONTROL if number in special else gguf.TokenType.NORMAL for number in sorted(ids.values())]
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in stored["model"]["merges"]])
    writer.add_bos_token_id(ids[config["bos_token"]])
    writer.add_eos_token_id(ids[config["eos_token"]])
    writer.add_eot_token_id(ids["<turn|>"])
    writer.add_unk_token_id(ids[config["unk_token"]])
    writer.add_pad_token_id(ids[config["pad_token"]])
    writer.add_add_bos_token(False)  # the chat template writes it
    writer.add_chat_template((folder / "chat_template.jinja").read_text(encoding="utf-8"))
