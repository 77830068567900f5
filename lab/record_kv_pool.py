"""Ask vLLM itself how many tokens its KV pool holds for many mixes of layers, and write the answers down.

Runs vLLM's own grouping and capacity functions on the processor, without an engine: no model is loaded. The file that
it writes is what `tests/unit/preflight/test_memory_pool.py` compares specdyno's arithmetic with.

    python lab/record_kv_pool.py tests/data/memory/vllm_kv_pool.json      # in an environment that has vLLM
"""

from __future__ import annotations

import json
import logging
import random
import sys
from pathlib import Path
from types import SimpleNamespace as Simple
from typing import Any

CASES, SEED, GIB = 240, 4, 2**30
Mix = list[dict[str, Any]]


def layer(kind: str, **sizes: int) -> dict[str, Any]:
    return {"kind": kind, **sizes}


def attention(draw: random.Random, kind: str = "full", **more: int) -> dict[str, Any]:
    size = draw.choice([64, 128, 256])
    return layer(kind, kv_heads=draw.choice([1, 2, 3, 4, 8]), key_dim=size, value_dim=size, **more)


def mix(draw: random.Random) -> tuple[str, Mix]:
    """One model, some with a draft: layers in order, as dense, windowed, latent, hybrid or chunked models have them."""
    full, other, count = attention(draw), attention(draw), draw.randint(4, 40)
    sizes = {key: full[key] for key in ("kv_heads", "key_dim", "value_dim")}
    slides = layer("sliding", **sizes, window_tokens=draw.choice([128, 512, 1024, 4096]))
    chunks = layer("chunked", **sizes, window_tokens=2048)
    latent = layer("latent", kv_heads=1, key_dim=576, value_dim=0)
    state = layer(
        "state",
        conv_width=draw.choice([1024, 8192]),
        conv_kernel=4,
        state_heads=draw.choice([16, 32]),
        state_dim=128**2,
    )
    every = draw.randint(2, 6)

    def mixed(rest: dict[str, Any], period: int) -> Mix:
        return [full if (place + 1) % period == 0 else rest for place in range(max(count, period))]

    mixes = {
        "dense": [full] * count,
        "dense with draft": [full] * count + [other] * draw.randint(1, 3),
        "all sliding": [slides] * count,
        "all sliding with draft": [slides] * count + [other],
        "sliding and full": mixed(slides, every),
        "sliding and full with draft": mixed(slides, every) + [other] * draw.randint(1, 2),
        "latent": [latent] * count,
        "latent with sliding draft": [latent] * count + [slides] * draw.randint(1, 3),
        "latent with MTP": [latent] * (count + 1),
        "hybrid": mixed(state, 4),
        "hybrid with MTP": [*mixed(state, 4), full],
        "chunked and full": mixed(chunks, 4),
    }
    name = draw.choice(sorted(mixes))
    return name, mixes[name]


def settings(draw: random.Random) -> dict[str, Any]:
    return {
        "max_model_len": draw.choice([1000, 1024, 4096, 32768]),
        "block_tokens": draw.choice([16, 64, 128]),
        "in_flight_tokens": draw.choice([2048, 8192, 16384]),
        "draft_tokens": draw.choice([0, 1, 3, 7]),
        "aligned_states": draw.random() < 0.5,
    }


def specification(one: dict[str, Any], rules: dict[str, Any], block: int, padded: int | None) -> Any:
    import torch  # noqa: PLC0415 (only where this is run)
    from vllm.v1 import kv_cache_interface as kv  # noqa: PLC0415

    if one["kind"] == "state":
        conv = (one["conv_kernel"] - 1 + rules["draft_tokens"], one["conv_width"])
        return kv.MambaSpec(
            block_size=rules["max_model_len"],
            shapes=(conv, (one["state_heads"], one["state_dim"])),
            dtypes=(torch.bfloat16, torch.bfloat16),
            page_size_padded=padded,
            mamba_cache_mode="align" if rules["aligned_states"] else "none",
            num_speculative_blocks=rules["draft_tokens"],
        )
    sizes = {"block_size": block, "num_kv_heads": one["kv_heads"], "head_size": one["key_dim"], "dtype": torch.bfloat16}
    match one["kind"]:
        case "latent":
            return kv.MLAAttentionSpec(**sizes)
        case "sliding":
            return kv.SlidingWindowSpec(**sizes, sliding_window=one["window_tokens"])
        case "chunked":
            return kv.ChunkedLocalAttentionSpec(**sizes, attention_chunk_size=one["window_tokens"])
    return kv.FullAttentionSpec(**sizes)


def configuration(rules: dict[str, Any]) -> Any:
    """As much of vLLM's configuration as its cache functions look at, with its usual layout."""
    from vllm.v1.kv_cache_layout import KVCacheLayout  # noqa: PLC0415

    layout = next(one for one in KVCacheLayout if one.name == "LBHNC")
    cache = Simple(
        get_resolved_kv_cache_layout=lambda: layout,
        num_gpu_blocks_override=None,
        mamba_cache_mode="align" if rules["aligned_states"] else "none",
        prefix_cache_retention_interval=None,
    )
    return Simple(
        scheduler_config=Simple(disable_hybrid_kv_cache_manager=False),
        cache_config=cache,
        model_config=Simple(max_model_len=rules["max_model_len"]),
        parallel_config=Simple(decode_context_parallel_size=1, prefill_context_parallel_size=1),
        max_in_flight_tokens=rules["in_flight_tokens"],
        attention_config=Simple(hisparse_config=None),
        speculative_config=None,
        kv_transfer_config=None,
    )


def answer(layers: Mix, budget_bytes: int, rules: dict[str, Any]) -> dict[str, Any]:
    from vllm.v1.core import kv_cache_utils as pool  # noqa: PLC0415

    config, block, padded = configuration(rules), rules["block_tokens"], None
    states = [one for one in layers if one["kind"] == "state"]
    if states:  # as vLLM's platform code aligns the pages of a hybrid before it groups them
        largest = max(specification(one, rules, block, None).page_size_bytes for one in states)
        first = next(one for one in layers if one["kind"] != "state")
        token = specification(first, rules, 1, None).page_size_bytes
        block = max(block, block * -(-largest // (block * token)))
        padded = block * token
    named = {f"layer.{place}": specification(one, rules, block, padded) for place, one in enumerate(layers)}
    groups = pool.get_kv_cache_groups(config, named)
    found = pool.generate_scheduler_kv_cache_config(
        [pool.get_kv_cache_config_from_groups(config, groups, budget_bytes)]
    )
    tokens, concurrency = pool.get_kv_cache_capacity(config, found)
    return {"tokens": tokens, "concurrency": concurrency, "blocks": found.num_blocks}


def runs(layers: Mix) -> list[list[Any]]:
    """Equal neighbours as [count, layer]: a file that can be read."""
    found: list[list[Any]] = []
    for one in layers:
        if found and found[-1][1] == one:
            found[-1][0] += 1
        else:
            found.append([1, one])
    return found


def main(path: str) -> None:
    import vllm  # noqa: PLC0415

    logging.disable(logging.CRITICAL)
    draw = random.Random(SEED)
    cases = []
    for _ in range(CASES):
        (name, layers), rules, budget = mix(draw), settings(draw), draw.randint(1, 40) * GIB
        told = answer(layers, budget, rules)
        cases.append({"mix": name, "layers": runs(layers), "rules": rules, "budget_bytes": budget, "vllm": told})
    head = json.dumps({"vllm": vllm.__version__, "seed": SEED})[1:-1]
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in cases)
    Path(path).write_text(f'{{{head}, "cases": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
