"""The contract of an engine adapter: how an arm is started, and what the running engine says about itself.

An adapter knows flags, readiness, identity and the place of the counters of one product; it starts nothing itself
(`engine.process` does) and measures nothing (`load` does).
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specdyno.engine.credentials import EXPORT_IT, PUBLIC, SECRET_FLAGS, exposed
from specdyno.engine.refusal import Refusal, refused
from specdyno.errors import PlanError, Problem
from specdyno.plan.schema import BASELINE, Arm, Engine, Role, Target
from specdyno.records.schema import Identity

HOST = "127.0.0.1"

# Set on some machines to work around old OpenBLAS builds; they slow a current numpy or torch in the engine.
_UNWANTED_ENV = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


CONFIG_FILE = "{config file}"
_TLS_FLAGS = ("ssl-certfile", "ssl-cert-file")  # the engine then speaks TLS


@dataclass(frozen=True, slots=True)
class Outside:
    """How an engine that this process does not run is ended and found ready; commands are whole."""

    stop: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    stop_timeout_s: float = 60.0
    human: bool = False
    told: str = ""  # what a person is asked to start

    def order(self) -> str:
        """What the keeper must know, as JSON."""
        return json.dumps({"stop": list(self.stop), "timeout_s": self.stop_timeout_s})


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of one arm: the exact command and the variables added to this process's environment."""

    argv: tuple[str, ...]
    port: int
    env: dict[str, str] = field(default_factory=dict, repr=False)  # may hold the API key
    address: str = ""  # where it answers; empty: on this host, without TLS
    config: str = ""  # text of a file to write before the start; CONFIG_FILE in `argv` stands for its path
    outside: Outside | None = None  # set where others than this process run the engine

    @property
    def base_url(self) -> str:
        return self.address or f"http://{HOST}:{self.port}"

    @property
    def stop_limit_s(self) -> float:
        """How long the plan's own stop command may take."""
        return self.outside.stop_timeout_s if self.outside is not None else 0.0

    def written(self, path: Path) -> Launch:
        """The same start with its configuration file at `path`, if it has one."""
        if not self.config:
            return self
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.config, encoding="utf-8")
        return replace(self, argv=tuple(part.replace(CONFIG_FILE, str(path)) for part in self.argv), config="")

    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in _UNWANTED_ENV}
        return {**inherited, **self.env}


@dataclass(frozen=True, slots=True)
class Answers:
    """What a ready engine answered to the questions an adapter asks: path -> JSON value or text, None if it refused."""

    json: dict[str, Any]
    log: str  # the engine's own output so far (untrusted text)

    def mapping(self, path: str) -> dict[str, Any]:
        """The JSON object behind a path; empty where something else, or nothing, was answered."""
        value = self.json.get(path)
        return value if isinstance(value, dict) else {}

    def served_model(self) -> str | None:
        """The first name that `/v1/models` lists."""
        listed = self.mapping("/v1/models").get("data")
        first = listed[0] if isinstance(listed, list) and listed else None
        name = first.get("id") if isinstance(first, dict) else None
        return name if isinstance(name, str) else None


class Adapter(ABC):
    """One product. Subclasses state facts; they keep no state."""

    name: str
    default_command: tuple[str, ...]
    metrics_path = "/metrics"
    ready_path = "/health"
    questions: tuple[str, ...] = ("/v1/models",)
    owned_flags: frozenset[str] = frozenset({"host", "port", "model"})
    """Flags that specdyno sets itself and that a plan's `engine.args` must not hold."""
    measuring_flags: frozenset[str] = frozenset()
    """Flags of a candidate that serve the measurement only."""
    key_variable: str | None = None
    """Environment variable from which this product takes the API key it shall require; None: it reads none."""
    read_from: str | None = None
    """What the adapter was written from, where it was never run against the engine."""

    def __init__(self, engine: Engine, target: Target) -> None:
        self.engine = engine
        self.target = target

    @abstractmethod
    def flags(self, arm: Arm, port: int, *, boot_seed: int) -> list[str]:
        """Every flag of this arm, model and speculation included; the user's own follow."""

    @abstractmethod
    def identity(self, answers: Answers) -> Identity:
        """What is in force, as the engine itself reports it."""

    def command(self) -> list[str]:
        """The start of the command line; raises EngineError where nothing can be found to start."""
        return [part.replace("{python}", sys.executable) for part in self.engine.command or self.default_command]

    def launch(self, arm: Arm, port: int, *, boot_seed: int = 0) -> Launch:
        argv = [*self.command(), *self.flags(arm, port, boot_seed=boot_seed), *user_flags(self.engine.args)]
        key = api_key(self.engine)
        # Never on the command line, which every user may read.
        required = {self.key_variable: key} if key and self.key_variable else {}
        secure = any(name.replace("_", "-") in _TLS_FLAGS for name in self.engine.args)
        address = f"https://{HOST}:{port}" if secure else ""
        return Launch(tuple(argv), port, {**self.default_env(), **self.engine.env, **required}, address)

    def request_fields(self, arm: Arm) -> dict[str, Any]:  # noqa: ARG002 (the engine's default: none)
        """Fields that every request to this arm carries so that its answer reports acceptance."""
        return {}

    def deployment_up_to(self, arm: Arm, in_flight: int) -> tuple[str, ...] | None:  # noqa: ARG002 (a seam)
        """The same with speculation for at most so many requests in flight; None where the engine has no such way."""
        return None

    def deployment(self, arm: Arm) -> tuple[str, ...]:
        """The flags that turn an arm's speculation on in production: those the baseline lacks, none that measure."""
        before = _grouped(self.flags(Arm(name=BASELINE, role=Role.BASELINE), 0, boot_seed=0))
        groups = [group for group in _grouped(self.flags(arm, 0, boot_seed=0)) if group not in before]
        return tuple(part for group in groups if group[0].lstrip("-") not in self.measuring_flags for part in group)

    def default_env(self) -> dict[str, str]:
        return {}

    def refusal(self, identity: Identity, arm: Arm, log: str) -> Refusal | None:  # noqa: ARG002 (adapters read it)
        """Why a ready engine is not worth measuring, and what to do; `log` is its output so far (untrusted text)."""
        return refused(identity, arm)

    def advice(self, log: str) -> str:
        """What to try after a failed start, from the engine's last lines."""
        text = log.lower()
        return next(
            (remedy for sign, remedy in FAILURE_SIGNS if sign in text), "Read the log above; it is the engine's"
        )

    def refuse_owned_flags(self) -> None:
        """PlanError for flags that are specdyno's, secrets among the flags, and a port that is none."""
        problems = []
        for key, value in self.engine.args.items():
            flag = key.replace("_", "-")
            if flag in SECRET_FLAGS and isinstance(value, str | int | float) and not isinstance(value, bool):
                problems.append(Problem(f"engine.args.{key}", PUBLIC, EXPORT_IT))
            elif flag.partition(".")[0] in self.owned_flags and key != "port":
                seen = f"specdyno sets --{flag} itself"
                problems.append(Problem(f"engine.args.{key}", seen, self.owned_remedy(flag)))
        problems += exposed(self.engine)
        if "port" in self.engine.args and not _is_port(self.engine.args["port"]):
            seen = f"{self.engine.args['port']} is no port"
            problems.append(Problem("engine.args.port", seen, "Write a number from 1 to 65535, or remove it"))
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


def _grouped(flags: list[str]) -> list[tuple[str, ...]]:
    """Each flag with its values: `[--a, 1, --b]` -> `[(--a, 1), (--b,)]`."""
    groups: list[tuple[str, ...]] = []
    for part in flags:
        named = part.startswith("-") and not part[1:2].isdigit()
        groups = [*groups, (part,)] if named or not groups else [*groups[:-1], (*groups[-1], part)]
    return groups


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


def api_key(engine: Engine) -> str:
    """The API key in the variable that the plan names; empty where it names none. PlanError where it cannot be sent."""
    name = engine.api_key_env
    if not name:
        return ""
    key = os.environ.get(name, "").strip()
    if not key:
        raise PlanError([Problem("engine.api_key_env", f"the variable {name} is not set", f"Set it: export {name}=…")])
    if not (key.isascii() and key.isprintable()):
        seen = f"the value of {name} holds characters that no HTTP header may hold"
        raise PlanError([Problem("engine.api_key_env", seen, "Set it to the bare key")])
    return key


def conceal(text: str, secret: str) -> str:
    """The text without the secret's value.

    >>> conceal("Bearer abc refused", "abc")
    'Bearer [API key] refused'
    """
    return text.replace(secret, "[API key]") if secret else text


def _is_port(value: object) -> bool:
    text = str(value)
    return not isinstance(value, bool) and text.isascii() and text.isdigit() and 1 <= int(text) <= 65535


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
