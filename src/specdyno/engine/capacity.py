"""The room of the KV cache as the engine itself states it: in its settings, its log or its counters.

Pure readers of what an engine answered. Shapes: vLLM 0.32.0 and llama.cpp build 11434, both as run here; SGLang's from
its source, not run here. What is not stated is None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Capacity(NamedTuple):
    tokens: int | None = None
    concurrency: float | None = None  # requests of the greatest length at once


NOT_STATED = Capacity()

_VLLM_LINE = re.compile(
    r"KV cache size: (?P<tokens>[\d,]+) tokens(?:, Maximum concurrency for [\d,]+ tokens per request: "
    r"(?P<concurrency>\d+(?:\.\d+)?)x)?"
)
_VLLM_SERIES = re.compile(r"^vllm:cache_config_info\{(?P<labels>.*)\}", re.MULTILINE)
_VLLM_LABELS = ("kv_cache_size_tokens", "kv_cache_max_concurrency")
_LLAMACPP_LINE = re.compile(
    r"n_slots = (?P<slots>\d+), n_ctx_slot = (?P<slot>\d+), kv_unified = '(?P<unified>true|false)'"
)


def from_vllm(config: Mapping[str, Any], log: str = "", metrics: str = "") -> Capacity:
    """The figure of vLLM: `cache_config` of `/server_info`, else its start-up line, else `vllm:cache_config_info`.

    >>> from_vllm({}, "CPU KV cache size: 93,184 tokens, Maximum concurrency for 1,024 tokens per request: 91.00x")
    Capacity(tokens=93184, concurrency=91.0)
    """
    cache = config.get("cache_config")
    if isinstance(cache, Mapping):
        stated = [cache.get(name) for name in _VLLM_LABELS]
        if _whole(stated[0]):
            return Capacity(_whole(stated[0]), _positive(stated[1]))
    if lines := list(_VLLM_LINE.finditer(log)):
        last = lines[-1]
        return Capacity(int(last["tokens"].replace(",", "")), _positive(last["concurrency"]))
    if series := _VLLM_SERIES.search(metrics):
        stated = [re.search(rf'[{{,]{name}="([^"]*)"', "," + series["labels"]) for name in _VLLM_LABELS]
        tokens, concurrency = (found[1] if found else None for found in stated)
        return Capacity(_whole(tokens), _positive(concurrency))
    return NOT_STATED


def from_llamacpp(log: str, props: Mapping[str, Any], slots: int) -> Capacity:
    """llama.cpp's figure: its start-up line, which alone says whether the slots share one pool.

    Without a log (a server that somebody else runs) nothing is claimed unless there is one slot only.

    >>> from_llamacpp("load_model: initializing, n_slots = 2, n_ctx_slot = 2048, kv_unified = 'false'", {}, 2)
    Capacity(tokens=4096, concurrency=2.0)
    """
    if found := list(_LLAMACPP_LINE.finditer(log)):
        last = found[-1]
        shared = last["unified"] == "true"
        return Capacity(
            int(last["slot"]) * (1 if shared else int(last["slots"])), 1.0 if shared else float(last["slots"])
        )
    settings = props.get("default_generation_settings")
    context = _whole(settings.get("n_ctx")) if isinstance(settings, Mapping) else None
    return Capacity(context, 1.0) if context is not None and slots == 1 else NOT_STATED


def from_sglang(info: Mapping[str, Any]) -> Capacity:
    """SGLang's `max_total_num_tokens` of `/server_info`; the smallest where several schedulers state one."""
    states = info.get("internal_states")
    parts = [info, *(part for part in states if isinstance(part, Mapping))] if isinstance(states, list) else [info]
    stated = [found for part in parts if (found := _whole(part.get("max_total_num_tokens"))) is not None]
    return Capacity(min(stated), None) if stated else NOT_STATED


def _whole(value: Any) -> int | None:
    number = _positive(value)
    return int(number) if number is not None and number.is_integer() else None


def _positive(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 < number < float("inf") else None
