"""The checkpoints of the live tests, restored from lab/drafts into specdyno's cache: whole or not at all, once.

Each function returns a folder that vLLM loads as it is. A folder's name carries a hash of what it was made from, so
that new weights get a new folder, and holds no word that makes vLLM choose a method by itself (`eagle-`, `eagle3`,
`dflash`, `dspark`). Needs numpy only; the target of SmolLM2 is converted by the demo's own code on first use.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from specdyno.demo import checkpoints, eightbit

DRAFTS = Path(__file__).with_name("drafts")
TOKENIZER = ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
STORED = "weights.q8.safetensors"
FIRST_LAYERS = 6  # of the target, taken as a draft model of its own
_FORMAT = 1  # raise it when what is made from the same weights changes


def smollm2() -> Path:
    """The target of all drafts here but Gemma's: SmolLM2-135M-Instruct as a Hugging Face folder."""
    return checkpoints.target_folder()


def eagle3() -> Path:
    """The EAGLE-3 draft, which the package itself carries for the demo."""
    return checkpoints.draft_folder()


def dflash() -> Path:
    return _restored("smollm2-block-draft", DRAFTS / "dflash")


def dspark() -> Path:
    return _restored("smollm2-block-draft-markov", DRAFTS / "dspark")


def gemma4_target() -> Path:
    return _restored("tiny-gemma4", DRAFTS / "gemma4-target")


def gemma4_assistant() -> Path:
    """The assistant, with the tokenizer of its target."""
    return _restored("tiny-gemma4-assistant", DRAFTS / "gemma4-assistant", tokenizer=DRAFTS / "gemma4-target")


def mtp_target(layer: Path = DRAFTS / "mtp") -> Path:
    """SmolLM2 relabelled as a model with native MTP: zero biases on q, k and v, and one trained MTP layer.

    Two shards and an index, as published checkpoints have them; the first shard is SmolLM2's own file. `layer` holds
    the MTP tensors, in 8 bits or as they were trained.
    """
    target = smollm2()

    def make(folder: Path) -> None:
        restored = folder / "restored.safetensors"
        if (layer / STORED).is_file():
            eightbit.restore(layer / STORED, restored)
        else:
            shutil.copyfile(layer / "model.safetensors", restored)
        trained = eightbit.read(restored)
        restored.unlink()
        shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
        link(target / "model.safetensors", folder / shards[0])
        own = eightbit.read(target / "model.safetensors")
        added = {**zero_biases(own), **trained}
        eightbit.write(folder / shards[1], added)
        _write_json(folder / "model.safetensors.index.json", _index({shards[0]: own, shards[1]: added}))
        shutil.copyfile(layer / "config.json", folder / "config.json")
        copy_tokenizer(target, folder)

    name = f"smollm2-next-token-layer-{target.name[-8:]}-{_fingerprint(layer)}"
    return checkpoints.made(name, make)


def first_layers(count: int = FIRST_LAYERS) -> Path:
    """The target's first `count` layers with its embeddings and final norm: a draft model that nobody trained."""
    target = smollm2()

    def make(folder: Path) -> None:
        tensors = eightbit.read(target / "model.safetensors")
        kept = {name: tensor for name, tensor in tensors.items() if _layer(name) is None or _layer(name) < count}
        eightbit.write(folder / "model.safetensors", kept)
        config = read_json(target / "config.json")
        _write_json(folder / "config.json", {**config, "num_hidden_layers": count})
        copy_tokenizer(target, folder)

    return checkpoints.made(f"smollm2-first-{count}-layers-{target.name[-8:]}-{_FORMAT}", make)


def zero_biases(tensors: eightbit.Tensors) -> eightbit.Tensors:
    """A zero bias for each q, k and v projection: Qwen2 has them, SmolLM2 has none, and zeros change nothing."""
    return {
        name.removesuffix("weight") + "bias": (dtype, np.zeros(array.shape[0], array.dtype))
        for name, (dtype, array) in tensors.items()
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
    }


def link(source: Path, target: Path) -> None:
    """The same file under another name; a copy where the file system has no links. Neither is ever edited in place."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def copy_tokenizer(source: Path, folder: Path) -> None:
    for name in TOKENIZER:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _restored(name: str, stored: Path, *, tokenizer: Path | None = None) -> Path:
    def make(folder: Path) -> None:
        shutil.copyfile(stored / "config.json", folder / "config.json")
        copy_tokenizer(tokenizer or stored, folder)
        copy_tokenizer(stored, folder)
        eightbit.restore(stored / STORED, folder / "model.safetensors")

    return checkpoints.made(f"{name}-{_fingerprint(stored)}", make)


def _fingerprint(stored: Path) -> str:
    weights = stored / (STORED if (stored / STORED).is_file() else "model.safetensors")
    files = (stored / "config.json").read_bytes() + weights.read_bytes()
    return hashlib.sha256(files + bytes([_FORMAT])).hexdigest()[:8]


def _layer(name: str) -> int | None:
    parts = name.split(".")
    return int(parts[2]) if parts[:2] == ["model", "layers"] else None


def _index(shards: dict[str, eightbit.Tensors]) -> dict[str, Any]:
    size = sum(array.nbytes for tensors in shards.values() for _, array in tensors.values())
    places = {name: shard for shard, tensors in shards.items() for name in tensors}
    return {"metadata": {"total_size": size}, "weight_map": dict(sorted(places.items()))}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
