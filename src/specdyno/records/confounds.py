"""What may differ between the arms: consequences of speculation are part of the treatment, all else is a confound.

Two lists kept as data, and the comparison of resolved settings. Names are compared in lower case with `-` as `_`, by
whole name or by their last dotted part; patterns are those of `fnmatch`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from specdyno.records.schema import BootRecord

CONSEQUENCES: tuple[str, ...] = (
    # the speculation itself
    "speculative*", "spec_*", "num_spec*", "draft_*", "*_draft_*", "num_lookahead*", "*lookahead_slots*",
    "per_request_spec_decode_metrics", "rejection_sample_method",
    # memory that the draft takes from the cache
    "num_gpu_blocks*", "num_cpu_blocks*", "num_kv_blocks*", "kv_cache_size*", "kv_cache_tokens*",
    "kv_cache_max_concurrency", "max_total_num_tokens", "available_kv_cache_memory*",
    # vLLM turns it off for n-gram, suffix and Medusa drafts, and derives the other from it
    "async_scheduling", "disable_nccl_for_dp_synchronization",
    # some methods run on one of vLLM's model runners only
    "runner",
    # SGLang leaves memory for the draft, and does not overlap batches under every method
    "mem_fraction_static", "disable_overlap_schedule",
    # graphs are captured for multiples of K + 1 rows
    "cudagraph_capture_sizes", "cuda_graph_sizes", "cuda_graph_bs", "max_cudagraph_capture_size", "compile_sizes",
    # slots set aside for drafts
    "max_num_scheduled_tokens",
    # hidden-state methods compute the last matched prefix block again
    "disable_eagle_block_drop",
)  # fmt: skip
"""Settings that speculation itself changes: shown, never held against a candidate."""

PER_PROCESS: tuple[str, ...] = (
    "port", "host", "uds", "pid", "api_key", "instance_id", "data_parallel_rpc_port", "data_parallel_master_port",
    "master_port", "log_file", "served_model_name", "model_alias", "cache_dir", "local_cache_dir", "compilation_time",
    "traced_files",
)  # fmt: skip
"""Names, addresses and caches of one process: no setting at all."""

Difference = tuple[str, str, str, str, bool]  # (setting, arm, baseline value, arm value, consequence of speculation)

NOT_REPORTED = "not reported"
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of a Python object: another in every process


def normalised(name: str) -> str:
    return name.strip().lstrip("-").lower().replace("-", "_")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a setting's whole name, or its last dotted part, fits any pattern.

    >>> matches("scheduler_config.async-scheduling", CONSEQUENCES)
    True
    """
    whole = normalised(name)
    last = whole.rsplit(".", 1)[-1]
    return any(fnmatchcase(whole, normalised(p)) or fnmatchcase(last, normalised(p)) for p in patterns)


def resolved(boot: BootRecord) -> dict[str, Any]:
    """The facts that must be equal in two arms: the engine's settings, its version and the model."""
    if boot.identity is None:
        return {}
    facts: dict[str, Any] = {normalised(name): value for name, value in boot.identity.settings.items()}
    facts |= {"engine": boot.identity.engine, "engine_version": boot.identity.version, "model": boot.identity.model}
    return {name: value for name, value in facts.items() if value is not None and not matches(name, PER_PROCESS)}


def differences(baseline: Mapping[str, Any], other: Mapping[str, Any], *, arm: str) -> list[Difference]:
    """Every setting with another value, or reported by one side only, in the order of their names."""
    found = []
    for name in sorted(baseline.keys() | other.keys()):
        ours, theirs = (_shown(side[name]) if name in side else NOT_REPORTED for side in (baseline, other))
        if ours != theirs:
            found.append((name, arm, ours, theirs, matches(name, CONSEQUENCES)))
    return found


def _shown(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "true" if value is True else "false" if value is False else str(value)
    return _ADDRESS.sub("", text)
