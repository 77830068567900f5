"""The plan's `engine.external`: an engine that the user's own commands start, or a person does.

Owns the placeholders: what stands in braces in a command, and that nothing else may.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from specdyno.plan.part import Part
from specdyno.plan.spelling import Duration, Switch, quoted, refusal

PLACEHOLDERS = ("arm", "method", "draft", "draft_tokens", "options", "model", "port", "python")
ADDRESS_PLACEHOLDERS = ("port",)
# `${name}` is a shell's, `{{name}}` a template's: both are left alone.
_PLACE = re.compile(r"(?<![${])\{([A-Za-z_][A-Za-z0-9_]*)\}(?!\})")
_ADDRESS = re.compile(r"^https?://(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:]+\])(?::(?:[0-9]{1,5}|\{port\}))?(?:/[^\s?#]*)?$")


class Speaks(StrEnum):
    """Whose answers, counters and per-request acceptance an external engine gives."""

    OPENAI = "openai"
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    TRTLLM = "trtllm"
    SIMULATED = "simulated"


def filled(text: str, values: Mapping[str, str]) -> str:
    """A word of a command with its placeholders replaced by `values`; others stay as they are.

    >>> filled("--port={port} ${HOME} {{x}}", {"port": "8000"})
    '--port=8000 ${HOME} {{x}}'
    """
    return _PLACE.sub(lambda found: values.get(found[1], found[0]), text)


def placeholders(text: str) -> set[str]:
    """Names that stand in braces.

    >>> sorted(placeholders("{method}-{draft_tokens}"))
    ['draft_tokens', 'method']
    """
    return set(_PLACE.findall(text))


def command_word(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise refusal("a word of a command must be text", "Put it in quotes")
    if "\0" in value:
        raise refusal("a word of a command holds a zero byte", "Remove it")
    _only(value, PLACEHOLDERS)
    return value


def address(value: object) -> object:
    if not isinstance(value, str):
        return value
    _only(value, ADDRESS_PLACEHOLDERS)
    if "@" in value:
        raise refusal("an address must hold no user name and no password", "Name the variable of the key: api_key_env")
    if not _ADDRESS.match(value):
        raise refusal(f"{quoted(value)} is no address", 'Write e.g. "http://127.0.0.1:{port}", without /v1')
    return value.rstrip("/").removesuffix("/v1")


def _only(text: str, known: tuple[str, ...]) -> None:
    if strange := sorted(placeholders(text) - set(known)):
        listed = ", ".join(f"{{{name}}}" for name in known)
        raise refusal(f"there is no placeholder {{{strange[0]}}}", f"Use {listed}; double braces are left alone")


Word = Annotated[str, BeforeValidator(command_word)]
Address = Annotated[str, BeforeValidator(address)]


class External(Part):
    start: tuple[Word, ...] = Field(
        default=(),
        description=(
            "Command that starts one arm, as a list and without a shell; it may stay or return. {method}, {draft}, "
            "{draft_tokens}, {options}, {arm}, {model}, {port} and {python} are filled in; for the baseline {method} "
            "is none, {draft} empty, {draft_tokens} 0."
        ),
        examples=["[docker, compose, -f, engine.yaml, up, -d, '{method}-{draft_tokens}']"],
    )
    stop: tuple[Word, ...] = Field(
        default=(),
        description=(
            "Command that ends it, with the same placeholders; always run, also after a failure or an interruption. "
            "Empty: the start command is ended by a signal."
        ),
        examples=["[docker, compose, -f, engine.yaml, down]"],
    )
    ready: tuple[Word, ...] = Field(
        default=(),
        description="Command that ends with 0 once the engine is ready. Empty: its health page is asked.",
        examples=["[kubectl, rollout, status, deployment/engine]"],
    )
    base_url: Address = Field(
        default="http://127.0.0.1:{port}",
        description="Where requests go, without /v1; {port} is a free one, or engine.args.port.",
        examples=["https://gpu-host:8443"],
    )
    speaks: Speaks = Field(
        default=Speaks.OPENAI,
        description="Whose identity, counters and per-request acceptance it gives; openai: none of them.",
        examples=["vllm"],
    )
    human: Switch = Field(
        default=False,
        description="A person at the terminal starts and stops each arm when asked; excludes start and stop.",
        examples=["true"],
    )
    stop_timeout: Duration = Field(
        default=60.0,
        description="Longest time for the stop command, and again for base_url to fall silent.",
        examples=["2m"],
    )
