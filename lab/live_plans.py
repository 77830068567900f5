"""The plans of vLLM's methods on the checkpoints of this repository, one plan per target.

The live tests boot these arms and `lab/record_acceptance.py` measures them, so that both speak of the same engine
settings, draft lengths and prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lab import checkpoints
from specdyno.plan import parse
from specdyno.plan.schema import Plan

PROMPTS = Path(__file__).with_name("prompts") / "acceptance.jsonl"
MAX_TOKENS = 64
LOAD = "one"

CANDIDATES = {
    "vllm": """
  - {method: eagle3, draft: "@eagle3@", draft_tokens: [3]}
  - {method: dflash, draft: "@dflash@", draft_tokens: [3]}
  - {method: draft_model, draft: "@draft_model@", draft_tokens: [3]}
  - {method: ngram, draft_tokens: [5], options: {prompt_lookup_min: 2, prompt_lookup_max: 4}}
""",
    "vllm-mtp": """
  - {method: mtp, draft_tokens: [3]}
""",
    "vllm-gemma4": """
  - {method: gemma4_mtp, draft: "@gemma4_mtp@", draft_tokens: [3]}
""",
    # Needs vLLM's second runner, hence Triton; on a CPU that is Triton's interpreter, some twenty times slower.
    "vllm-interpreted": """
  - {method: dspark, draft: "@dspark@", draft_tokens: [5]}
""",
}
PLAN = """
study: methods
target: {model: "@target@"}
engine:
  kind: vllm
  args: {enforce-eager: true, max-model-len: 2048, max-num-seqs: 4, no-enable-prefix-caching: true}
  env: {HF_HUB_OFFLINE: "1", VLLM_CPU_KVCACHE_SPACE: "1"}
workload:
  sampling: {temperature: 0.0}
  classes: [{name: listed, prompts: "@prompts@", share: 1.0, max_tokens: @max_tokens@}]
loads: [{name: @load@, concurrency: 1, window: 30s}]
objectives: [{name: one client, load: @load@, measure: time_per_job}]
experiment: {looks: [1]}
candidates:
"""
TARGETS = {
    "vllm": checkpoints.smollm2,
    "vllm-interpreted": checkpoints.smollm2,
    "vllm-mtp": checkpoints.mtp_target,
    "vllm-gemma4": checkpoints.gemma4_target,
}
DRAFTS = {
    "eagle3": checkpoints.eagle3,
    "dflash": checkpoints.dflash,
    "dspark": checkpoints.dspark,
    "draft_model": checkpoints.first_layers,
    "gemma4_mtp": checkpoints.gemma4_assistant,
}


def text(kind: str, folders: Mapping[str, Path] | None = None) -> str:
    """The plan of one target as YAML.

    `folders` replaces checkpoints, by method or as "target"; "mtp" is a folder of MTP tensors alone, which then become
    part of the target.
    """
    given = dict(folders or {})
    if kind == "vllm-mtp" and "mtp" in given:
        given["target"] = checkpoints.mtp_target(given["mtp"])
    plan = PLAN + CANDIDATES[kind]
    values = {"prompts": PROMPTS, "max_tokens": MAX_TOKENS, "load": LOAD}
    values["target"] = given.get("target") or TARGETS[kind]()
    for method, restore in DRAFTS.items():
        if f"@{method}@" in plan:
            values[method] = given.get(method) or restore()
    for name, value in values.items():
        plan = plan.replace(f"@{name}@", str(value))
    return plan


def plan(kind: str, folders: Mapping[str, Path] | None = None) -> Plan:
    return parse.parse(text(kind, folders))
