"""vLLM: flags, identity and counters, as read in vLLM 0.32.0 and run on its CPU build.

Speculation goes in through `--speculative-config` alone. The method in force is read back from the engine (dev-mode
`/server_info`, else its start-up log), because vLLM may derive another method from the draft's path or config.
"""

from __future__ import annotations

import json
import re
from typing import Any

from specdyno.engine import capacity
from specdyno.engine.base import HOST, Adapter, Answers, flatten
from specdyno.engine.refusal import Refusal
from specdyno.plan.schema import Arm, Method
from specdyno.records.schema import Identity

# Neutral name -> (vLLM's method, further keys)
_CONFIG: dict[Method, tuple[str, dict[str, Any]]] = {
    Method.NGRAM: ("ngram", {}),
    Method.SUFFIX: ("suffix", {}),
    Method.DRAFT_MODEL: ("draft_model", {}),
    Method.PARD: ("draft_model", {"parallel_drafting": True}),
    Method.EAGLE: ("eagle", {}),
    Method.EAGLE3: ("eagle3", {}),
    Method.MTP: ("mtp", {}),
    Method.GEMMA4_MTP: ("mtp", {}),
    Method.DFLASH: ("dflash", {}),
    Method.DSPARK: ("dspark", {}),
    Method.MEDUSA: ("medusa", {}),
}

_SNIFFED = (
    "vLLM derives the method from the draft's path and configuration: keep eagle-, eagle3, dflash and dspark out of "
    "the path of another kind of draft, or ask for the method that the draft is for"
)
# What it says of a pair that it refuses to start with, as seen in 0.32.0.
_PAIR_SIGNS = (
    ("should have the same vocabulary size", "The draft's vocab_size is not the target's: use one of its own family"),
    ("are not supported for now", f"vLLM cannot load this kind of model as it was asked to. {_SNIFFED}"),
    ("unsupported speculative method: 'mtp'", "vLLM knows no MTP layers of this target: use another method"),
    ("weights were not initialized from checkpoint", "Tensors are missing in the files: use an upload that has them"),
    ("tried to load weights of size", "Tensors and config.json differ in size: fetch the draft again, or another one"),
    ("model runner v1 does not support", "It needs vLLM's V2 runner, hence Triton: run it on a GPU"),
)
# Assert one K for every step.
_FIXED_K = frozenset({Method.SUFFIX, Method.MEDUSA})

_SPEC_LINE = re.compile(r"SpeculativeConfig\(method='([^']+)', model=(?:'([^']*)'|None), num_spec_tokens=(\d+)")
_VERSION_LINE = re.compile(r"LLM engine \(v([^)]+)\)")
_V1_RUNNER_LINE = re.compile(r"using the V1 model\s+runner instead")
_BACKEND_LINE = re.compile(r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+) (?:attention )?backend")
_GRAPH_MODE = re.compile(r"'cudagraph_mode': <CUDAGraphMode\.(\w+)")

# Differ between any two boots and say nothing about how it serves.
_VOLATILE = re.compile(r"(_port$|instance_id|_ip$|ports?_list$|\.world_size_across_dp$|traces_endpoint|_store_port$)")


class VllmAdapter(Adapter):
    name = "vllm"
    key_variable = "VLLM_API_KEY"
    default_command = ("{python}", "-m", "vllm.entrypoints.openai.api_server")
    questions = ("/v1/models", "/version", "/server_info?config_format=json", "/metrics")
    measuring_flags = frozenset({"per-request-spec-decode-metrics"})
    owned_flags = frozenset(
        {"host", "port", "model", "speculative-config", "sc", "spec-method", "spec-model", "spec-tokens"}
        | {"per-request-spec-decode-metrics", "disable-log-stats"}
    )

    def flags(self, arm: Arm, port: int, *, boot_seed: int) -> list[str]:  # noqa: ARG002 (a real engine takes no seed)
        # `vllm serve` takes the model by position and refuses --model.
        model = [self.target.model] if "serve" in self.command() else ["--model", self.target.model]
        flags = [*model, "--host", HOST, "--port", str(port)]
        if self.target.revision:
            flags += ["--revision", self.target.revision]
        flags.append("--enable-prompt-tokens-details")  # an answer then tells how much of its prompt was cached
        if arm.method is not None:
            config = json.dumps(speculative_config(arm), separators=(",", ":"))
            flags += ["--speculative-config", config, "--per-request-spec-decode-metrics", "detailed"]
        return flags

    def deployment_up_to(self, arm: Arm, in_flight: int) -> tuple[str, ...] | None:
        """A schedule of K by batch size (vLLM 0.32.0, v1/spec_decode/dynamic): its last entry holds for all above."""
        if arm.method in _FIXED_K or arm.draft_tokens is None:
            return None
        schedule = [[1, in_flight, arm.draft_tokens], [in_flight + 1, in_flight + 1, 0]]
        config = speculative_config(arm) | {"num_speculative_tokens_per_batch_size": schedule}
        return ("--speculative-config", json.dumps(config, separators=(",", ":")))

    def default_env(self) -> dict[str, str]:
        # Dev mode opens /server_info, the only place where the resolved configuration can be read; loopback only.
        return {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}

    def owned_remedy(self, flag: str) -> str:
        if flag.startswith("spec") or flag == "sc":
            return "Describe speculation under candidates; the baseline must run without it"
        return super().owned_remedy(flag)

    def advice(self, log: str) -> str:
        text = log.lower()
        found = (remedy for sign, remedy in _PAIR_SIGNS if sign in text)
        return next(found, None) or super().advice(log)

    def refusal(self, identity: Identity, arm: Arm, log: str) -> Refusal | None:
        found = super().refusal(identity, arm, log)
        if found is None or identity.method is None or arm.method is None:
            return found
        other = identity.method != _CONFIG[arm.method][0]
        return found._replace(remedy=_SNIFFED) if other else found

    def identity(self, answers: Answers) -> Identity:
        info = answers.json.get("/server_info?config_format=json")
        version = answers.mapping("/version").get("version")
        model = answers.served_model()
        if isinstance(info, dict) and isinstance(info.get("vllm_config"), dict):
            return _identity_from_info(info["vllm_config"], version=version, model=model, log=answers.log)
        metrics = answers.json.get("/metrics")  # a server that was started without dev mode says its room here
        return _identity_from_log(
            answers.log, metrics if isinstance(metrics, str) else "", version=version, model=model
        )


def speculative_config(arm: Arm) -> dict[str, Any]:
    """The exact `--speculative-config` of an arm; options of the plan come last and may override."""
    if arm.method is None:
        raise ValueError("the baseline has no speculative configuration")
    method, extra = _CONFIG[arm.method]
    config: dict[str, Any] = {"method": method, "num_speculative_tokens": arm.draft_tokens, **extra}
    if arm.draft is not None:
        config["model"] = arm.draft
    return config | arm.options


def _identity_from_info(config: dict[str, Any], *, version: str | None, model: str | None, log: str) -> Identity:
    speculative = config.get("speculative_config")
    room = capacity.from_vllm(config, log)
    settings = {key: value for key, value in flatten(config).items() if not _VOLATILE.search(key)}
    settings = {key: value for key, value in settings.items() if not key.startswith("speculative_config")}
    settings |= _logged(log)
    method, draft_tokens, draft = None, None, None
    if isinstance(speculative, dict):
        method = speculative.get("method")
        draft_tokens = speculative.get("num_speculative_tokens")
        draft = speculative.get("model")
    elif (match := _SPEC_LINE.search(log)) is not None:
        method, draft, draft_tokens = match[1], match[2], int(match[3])
    return Identity(
        engine="vllm",
        version=version,
        model=model,
        speculation=method is not None,
        method=method,
        draft_tokens=draft_tokens,
        draft=draft,
        settings=settings,
        kv_cache_tokens=room.tokens,
        kv_cache_concurrency=room.concurrency,
        source="/server_info",
    )


def _identity_from_log(log: str, metrics: str, *, version: str | None, model: str | None) -> Identity:
    room = capacity.from_vllm({}, log, metrics)
    started = _VERSION_LINE.search(log)
    match = _SPEC_LINE.search(log)
    return Identity(
        engine="vllm",
        version=version or (started[1] if started else None),
        model=model,
        speculation=match is not None if started else None,
        method=match[1] if match else None,
        draft_tokens=int(match[3]) if match else None,
        draft=match[2] if match else None,
        settings=_logged(log),
        source="start-up log" if started else "",
        kv_cache_tokens=room.tokens,
        kv_cache_concurrency=room.concurrency,
    )


def _logged(log: str) -> dict[str, str]:
    """What only the start-up log says: the model runner, the attention backend, the graph mode. Absent: not said.

    vLLM 0.32.0 names the runner only where it falls back to V1 (config/vllm.py, use_v2_model_runner).
    """
    facts = {"runner": "V1" if _V1_RUNNER_LINE.search(log) else "V2 unless the environment says otherwise"}
    if backends := sorted(set(_BACKEND_LINE.findall(log))):
        facts["attention_backend"] = ", ".join(backends)
    if mode := _GRAPH_MODE.search(log):
        facts["graph_mode"] = mode[1]
    return facts if _VERSION_LINE.search(log) else {}
