"""The contract of an engine adapter: how an arm is started, and what the running engine says about itself.

An adapter knows flags, readiness, identity and the place of the counters of one product; it starts nothing itself
(`engine.process` does) and measures nothing (`load` does).
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from specdyno.errors import PlanError, Problem
from specdyno.plan.schema import Arm, Engine, Target
from specdyno.records.schema import Identity

HOST = "127.0.0.1"

# Set on some machines to work around old OpenBLAS builds; they slow a current numpy or torch in the engine.
_UNWANTED_ENV = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of one arm: the exact command and the variables added to this process's environment."""

    argv: tuple[str, ...]
    port: int
    env: dict[str, str] = field(default_factory=dict)

    @property
    def base_url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in _UNWANTED_ENV}
        return {**inherited, **self.env}


@dataclass(frozen=True, slots=True)
class Answers:
    """What a ready engine answered to the questions an adapter asks: path -> JSON value or text, None if it refused."""

    json: dict[str, Any]
    log: str  # the engine's own output so far (untrusted text)


class Adapter(ABC):
    """One product. Subclasses state facts; they keep no state."""

    name: str
    default_command: tuple[str, ...]
    metrics_path = "/metrics"
    ready_path = "/health"
    questions: tuple[str, ...] = ("/v1/models",)
    owned_flags: frozenset[str] = frozenset({"host", "port", "model"})
    """Flags that specdyno sets itself and that a plan's `engine.args` must not hold."""

    def __init__(self, engine: Engine, target: Target) -> None:
        self.engine = engine
        self.target = target

    @abstractmethod
    def flags(self, arm: Arm, port: int, *, boot_seed: int) -> list[str]:
        """Every flag of this arm, model and speculation included, after the user's own."""

    @abstractmethod
    def identity(self, answers: Answers) -> Identity:
        """What is in force, as the engine itself reports it."""

    def command(self) -> list[str]:
        """The start of the command line; raises EngineError where nothing can be found to start."""
        return [part.replace("{python}", sys.executable) for part in self.engine.command or self.default_command]

    def launch(self, arm: Arm, port: int, *, boot_seed: int = 0) -> Launch:
        argv = [*self.command(), *self.flags(arm, port, boot_seed=boot_seed), *user_flags(self.engine.args)]
        return Launch(tuple(argv), port, {**self.default_env(), **self.engine.env})

    def default_env(self) -> dict[str, str]:
        return {}

    def advice(self, log: str) -> str:
        """What to try after a failed start, from the engine's last lines."""
        text = log.lower()
        return next(
            (remedy for sign, remedy in FAILURE_SIGNS if sign in text), "Read the log above; it is the engine's"
        )

    def refuse_owned_flags(self) -> None:
        problems = [
            Problem(
                f"engine.args.{key}",
                f"specdyno sets --{key.replace('_', '-')} itself",
                self.owned_remedy(key.replace("_", "-")),
            )
            for key in self.engine.args
            if key.replace("_", "-") in self.owned_flags and key != "port"
        ]
        if problems:
            raise PlanError(problems)

    def owned_remedy(self, flag: str) -> str:
        return "Name the model under target.model" if flag in {"model", "m"} else "Remove it here"


FAILURE_SIGNS = (
    ("address already in use", "Another program holds the port; stop it, or remove engine.args.port"),
    ("out of memory", "Too little memory: lower max-model-len, max-num-seqs or the KV cache space"),
    ("no available memory for the cache", "Too little memory for the KV cache: give it more or lower max-model-len"),
    ("repository not found", "The hub knows no such repository: check target.model and candidates[].draft"),
    ("is not a local folder and is not a valid model identifier", "Check the path or hub id in target.model"),
    ("localentrynotfound", "Not in the local hub cache and the hub is out of reach: download it first"),
    ("offlinemodeisenabled", "Not in the local hub cache while HF_HUB_OFFLINE is set: download it first"),
    ("401 client error", "The hub refused: log in, or accept the model's terms"),
    ("failed to load model", "The model file cannot be read: check target.model and candidates[].draft"),
    ("no such file or directory", "A file is missing: check target.model and candidates[].draft"),
    ("unrecognized arguments", "The engine does not know a flag: check engine.args against its version"),
    ("invalid argument", "The engine does not know a flag: check engine.args against its version"),
    ("no module named", "The engine is not installed for this interpreter: set engine.command to the one that has it"),
)


def user_flags(args: dict[str, str | int | float | bool | None]) -> list[str]:
    """The plan's `engine.args` as flags: true or null is a bare flag, false is left out."""
    flags: list[str] = []
    for key, value in args.items():
        if value is False or key == "port":
            continue
        name = ("-" if len(key) == 1 else "--") + (key if len(key) == 1 else key.replace("_", "-"))
        flags.append(name)
        if value is not None and value is not True:
            flags.append(str(value))
    return flags


_SECRET_WORDS = ("key", "token_id_secret", "secret", "password", "hf_token", "credential")


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested configuration as `a.b.c` -> JSON scalar; lists as text; anything that looks like a secret is dropped.

    >>> flatten({"a": {"b": 1, "api_key": "x"}, "c": [1, 2]})
    {'a.b': 1, 'c': '[1, 2]'}
    """
    if not isinstance(value, dict):
        scalar = isinstance(value, str | int | float | bool) or value is None
        return {prefix: value if scalar else str(value)}
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if any(word in str(key).lower() for word in _SECRET_WORDS):
            continue
        flat |= flatten(item, f"{prefix}.{key}" if prefix else str(key))
    return flat
