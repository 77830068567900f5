"""Checkpoints as the engines read them: config.json and model.safetensors in bfloat16, and the same in 8 bits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Protocol

import torch
from lab.train.target import Target, tidy
from lab.train.work import whole, write_json
from safetensors.torch import load_file, save_file
from torch import Tensor

from specdyno.demo import eightbit

_INHERITED = ("hidden_act", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
              "max_position_embeddings", "vocab_size", "bos_token_id", "eos_token_id")  # fmt: skip
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")


class Exported(Protocol):
    target: Target

    def state_dict(self) -> dict[str, Tensor]: ...

    def config(self) -> dict[str, object]: ...


def write(draft: Exported, folder: Path) -> None:
    """The draft's own tensors under their checkpoint names; embeddings and head stay the target's."""
    prefix = getattr(draft, "prefix", "")
    tensors = {prefix + name: _stored(tensor) for name, tensor in draft.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", configuration(draft))
    with whole(folder / "model.safetensors") as partial:
        save_file(tensors, partial, metadata={"format": "pt"})


def read(draft: torch.nn.Module, folder: Path) -> None:
    """Load a checkpoint of the draft's layout; names and shapes must be exactly the draft's."""
    prefix = getattr(draft, "prefix", "")
    tensors = load_file(folder / "model.safetensors")
    draft.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in tensors.items()})


def configuration(draft: Exported) -> dict[str, object]:
    """The target's shape, then what the draft says of itself."""
    source = draft.target.config
    theta = draft.target.rope_theta
    shared = {
        "rms_norm_eps": tidy(source["rms_norm_eps"]),
        "rope_theta": theta,
        "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }
    return {name: source[name] for name in _INHERITED} | shared | draft.config()


def pack(folder: Path, packed: Path) -> None:
    """The checkpoint with 8-bit rows, for carrying; `specdyno.demo.eightbit.restore` brings it back."""
    packed.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.suffix != ".safetensors":
            shutil.copyfile(path, packed / path.name)
    eightbit.compress(folder / "model.safetensors", packed / "weights.q8.safetensors")


def merge(target: Path, draft: Path, folder: Path) -> None:
    """A target with native MTP: its tensors, zero biases that its new name asks for, and the draft's tensors."""
    if (folder / "model.safetensors").is_file():
        return
    config = json.loads((draft / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(target / "model.safetensors")
    for layer in range(config["num_hidden_layers"]):
        for name in "qkv":
            projection = f"model.layers.{layer}.self_attn.{name}_proj"
            tensors[f"{projection}.bias"] = torch.zeros(len(tensors[f"{projection}.weight"]), dtype=torch.bfloat16)
    folder.mkdir(parents=True, exist_ok=True)
    for name in _TOKENIZER:
        if (target / name).is_file():
            shutil.copyfile(target / name, folder / name)
    shutil.copyfile(draft / "config.json", folder / "config.json")
    with whole(folder / "model.safetensors") as partial:
        save_file(tensors | load_file(draft / "model.safetensors"), partial, metadata={"format": "pt"})


def _stored(tensor: Tensor) -> Tensor:
    """A copy, since two names of one tensor cannot be saved; integers and truths keep their type."""
    tensor = tensor.detach().clone().contiguous()
    return tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
