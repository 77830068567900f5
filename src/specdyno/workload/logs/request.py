"""One logged request in one shape, whatever the log: what was asked, what was answered, how, when, in which session.

Owns the canonical record and what its parts may be; the order of messages is `walk`'s. A request that breaks the rules
is refused with a reason that is the same for all requests of its kind, so that reasons can be counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_SENSES = {"image": "images", "audio": "audio", "video": "video", "file": "files", "document": "files"}
_WITHHELD = "redacted-by-litellm"


class Refused(Exception):  # noqa: N818 - a verdict on one request; the log goes on
    """A request that cannot be used; the message is the reason."""


@dataclass(slots=True)
class Request:
    """One request. `answer` is the assistant's message, None where the log has none; times are seconds since 1970.

    `session` groups the requests of one conversation; `trace` is a weaker hint: it may be new for every request.
    """

    format: str
    messages: list[dict[str, Any]] | None = None
    prompt: str | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    response_format: Any = None
    sampling: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    start_s: float | None = None
    end_s: float | None = None
    session: str | None = None
    trace: str | None = None
    model: str | None = None


def text_of(content: Any) -> str:
    """The text of a message's content: a text, text parts, or nothing.

    Raises:
        Refused: it holds something that is no text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Refused("holds a message that is no text")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in _TEXT_PARTS or not isinstance(part.get("text"), str):
            sense = next((name for word, name in _SENSES.items() if word in str(kind)), "parts of an unknown type")
            raise Refused(f"holds {sense}")
        texts.append(part["text"])
    return "\n".join(texts)


def messages_of(value: Any) -> list[dict[str, Any]]:
    """Messages as a list of objects, with the arguments of tool calls as JSON text.

    Raises:
        Refused: they are none.
    """
    if not isinstance(value, list) or not value:
        raise Refused("has messages that are no list with at least one entry")
    for message in value:  # every message of a log comes by here
        if type(message) is not dict:
            raise Refused("holds a message that is no object")
        content, calls = message.get("content"), None
        if "tool_calls" in message and message["tool_calls"] is not None:
            message["tool_calls"] = calls = calls_of(message["tool_calls"])
        if content is None:
            if not calls:
                message["content"] = ""
        elif content == _WITHHELD:
            raise Refused("was logged without its text")
    return value


def calls_of(value: Any) -> list[dict[str, Any]] | None:
    """Tool calls in OpenAI's shape; None where there are none."""
    if not value or not isinstance(value, list):
        return None
    found = []
    for number, call in enumerate(value):
        if not isinstance(call, dict):
            continue
        function = call.get("function")
        inner: dict[str, Any] = function if isinstance(function, dict) else call
        name, arguments = inner.get("name"), inner.get("arguments")
        if not isinstance(name, str) or not name:
            continue
        if not isinstance(arguments, str):
            arguments = orjson.dumps(arguments if arguments is not None else {}).decode()
        own = call.get("id")
        found.append(
            {
                "id": own if isinstance(own, str) and own else f"call_{number}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
        )
    return found or None


def answer_of(value: Any) -> dict[str, Any] | None:  # noqa: PLR0911 - one return for each shape
    """The assistant's message out of whatever a log keeps of a response; None where it keeps none."""
    if type(value) is dict and "choices" not in value and type(value.get("content")) is str and len(value) == 2:
        return {"role": "assistant", "content": value["content"]} if value["content"] != _WITHHELD else None
    if isinstance(value, str):
        return {"role": "assistant", "content": value} if value != _WITHHELD else None
    if isinstance(value, list):
        return answer_of(value[0]) if value else None
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("choices"), list):
        first = next(iter(value["choices"]), None)
        if not isinstance(first, dict):
            return None
        return answer_of(first.get("message") or first.get("text") or first.get("delta"))
    content, calls = value.get("content"), calls_of(value.get("tool_calls"))
    if isinstance(content, list):
        content = "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and part.get("text"))
    if not isinstance(content, str):
        content = None
    if content == _WITHHELD or (content is None and calls is None):
        return None
    thought = value.get("reasoning_content") or value.get("reasoning")
    return {
        "role": "assistant",
        "content": content,
        **({"tool_calls": calls} if calls else {}),
        **({"reasoning_content": thought} if isinstance(thought, str) and thought else {}),
    }


def split_answer(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """A conversation that ends with the answer that was given: what was asked, and the answer."""
    if messages and messages[-1].get("role") == "assistant":
        return messages[:-1], answer_of(messages[-1])
    return messages, None


def tools_of(value: Any) -> list[Any] | None:
    """Tools in OpenAI's shape; those that are bare functions are wrapped, those that are neither are left out."""
    if isinstance(value, str):
        value = decoded(value)
    if not isinstance(value, list) or not value:
        return None
    found: list[Any] = []
    for tool in value:
        if type(tool) is not dict:
            continue
        if isinstance(tool.get("function"), dict) and isinstance(tool["function"].get("name"), str):
            found.append(tool if tool.get("type") == "function" else {**tool, "type": "function"})
        elif isinstance(tool.get("name"), str):
            inner = {key: tool[key] for key in ("name", "description", "parameters") if tool.get(key) is not None}
            found.append({"type": "function", "function": inner})
    return found or None


def sampling_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Temperature, top_p, max_tokens and stop, of those that are stated."""
    found: dict[str, Any] = {}
    for name in ("temperature", "top_p"):
        if (value := values.get(name)) is not None and (number := _number(value)) is not None:
            found[name] = number
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        if (value := values.get(name)) is not None and (limit := count(value)) is not None:
            found["max_tokens"] = limit
            break
    stop = values.get("stop")
    if stop:
        stop = [stop] if isinstance(stop, str) else stop
        if isinstance(stop, list) and all(isinstance(one, str) for one in stop):
            found["stop"] = stop
    return found


def tokens(usage: Any, *names: str) -> int | None:
    """The first of `names` that a usage states."""
    if type(usage) is dict:
        for name in names:
            if name in usage and usage[name] is not None:
                return count(usage[name])
    return None


def moment(value: Any) -> float | None:
    """Seconds since 1970 from seconds, milliseconds, micro- or nanoseconds, or an ISO date; None where it is none."""
    if isinstance(value, str):
        if value.isdigit():
            return moment(int(value))
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return None
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    number = value if type(value) is float else _number(value)
    if number is None or number <= 0:
        return None
    for limit, scale in ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6)):
        if number < limit:
            return number / scale
    return number / 1e9


def decoded(value: Any) -> Any:
    """What a text holds as JSON, where it is JSON; anything else as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def first_text(*values: Any) -> str | None:
    """The first value that is a text or a number, as text."""
    for value in values:
        if value is None or value == "":
            continue
        if isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return None


def _number(value: Any) -> float | None:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def count(value: Any) -> int | None:
    """A number of tokens; None where it is none."""
    if type(value) is int and 0 <= value < 10**12:
        return value
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 1e12 else None
