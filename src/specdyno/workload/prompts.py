"""One prompt: what is asked, by whom it is counted, and the request body that asks it.

Owns the identity of a prompt: the SHA-256 of what reaches the model, before the chat template.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from specdyno.plan.schema import Sampling

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request's content: either chat `messages` or a bare `prompt`. `id` is unique within a plan."""

    id: str
    class_name: str
    messages: tuple[Mapping[str, Any], ...] | None
    prompt: str | None
    tools: tuple[Mapping[str, Any], ...] | None
    tool_choice: str | Mapping[str, Any] | None
    response_format: Mapping[str, Any] | None
    max_tokens: int  # of its class
    sha256: str


def fingerprint(content: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of the canonical JSON of a prompt's content: keys sorted, absent and null the same.

    Raises:
        TypeError: the content is nested deeper than JSON libraries follow, or is no JSON.

    >>> fingerprint({"prompt": "a", "tools": None}) == fingerprint({"prompt": "a"})
    True
    """
    stated = {key: value for key, value in content.items() if value is not None}
    return hashlib.sha256(orjson.dumps(stated, option=orjson.OPT_SORT_KEYS)).hexdigest()


def body(prompt: Prompt, sampling: Sampling, model: str, *, max_tokens: int) -> tuple[str, dict[str, Any]]:
    """The endpoint's path and the JSON body of a request, without the keys that ask for a stream.

    What the plan does not state is not sent, so that the server's own default stays in force.
    """
    stated: dict[str, Any] = {
        "messages": _listed(prompt.messages),
        "prompt": prompt.prompt,
        "tools": _listed(prompt.tools),
        "tool_choice": prompt.tool_choice,
        "response_format": prompt.response_format,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stop": _listed(sampling.stop),
    }
    return CHAT if prompt.messages is not None else COMPLETIONS, {
        **sampling.extra_body,
        "model": model,
        "max_tokens": max_tokens,
        **{key: value for key, value in stated.items() if value is not None},
    }


def _listed(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)
