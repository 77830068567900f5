"""Checkpoints that are shapes alone, plans for them, and what memory their arms are said to take."""

from __future__ import annotations

from specdyno.errors import PlanError
from specdyno.plan.schema import Plan
from specdyno.preflight.checkpoints.hub import Unreachable
from specdyno.preflight.checkpoints.schema import Checkpoint, Format, Tensor
from specdyno.preflight.memory import assess as memory

GIB = 2**30
SMOL = {
    "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "head_dim": 64, "max_position_embeddings": 8192, "num_nextn_predict_layers": 1,
}  # fmt: skip
GEMMA = {
    "model_type": "gemma4_text", "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 64, "max_position_embeddings": 4096, "sliding_window": 512,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2, "per_layer_config": {},
}  # fmt: skip
LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "max_position_embeddings": 131_072,
}  # fmt: skip


def of(config, *, weights=GIB, kind=Format.HUGGING_FACE):
    tensor = Tensor("w", "U8", (weights,), weights)
    return Checkpoint("org/model", kind, config, {"w": tensor})


FILES = {
    "smol": of(SMOL),
    "gemma": of(GEMMA),
    "big": of(LLAMA_8B, weights=16 * GIB),
    "eagle": of({**LLAMA_8B, "num_hidden_layers": 1}, weights=GIB),
    "one": of({**SMOL, "num_hidden_layers": 1}, weights=GIB // 64),
    "two": of({**SMOL, "num_hidden_layers": 2}, weights=GIB // 64),
    "gguf": of(
        {
            "general.architecture": "llama", "llama.block_count": 30, "llama.context_length": 8192,
            "llama.embedding_length": 576, "llama.attention.head_count": 9, "llama.attention.head_count_kv": 3,
        },
        weights=100 * 2**20,
        kind=Format.GGUF,
    ),
    "mixed": of(
        {
            "general.architecture": "gemma3", "gemma3.block_count": 6, "gemma3.context_length": 8192,
            "gemma3.embedding_length": 1024, "gemma3.attention.head_count": 4, "gemma3.attention.head_count_kv": 1,
            "gemma3.attention.key_length": 256, "gemma3.attention.value_length": 256,
            "gemma3.attention.sliding_window": 512,
        },
        kind=Format.GGUF,
    ),
}  # fmt: skip
NGRAM = {"method": "ngram", "draft_tokens": [3]}
EAGLE = {"method": "eagle3", "draft": "eagle", "draft_tokens": [3]}


def plan(model, *candidates, kind="vllm", args=None, env=None, given=None, concurrency=1, command=()):
    return Plan.model_validate(
        {
            "study": "memory",
            "target": {"model": model},
            "engine": {"kind": kind, "args": args or {}, "env": env or {}, "command": list(command)},
            "candidates": list(candidates or [NGRAM]),
            "workload": {
                "sampling": {"temperature": 0.0},
                "classes": [{"name": "code", "prompts": "builtin:code", "share": 1, "max_tokens": 64}],
            },
            "loads": [{"name": "pool", "concurrency": concurrency, "window": "20s"}],
            "objectives": [{"name": "pool", "load": "pool", "measure": "time_per_job"}],
            "preflight": {"device_memory": given},
        }
    )


def read(source, revision):
    if source == "unreachable":
        raise Unreachable("no network")
    if source not in FILES:
        raise PlanError(f"{source} is no checkpoint")
    return FILES[source]


def assess(*args, environment=None, **kwargs):
    return memory.assess(plan(*args, **kwargs), read=read, environment=environment or {})
