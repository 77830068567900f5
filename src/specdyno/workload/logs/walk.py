"""One pass over the messages of a request: the rules of their order, the hashes that find duplicates and sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from specdyno.workload.logs.request import Refused, Request, text_of

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


@dataclass(slots=True)
class Walk:
    """What one pass over the messages finds. `prefixes` are hashes of the messages up to each answer of the history.

    `calls` are the ids of the calls that were made. A walk may end in the middle of a conversation and be taken up
    there by another one.
    """

    key: int = 0
    prefixes: tuple[int, ...] = ()
    question: str = ""
    characters: int = 0
    calls: frozenset[str] = frozenset()

    @property
    def turn(self) -> int:
        return len(self.prefixes) + 1


def walk(request: Request, begun: Walk | None = None) -> Walk:
    """One pass over a request's messages: their order is checked, their text is counted and hashed.

    Where `begun` is given, the first message stands for all those that it is the walk over.

    Raises:
        Refused: images, results without calls, unknown roles, nothing asked.
    """
    if request.messages is None:
        prompt = request.prompt or ""
        if not prompt.strip():
            raise Refused("has an empty prompt")
        return Walk(hash(("prompt", prompt)), (), prompt, len(prompt))
    found = walked(request.messages) if begun is None else walked(request.messages[1:], begun)
    if not found.question:
        raise Refused("holds no message of a user")
    return found


def walked(messages: Iterable[Mapping[str, Any]], found: Walk | None = None) -> Walk:
    """The pass over `messages`, which go on where `found` ended; `found` itself stays as it is.

    Raises:
        Refused: see `walk`.
    """
    before = found or Walk()
    key, characters, question, earlier_calls = before.key, before.characters, before.question, before.calls
    prefixes: list[int] = []
    calls: set[str] = set()
    for message in messages:  # every message of a log comes by here, so this is one long loop
        role, text = message.get("role"), message.get("content")
        if type(text) is not str:
            text = text_of(text)
        characters += len(text)
        if role == "assistant":
            made = message.get("tool_calls")
            key = answer_key(key, text, made)
            prefixes.append(key)
            if made:
                calls |= call_ids(made)
            continue
        if role == "user":
            question = text
            if not text or text.isspace():
                raise Refused("has an empty message of the user")
        elif role == "tool":
            call = message.get("tool_call_id")
            if call not in calls and call not in earlier_calls:
                raise Refused("holds the result of a tool without its call")
        elif role not in ROLES:
            raise Refused("holds a message of an unknown role")
        key = hash((key, role, text))
    return Walk(key, (*before.prefixes, *prefixes), question, characters, earlier_calls | calls)


def answer_key(key: int, text: str, calls: Any) -> int:
    """The hash of a conversation with one more answer; white space around the answer does not count.

    Nothing but texts, bytes and numbers is hashed: other hashes differ from one process to the next.
    """
    return hash((key, "assistant", text.strip(), orjson.dumps(calls) if calls else b""))


def call_ids(calls: Any) -> set[str]:
    if not isinstance(calls, list):
        raise Refused("has tool calls that are no list")
    return {call["id"] for call in calls if isinstance(call, dict) and isinstance(call.get("id"), str)}
