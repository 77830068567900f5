"""Where a plan would give a secret away: in a command, a flag or a variable that is copied into every study.

Looks at names, at shapes and at the API key's own value. Shows no value: a message about a secret must not hold it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from specdyno.errors import Problem
from specdyno.plan.schema import Engine

SECRET_FLAGS = frozenset({"api-key", "hf-token", "hft"})
EXPORT_IT = (
    "Export it as an environment variable: engine.api_key_env names the one with the API key, HF_TOKEN is passed on"
)
PUBLIC = "a secret on a command line is public"
_SECRET_OPTIONS = frozenset({*(f"--{flag}" for flag in SECRET_FLAGS), "-hft"})
_BEARER = re.compile(r"\bbearer\s+(?![${])\S", re.IGNORECASE)
_ASSIGNED = re.compile(r"(?:^|[=\s]|^-e)[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL)S?=(?![${\s\"']|$)")
_TELLING = 8  # characters from which on a key is not found in a word by chance


def exposed(engine: Engine) -> list[Problem]:
    """Secrets in the commands and flags of an engine, and the API key's value anywhere in it; each with its place."""
    key = os.environ.get(engine.api_key_env or "", "").strip()
    problems = [Problem(place, PUBLIC, EXPORT_IT) for place, word in _words(engine) if _names_a_secret(word)]
    told = {problem.place for problem in problems}
    if len(key) >= _TELLING:
        seen = f"the value of {engine.api_key_env} stands here, and a plan is copied into every study"
        problems += [
            Problem(place, seen, "Remove it: what the engine starts with inherits the variable")
            for place, text in [*_words(engine), *_values(engine)]
            if key in text and place not in told
        ]
    return problems


def _words(engine: Engine) -> Iterator[tuple[str, str]]:
    for index, word in enumerate(engine.command):
        yield f"engine.command[{index}]", word
    for name in ("start", "stop", "ready"):
        for index, word in enumerate(getattr(engine.external, name)):
            yield f"engine.external.{name}[{index}]", word


def _values(engine: Engine) -> Iterator[tuple[str, str]]:
    for name, value in engine.args.items():
        yield f"engine.args.{name}", str(value)
    for name, text in engine.env.items():
        yield f"engine.env.{name}", text
    yield "engine.external.base_url", engine.external.base_url


def _names_a_secret(word: str) -> bool:
    option = word.partition("=")[0].replace("_", "-") in _SECRET_OPTIONS
    return option or bool(_BEARER.search(word)) or bool(_ASSIGNED.search(word))
