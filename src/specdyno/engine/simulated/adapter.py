"""The adapter of the simulated engine: vLLM's wire and flags with a known truth, for tests of the whole program."""

from __future__ import annotations

import json

from specdyno.engine.base import HOST, Adapter, Answers, flatten
from specdyno.engine.refusal import Refusal
from specdyno.engine.simulated.settings import API_KEY_VARIABLE
from specdyno.engine.vllm import speculative_config
from specdyno.plan.schema import Arm
from specdyno.records.schema import Identity

# Options of a candidate that are flags of the simulated server, not keys of its speculative configuration.
_SERVER_OPTIONS = ("fault", "truth")


class SimulatedAdapter(Adapter):
    name = "simulated"
    key_variable = API_KEY_VARIABLE
    default_command = ("{python}", "-m", "specdyno.engine.simulated")
    questions = ("/v1/models", "/version", "/server_info")
    measuring_flags = frozenset({"per-request-spec-decode-metrics"})
    owned_flags = frozenset({"host", "port", "model", "speculative-config", "boot-seed"})

    def flags(self, arm: Arm, port: int, *, boot_seed: int) -> list[str]:
        flags = ["--model", self.target.model, "--host", HOST, "--port", str(port), "--boot-seed", str(boot_seed)]
        for option in _SERVER_OPTIONS:
            given = arm.options.get(option, [])
            for value in given if isinstance(given, list) else [given]:
                flags += [f"--{option}", value if isinstance(value, str) else json.dumps(value)]
        if arm.method is not None:
            config = {key: value for key, value in speculative_config(arm).items() if key not in _SERVER_OPTIONS}
            flags += ["--speculative-config", json.dumps(config), "--per-request-spec-decode-metrics", "detailed"]
        return flags

    def refusal(self, identity: Identity, arm: Arm, log: str) -> Refusal | None:  # noqa: ARG002 (never)
        return None  # its faults are there to be measured, so that the audit's findings can be seen at work

    def identity(self, answers: Answers) -> Identity:
        info = answers.mapping("/server_info")
        speculative = info.get("speculative_config") or {}
        return Identity(
            engine="simulated",
            version=answers.mapping("/version").get("version"),
            model=answers.served_model(),
            speculation=bool(speculative) if info else None,
            method=speculative.get("method"),
            draft_tokens=speculative.get("num_speculative_tokens"),
            draft=speculative.get("model"),
            settings=flatten({key: value for key, value in info.items() if key != "speculative_config"}),
            source="/server_info",
        )
