"""Drafts as GGUF files for llama.cpp, made from the 8-bit checkpoints of lab/drafts and the target's own GGUF.

    python lab/gguf_drafts.py FOLDER        writes all of them there (about 20 s)

Needs numpy and gguf only: llama.cpp's own converter wants torch, transformers and its source tree, which no wheel
brings.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script: the repository is the package's place

from lab.gguf_files import (
    GEMMA_LAYER,
    NEOX,
    NORM,
    Checkpoint,
    File,
    Target,
    byte_level_tokenizer,
    halves,
    layer_tensors,
    shape,
)

from lab import checkpoints, gguf_files
from specdyno.demo import eightbit
from specdyno.demo.checkpoints import made, target_gguf

_TOKENIZER = "tokenizer."


@functools.cache
def target() -> Target:
    return Target(target_gguf())


def simple(path: Path) -> Path:
    """A plain draft model: the target's first layers under its own head, quantised as they are."""
    file, source = File(path, "llama"), target()
    source.copy_metadata(file, lambda key: key != "llama.block_count")
    file.set("block_count", checkpoints.FIRST_LAYERS)
    for name, tensor in source.tensors.items():
        if _block(name) is None or _block(name) < checkpoints.FIRST_LAYERS:
            file.copy(tensor)
    return file.write()


def eagle3(path: Path) -> Path:
    """The EAGLE-3 head of the demo; embeddings come from the target, `d2t` holds target ids (not offsets)."""
    draft = Checkpoint(checkpoints.eagle3())
    file, config, tensors = File(path, "eagle3"), draft.config, draft.tensors
    _tokenizer_and_shape(file, config)
    file.set("target_layers", [2, target().layers // 2, target().layers - 3])
    file.set("target_hidden_size", config["hidden_size"])
    file.add("fc.weight", tensors["fc.weight"])
    file.add("output_norm.weight", tensors["norm.weight"])
    file.add("output.weight", tensors["lm_head.weight"])
    file.add("d2t", tensors["d2t"] + np.arange(len(tensors["d2t"])))
    file.add("blk.0.attn_norm_2.weight", tensors["midlayer.hidden_norm.weight"])
    for name, array in layer_tensors(tensors, "midlayer.", config, rotation=NORM):
        file.add(f"blk.0.{name}", array)
    return file.write()


def dflash(path: Path) -> Path:
    return _block_draft(path, Checkpoint(checkpoints.dflash()))


def dspark(path: Path) -> Path:
    return _block_draft(path, Checkpoint(checkpoints.dspark()))


def _block_draft(path: Path, draft: Checkpoint) -> Path:
    """DFlash, and DSpark as its Markov head makes it. Head and embeddings come from the target."""
    file, config, tensors = File(path, "dflash"), draft.config, draft.tensors
    own = config.get("dflash_config", config)
    _tokenizer_and_shape(file, config)
    file.writer.add_mask_token_id(own["mask_token_id"])
    file.set("block_size", config["block_size"])
    file.set("target_layers", [layer + 1 for layer in own["target_layer_ids"]])
    if "markov_rank" in config:
        file.set("sample_from_anchor", True)
        file.set("has_confidence_head", bool(config["enable_confidence_head"]))
        file.add("markov_w1.weight", tensors["markov_head.markov_w1.weight"])
        file.add("markov_w2.weight", tensors["markov_head.markov_w2.weight"])
    file.add("fc.weight", tensors["fc.weight"])
    file.add("enc.output_norm.weight", tensors["hidden_norm.weight"])
    file.add("output_norm.weight", tensors["norm.weight"])
    for layer in range(config["num_hidden_layers"]):
        for name, array in layer_tensors(tensors, f"layers.{layer}.", config, rotation=NEOX):
            file.add(f"blk.{layer}.{name}", array)
    return file.write()


def native_mtp(path: Path) -> Path:
    """SmolLM2 with its multi-token-prediction layer, as llama.cpp can run both: architecture `glm4moe`.

    Plain llama has no such layers there, and MiMo's own (`mimo2`) takes the hidden state before the last norm and no
    biases. `glm4moe` takes it after the norm and has biases; its prediction layer must be a mixture of experts, so
    the dense one goes in as the shared expert beside a single routed expert of zeros.
    """
    draft = Checkpoint(_mtp_layer())
    file, source, config, tensors = File(path, "glm4moe"), target(), draft.config, draft.tensors
    source.copy_metadata(file, lambda key: key != "llama.block_count")
    width, routed = config["intermediate_size"], 32
    expert = {"expert_count": 1, "expert_used_count": 1, "expert_feed_forward_length": routed}
    settings = {"block_count": source.layers + 1, "nextn_predict_layers": 1, "leading_dense_block_count": source.layers}
    for key, value in {**settings, **expert, "expert_shared_count": width // routed}.items():
        file.set(key, value)
    for name, tensor in source.tensors.items():
        rotated = {"attn_q.weight": source.heads, "attn_k.weight": source.kv_heads}.get(name.split(".", 2)[-1])
        rows = None if rotated is None else halves(len(tensor.data), rotated)
        file.copy(tensor, name=name.replace("ffn_norm", "post_attention_norm"), rows=rows)
    _prediction_layer(file, f"blk.{source.layers}.", tensors, config, routed=routed)
    return file.write()


def _prediction_layer(file: File, block: str, tensors: dict[str, np.ndarray], config: Any, *, routed: int) -> None:
    prefix, hidden = "model.mtp_layers.0.", config["hidden_size"]
    places = {
        "ffn_norm": "post_attention_norm",
        **{f"ffn_{part}": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
    }
    for name, array in layer_tensors(tensors, prefix, config, rotation=NEOX):
        stem, _, end = name.partition(".")
        file.add(f"{block}{places.get(stem, stem)}.{end}", array)
    for part in "qkv":
        file.add(f"{block}attn_{part}.bias", tensors[f"{prefix}self_attn.{part}_proj.bias"])
    of_hidden, of_token = np.split(tensors[f"{prefix}input_proj.weight"], 2, axis=1)
    file.add(f"{block}nextn.eh_proj.weight", np.concatenate([of_token, of_hidden], axis=1))
    file.add(f"{block}nextn.enorm.weight", tensors[f"{prefix}token_layernorm.weight"])
    file.add(f"{block}nextn.hnorm.weight", tensors[f"{prefix}hidden_layernorm.weight"])
    file.add(f"{block}nextn.shared_head_norm.weight", tensors[f"{prefix}final_layernorm.weight"])
    file.add(f"{block}ffn_gate_inp.weight", np.zeros((1, hidden), np.float32))
    file.add(f"{block}exp_probs_b.bias", np.zeros(1, np.float32))
    for part in ("gate", "up"):
        file.add(f"{block}ffn_{part}_exps.weight", np.zeros((1, routed, hidden), np.float32))
    file.add(f"{block}ffn_down_exps.weight", np.zeros((1, hidden, routed), np.float32))


def _mtp_layer() -> Path:
    """The prediction layer alone, restored."""
    stored = checkpoints.DRAFTS / "mtp"

    def restore(folder: Path) -> None:
        shutil.copyfile(stored / "config.json", folder / "config.json")
        eightbit.restore(stored / "weights.q8.safetensors", folder / "model.safetensors")

    content = hashlib.sha256((stored / "weights.q8.safetensors").read_bytes()).hexdigest()[:8]
    return made(f"smollm2-next-token-layer-alone-{content}", restore)


def gemma4_target(path: Path) -> Path:
    draft = Checkpoint(checkpoints.gemma4_target())
    return _gemma(File(path, "gemma4"), draft, draft.config)


def gemma4_assistant(path: Path) -> Path:
    """Gemma 4's assistant: query-only layers over the target's keys and values."""
    draft = Checkpoint(checkpoints.gemma4_assistant())
    file, config = File(path, "gemma4-assistant"), draft.config["text_config"]
    file.set("embedding_length_out", draft.config["backbone_hidden_size"])
    file.set("nextn_predict_layers", config["num_hidden_layers"])
    file.add("nextn.pre_projection.weight", draft.tensors["pre_projection.weight"])
    file.add("nextn.post_projection.weight", draft.tensors["post_projection.weight"])
    return _gemma(file, draft, config)


def _gemma(file: File, draft: Checkpoint, config: dict[str, Any]) -> Path:
    head, tensors = config["head_dim"], draft.tensors
    full, sliding = (config["rope_parameters"][f"{kind}_attention"] for kind in ("full", "sliding"))
    shape(file, config, rope_theta=full["rope_theta"])
    byte_level_tokenizer(file, checkpoints.DRAFTS / "gemma4-target")
    file.set("rope.freq_base_swa", float(sliding["rope_theta"]))
    file.set("rope.dimension_count_swa", head)
    file.set("attention.key_length_swa", head)
    file.set("attention.value_length_swa", head)
    file.set("attention.sliding_window", config["sliding_window"])
    file.set("attention.sliding_window_pattern", [kind == "sliding_attention" for kind in config["layer_types"]])
    file.set("attention.shared_kv_layers", config["num_kv_shared_layers"])
    file.set("embedding_length_per_layer_input", 0)
    # Rotated dimensions keep their frequency; those that "proportional" rotary leaves alone get an endless period.
    rotated = int(head * full["partial_rotary_factor"] / 2)
    file.add("rope_freqs.weight", np.array([1.0] * rotated + [1e30] * (head // 2 - rotated), np.float32))
    file.add("token_embd.weight", tensors["model.embed_tokens.weight"])
    file.add("output_norm.weight", tensors["model.norm.weight"])
    for layer in range(config["num_hidden_layers"]):
        for name, array in layer_tensors(tensors, f"model.layers.{layer}.", config, rotation=NEOX, names=GEMMA_LAYER):
            file.add(f"blk.{layer}.{name}", array)
    return file.write()


MAKERS: dict[str, Callable[[Path], Path]] = {
    "simple": simple,
    "eagle3": eagle3,
    "dflash": dflash,
    "dspark": dspark,
    "native-mtp": native_mtp,
    "gemma4-target": gemma4_target,
    "gemma4-assistant": gemma4_assistant,
}


def fingerprint() -> str:
    """Of what the files are made from: the drafts' weights, the target's size, and the modules that make them."""
    modules = Path(__file__).read_bytes() + Path(gguf_files.__file__).read_bytes()
    digest = hashlib.sha256(modules + str(target_gguf().stat().st_size).encode())
    for weights in sorted(checkpoints.DRAFTS.glob("*/weights.q8.safetensors")):
        digest.update(weights.read_bytes())
    digest.update(checkpoints.eagle3().name.encode())
    return digest.hexdigest()[:8]


def _tokenizer_and_shape(file: File, config: dict[str, Any]) -> None:
    target().copy_metadata(file, lambda key: key.startswith(_TOKENIZER))
    shape(file, config, rope_theta=config["rope_theta"])


def _block(name: str) -> int | None:
    return int(name.split(".")[1]) if name.startswith("blk.") else None


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    for label, make in MAKERS.items():
        print(make(place / f"{label}.gguf"))
