"""TensorRT-LLM's `trtllm-serve`: configuration, identity and counters, as read in its main branch and documentation.

Not run here: no test has booted it, and it needs an NVIDIA GPU. Speculation goes in through the YAML file of
`--config`, which is written beside the boot's log. It alone counts drafted *and* accepted tokens by position.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from specdyno.engine.base import CONFIG_FILE, HOST, Adapter, Answers, Launch
from specdyno.errors import PlanError, Problem
from specdyno.plan.schema import NOT_RUN_HERE, Arm, EngineKind, Method
from specdyno.records.schema import Identity

# Neutral name -> decoding_type
_TYPES = {
    Method.NGRAM: "NGram",
    Method.SUFFIX: "SA",
    Method.DRAFT_MODEL: "Draft_Target",
    Method.PARD: "PARD",
    Method.EAGLE3: "Eagle3",
    Method.MTP: "MTP",
    Method.DFLASH: "DFlash",
    Method.DSPARK: "DSpark",
}
_NEUTRAL = {"eagle": Method.EAGLE3} | {kind.lower(): method for method, kind in _TYPES.items()}
_USER_FILES = ("config", "extra_llm_api_options", "extra-llm-api-options")
_OWNED_KEYS = ("decoding_type", "max_draft_len", "speculative_model", "speculative_model_dir")
# Acceptance that falls below it turns speculation off for good: what is measured would change half-way.
_SWITCHES_OFF = (
    "acceptance_rate_threshold",
    "acceptance_rate_window_size",
    "acceptance_window",
    "acceptance_length_threshold",
)
_INFO = "trtllm_speculative_config_info"
_INFO_PAGES = "_config_info"


class TrtllmAdapter(Adapter):
    name = "trtllm"
    read_from = NOT_RUN_HERE[EngineKind.TRTLLM]
    default_command = ("trtllm-serve",)
    metrics_path = "/prometheus/metrics"
    questions = ("/v1/models", "/version", "/prometheus/metrics")
    owned_flags = frozenset({"host", "port", "model"})

    def flags(self, arm: Arm, port: int, *, boot_seed: int) -> list[str]:  # noqa: ARG002 (a real engine takes no seed)
        speculative_config(arm)  # refuses what it does not have before anything is started
        return [self.target.model, "--host", HOST, "--port", str(port), "--config", CONFIG_FILE]

    def launch(self, arm: Arm, port: int, *, boot_seed: int = 0) -> Launch:
        plain = type(self)(self.engine.model_copy(update={"args": self._other_args()}), self.target)
        launch = Adapter.launch(plain, arm, port, boot_seed=boot_seed)
        return Launch(launch.argv, launch.port, launch.env, launch.address, yaml.safe_dump(self.config(arm)))

    def config(self, arm: Arm) -> dict[str, Any]:
        """The content of `--config`: the user's own file (named in `engine.args.config`) with the arm's speculation."""
        config = {**self._user_config(), "return_perf_metrics": True}
        speculative = speculative_config(arm)
        return config if speculative is None else {**config, "speculative_config": speculative}

    def deployment(self, arm: Arm) -> tuple[str, ...]:
        """One word: what to add to the file of `--config`, as YAML on one line."""
        added = {"speculative_config": speculative_config(arm)}
        return (yaml.safe_dump(added, default_flow_style=True, width=10**6).strip(),)

    def refuse_owned_flags(self) -> None:
        super().refuse_owned_flags()
        self._user_config()

    def identity(self, answers: Answers) -> Identity:
        page = answers.json.get("/prometheus/metrics")
        facts = _info_labels(page if isinstance(page, str) else "")
        labels = facts.get(_INFO)
        speculation = labels.get("spec_enabled", "true").lower() == "true" if labels else (False if facts else None)
        said = labels if labels and speculation else {}
        length = said.get("spec_num_tokens", "")
        method = said.get("spec_method", "")
        return Identity(
            engine="trtllm",
            version=answers.mapping("/version").get("version"),
            model=answers.served_model(),
            speculation=speculation,
            method=str(_NEUTRAL.get(method.lower(), method.lower())) if method else None,
            draft_tokens=int(length) if length.isdecimal() and len(length) <= 4 else None,
            draft=said.get("spec_draft_model"),
            settings={
                f"{name.removeprefix('trtllm_').removesuffix('_info')}.{key}": value
                for name, row in facts.items()
                if name != _INFO
                for key, value in row.items()
            },
            source=self.metrics_path if facts else "",
        )

    def _other_args(self) -> dict[str, Any]:
        return {name: value for name, value in self.engine.args.items() if name not in _USER_FILES}

    def _user_config(self) -> dict[str, Any]:
        named = next((name for name in _USER_FILES if self.engine.args.get(name)), None)
        if named is None:
            return {}
        place, path = f"engine.args.{named}", Path(str(self.engine.args[named])).expanduser()
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            reason = getattr(error, "strerror", None) or "it is no YAML"
            raise PlanError([Problem(place, f"{path} cannot be read: {reason}", "Check the path")]) from error
        if not isinstance(content, dict | None):
            raise PlanError([Problem(place, f"{path} holds no mapping of keys", "Check the file")])
        for key in ("speculative_config", "decoding_config"):
            if content and key in content:
                remedy = "Describe speculation under candidates; the baseline must run without it"
                raise PlanError([Problem(place, f"{path} holds {key}", remedy)])
        return content or {}


def speculative_config(arm: Arm) -> dict[str, Any] | None:
    """`speculative_config` of an arm, None for the baseline; PlanError where TensorRT-LLM has no such method."""
    if arm.method is None:
        return None
    if arm.method not in _TYPES:
        known = ", ".join(str(method) for method in _TYPES)
        raise PlanError(f"TensorRT-LLM has no method {arm.method}. It knows: {known}")
    for key in arm.options:
        if key in _OWNED_KEYS:
            raise PlanError(f"candidates[].options.{key} of {arm.name}: specdyno sets this key itself")
        if key in _SWITCHES_OFF:
            raise PlanError(
                f"candidates[].options.{key} of {arm.name}: it turns speculation off for good where acceptance is low, "
                "so what is measured would change half-way. Remove it"
            )
    config: dict[str, Any] = {"decoding_type": _TYPES[arm.method], "max_draft_len": arm.draft_tokens}
    if arm.draft is not None:
        config["speculative_model"] = arm.draft
    if arm.method is Method.DSPARK:
        config["block_size"] = arm.draft_tokens
    return config | arm.options


def _info_labels(page: str) -> dict[str, dict[str, str]]:
    """The configuration that the engine prints as labels: name of the metric -> its labels without the model's name."""
    lines = [line for line in page.split("\n") if _INFO_PAGES in line and not line.startswith("#")]
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        try:
            samples = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
        except (ValueError, IndexError, KeyError):  # what the parser raises on broken lines
            continue
        for sample in samples:
            labels = {key: value for key, value in sample.labels.items() if key not in ("model_name", "engine_type")}
            found[sample.name] = labels
    return found
