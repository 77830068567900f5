"""Small real checkpoints of both formats, made on the spot: safetensors by the format's rules, GGUF by its writer."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 6,
    "max_position_embeddings": 64,
    "eos_token_id": 1,
    "dtype": "bfloat16",
}
TOKENIZER = {
    "model": {"type": "BPE", "vocab": {"<s>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4}, "merges": ["a b"]},
    "added_tokens": [{"id": 0, "content": "<s>"}, {"id": 5, "content": "<|tool|>"}],
}
SETTINGS = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": "{{ messages }}"}
WEIGHTS = {"model.embed_tokens.weight": ("BF16", (6, 8)), "model.norm.weight": ("BF16", (8,))}
_BYTES = {"BF16": 2, "F32": 4, "U8": 1}


def header(tensors: dict[str, tuple[str, tuple[int, ...]]]) -> dict[str, Any]:
    entries, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + math.prod(shape) * _BYTES[dtype]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    return entries


def safetensors(entries: dict[str, Any] | bytes, data_bytes: int | None = None) -> bytes:
    """A file's bytes; the data are 0xEE throughout, so that a test can find one that got away."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    if data_bytes is None:
        data_bytes = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    return len(text).to_bytes(8, "little") + text + b"\xee" * data_bytes


def folder(path: Path, **changed: Any) -> Path:
    """A whole checkpoint; `changed` replaces config keys (None removes one)."""
    path.mkdir(parents=True, exist_ok=True)
    config = {key: value for key, value in (CONFIG | changed).items() if value is not None}
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (path / "tokenizer_config.json").write_text(json.dumps(SETTINGS))
    (path / "model.safetensors").write_bytes(safetensors(header(WEIGHTS)))
    return path


def sharded(path: Path) -> Path:
    """The same weights, one tensor a shard, with their index."""
    folder(path)
    (path / "model.safetensors").unlink()
    weight_map = {}
    for number, (name, weight) in enumerate(WEIGHTS.items(), 1):
        shard = f"model-{number:05d}-of-{len(WEIGHTS):05d}.safetensors"
        (path / shard).write_bytes(safetensors(header({name: weight})))
        weight_map[name] = shard
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return path


def add_key(writer: gguf.GGUFWriter, name: str, value: bool | int | str | list) -> None:
    if isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, str):
        writer.add_string(name, value)
    else:
        writer.add_array(name, value)


def gguf_file(path: Path, *, tensors: tuple[str, ...] = ("token_embd.weight",), **keys: Any) -> Path:
    """A small Llama as a GGUF. Double underscores in `keys` stand for dots; None leaves a key out."""
    writer = gguf.GGUFWriter(path, "llama")
    stated: dict[str, Any] = {
        "llama__block_count": 2, "llama__embedding_length": 8, "llama__context_length": 64,
        "llama__attention__head_count": 4, "llama__attention__head_count_kv": 2,
        "tokenizer__ggml__model": "gpt2", "tokenizer__ggml__tokens": ["<s>", "</s>", "a", "b", "ab", "<|tool|>"],
        "tokenizer__ggml__scores": [0.5] * 6, "tokenizer__ggml__bos_token_id": 0,
        "tokenizer__ggml__eos_token_id": 1, "tokenizer__chat_template": "{{ messages }}",
    }  # fmt: skip
    for key, value in (stated | keys).items():
        if value is not None:
            add_key(writer, key.replace("__", "."), value)
    for name in tensors:
        writer.add_tensor(name, np.zeros((6, 32), dtype=np.float32))
    if tensors:
        quantised = np.zeros((2, 34), dtype=np.uint8)  # two rows of one Q8_0 block: 32 weights in 34 bytes
        writer.add_tensor(f"{tensors[0]}.q", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
