"""SGLang: flags, identity and per-request acceptance, as read in SGLang 0.5.23's source.

Not run here: no test has booted it. SGLang counts a window's root token as a draft token, so K draft tokens are
`--speculative-num-draft-tokens` K + 1. It exports no accepted counts: acceptance comes with each answer, which has to
ask for it.
"""

from __future__ import annotations

import re
from typing import Any

from specdyno.engine import capacity
from specdyno.engine.base import HOST, Adapter, Answers, flatten, user_flags
from specdyno.engine.credentials import SECRET_FLAGS
from specdyno.errors import PlanError
from specdyno.plan.schema import NOT_RUN_HERE, Arm, EngineKind, Method
from specdyno.records.schema import Identity

# Neutral name -> SGLang's --speculative-algorithm
_ALGORITHMS = {
    Method.NGRAM: "NGRAM",
    Method.DRAFT_MODEL: "STANDALONE",
    Method.EAGLE: "EAGLE",
    Method.EAGLE3: "EAGLE3",
    Method.MTP: "NEXTN",
    Method.GEMMA4_MTP: "EAGLE",
    Method.DFLASH: "DFLASH",
    Method.DSPARK: "DSPARK",
}
_REPORTED = {
    "NGRAM": Method.NGRAM,
    "STANDALONE": Method.DRAFT_MODEL,
    "EAGLE": Method.EAGLE,
    "EAGLE3": Method.EAGLE3,
    "NEXTN": Method.MTP,
    "FROZEN_KV_MTP": Method.GEMMA4_MTP,
    "DFLASH": Method.DFLASH,
    "DSPARK": Method.DSPARK,
}
# These draft one token after the other: K is the number of steps.
_CHAINED = frozenset({Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.MTP, Method.GEMMA4_MTP})
_WINDOWED = frozenset({"NGRAM", "DFLASH", "DSPARK"})  # these propose K tokens at once: K is the window without its root

USUAL_RUNNING = 48
"""What SGLang sets for `--max-running-requests` where speculation is on and nothing is said."""

# Differ between any two boots and say nothing about how it serves.
_VOLATILE = re.compile(
    r"^(internal_states|port$|nccl_port|dist_init_addr|random_seed$|.*_port$|.*_ports$|last_gen_|memory_usage|.*_time$)"
)


class SglangAdapter(Adapter):
    name = "sglang"
    read_from = NOT_RUN_HERE[EngineKind.SGLANG]
    default_command = ("{python}", "-m", "sglang.launch_server")
    questions = ("/v1/models", "/server_info", "/get_server_info")
    owned_flags = frozenset(
        {"host", "port", "model", "model-path", "enable-metrics", "revision"}
        | {"speculative-algorithm", "speculative-draft-model-path", "speculative-draft-model"}
        | {"speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens"}
        | {"speculative-dflash-block-size", "speculative-dspark-block-size", "speculative-adaptive"}
    )

    def flags(self, arm: Arm, port: int, *, boot_seed: int) -> list[str]:  # noqa: ARG002 (a real engine takes no seed)
        flags = ["--model-path", self.target.model, "--host", HOST, "--port", str(port), "--enable-metrics"]
        if self.target.revision:
            flags += ["--revision", self.target.revision]
        if not any(name.replace("_", "-") == "max-running-requests" for name in self.engine.args):
            # Left unsaid, it would differ between the arms.
            flags += ["--max-running-requests", str(USUAL_RUNNING)]
        return flags + speculative_flags(arm)

    def owned_remedy(self, flag: str) -> str:
        if flag.startswith("speculative"):
            return "Describe speculation under candidates; the baseline must run without it"
        return "Name the model under target.model" if flag == "model-path" else super().owned_remedy(flag)

    def request_fields(self, arm: Arm) -> dict[str, Any]:
        return {} if arm.method is None else {"return_spec_tokens_details": True}

    def identity(self, answers: Answers) -> Identity:
        info = answers.mapping("/server_info") or answers.mapping("/get_server_info")
        algorithm = info.get("speculative_algorithm")
        active = isinstance(algorithm, str) and bool(algorithm)
        speculation = active if "speculative_algorithm" in info else None
        return Identity(
            engine="sglang",
            version=_text(info.get("version")),
            model=answers.served_model() or _text(info.get("served_model_name")),
            speculation=speculation,
            method=_method(info) if active else None,
            draft_tokens=_draft_tokens(info) if active else None,
            draft=_text(info.get("speculative_draft_model_path")) if active else None,
            settings=_settings(info),
            source="/server_info" if info else "",
            kv_cache_tokens=capacity.from_sglang(info).tokens,
        )


def speculative_flags(arm: Arm) -> list[str]:
    """The flags of an arm; raises PlanError where SGLang has no such method. `options` are further flags."""
    if arm.method is None:
        return []
    if arm.method not in _ALGORITHMS:
        known = ", ".join(str(method) for method in _ALGORITHMS)
        raise PlanError(f"SGLang has no method {arm.method}. It knows: {known}")
    k = arm.draft_tokens or 1
    flags = ["--speculative-algorithm", _ALGORITHMS[arm.method]]
    if arm.draft is not None:
        flags += ["--speculative-draft-model-path", arm.draft]
    if arm.method in _CHAINED:
        flags += ["--speculative-num-steps", str(k), "--speculative-eagle-topk", "1"]
    elif arm.method is Method.DSPARK:
        flags += ["--speculative-dspark-block-size", str(k)]
    flags += ["--speculative-num-draft-tokens", str(k + 1)]
    refused = SglangAdapter.owned_flags | SECRET_FLAGS
    if foreign := sorted(key for key in arm.options if key.replace("_", "-") in refused):
        raise PlanError(
            f"candidates[].options.{foreign[0]} of {arm.name}: specdyno sets this flag itself, or it is no way to draft"
        )
    return flags + user_flags(arm.options)


def _method(info: dict[str, Any]) -> str | None:
    """The neutral name. NEXTN becomes EAGLE, with the target itself as its draft."""
    algorithm = str(info["speculative_algorithm"]).upper()
    draft = info.get("speculative_draft_model_path")
    if algorithm == "EAGLE" and (draft is None or draft == info.get("model_path")):
        return str(Method.MTP)
    return str(_REPORTED.get(algorithm, algorithm.lower()))


def _draft_tokens(info: dict[str, Any]) -> int | None:
    """K in force; None for a tree, which has no single K."""
    window, steps = info.get("speculative_num_draft_tokens"), info.get("speculative_num_steps")
    if str(info["speculative_algorithm"]).upper() in _WINDOWED:
        return window - 1 if isinstance(window, int) and window > 1 else None
    return steps if isinstance(steps, int) and info.get("speculative_eagle_topk") == 1 else None


def _settings(info: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in flatten(info).items() if not _VOLATILE.match(key) and key != "version"}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
