"""One row of a prompt file to what is asked, whichever of the known shapes the row has.

Owns the shapes: a bare prompt, chat messages, an OpenAI batch request, Spec-Bench and SPEED-Bench turns, a ShareGPT
conversation. A row that asks nothing is refused with a reason for people. Of several turns the first is asked: the
later ones answer a text that this target never wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_SPEAKERS = {"human": "user", "user": "user", "system": "system"}
_IDS = ("id", "custom_id", "question_id", "task_id", "uuid")


class UnusableRow(Exception):  # noqa: N818 - a verdict on one row; the file goes on
    """A row that asks nothing; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a row asks. `id` is the row's own, None where it has none."""

    id: str | None
    content: Mapping[str, Any] = field(
        default_factory=dict
    )  # of: messages, prompt, tools, tool_choice, response_format


def by_reason(skipped: Iterable[tuple[int, str]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Rows that cannot be used, as (line, reason), by reason in order of first use: (reason, its lines).

    >>> by_reason([(3, "is empty"), (4, "is no JSON"), (9, "is empty")])
    (('is empty', (3, 9)), ('is no JSON', (4,)))
    """
    found: dict[str, list[int]] = {}
    for line, reason in skipped:
        found.setdefault(reason, []).append(line)
    return tuple((reason, tuple(lines)) for reason, lines in found.items())


def named_lines(lines: Sequence[int], most: int) -> str:
    """At most so many line numbers in words.

    >>> named_lines([7], 3), named_lines([1, 2, 5, 9], 3)
    ('line 7', 'lines 1, 2, 5 and 1 more')
    """
    shown = ", ".join(f"{line:,}" for line in lines[:most])
    more = f" and {len(lines) - most:,} more" if len(lines) > most else ""
    return f"line{'' if len(lines) == 1 else 's'} {shown}{more}"


def asked(row: object) -> Asked:
    """What one row of a prompt file asks.

    Raises:
        UnusableRow: with the reason.
    """
    if not isinstance(row, dict):
        raise UnusableRow(f"is {_kind(row)}, not a JSON object")
    request = row["body"] if isinstance(row.get("body"), dict) else row
    own_id = next((row[key] for key in _IDS if isinstance(row.get(key), str | int) and row[key] != ""), None)
    content = {**_question(request), **_tools(request), **_format(request)}
    return Asked(None if own_id is None else str(own_id), content)


def _question(row: Mapping[str, Any]) -> dict[str, Any]:
    if row.get("messages") is not None:
        return {"messages": _messages(row["messages"])}
    if row.get("turns") is not None:
        return {"messages": [{"role": "user", "content": _first_turn(row["turns"])}]}
    if row.get("conversations") is not None:
        return {"messages": _conversation(row["conversations"])}
    if row.get("prompt") is not None:
        return {"prompt": _text(row["prompt"], "prompt")}
    if row.get("input") is not None:
        raise UnusableRow("has `input` (embeddings or the responses API), which is not measured")
    raise UnusableRow("has none of: prompt, messages, turns, conversations, body")


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise UnusableRow(f"`{name}` is {_kind(value)}, not text")
    if not value.strip():
        raise UnusableRow(f"`{name}` is empty")
    return value


def _messages(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise UnusableRow(f"`messages` is {_kind(value)}, not a list")
    messages = [_message(item, index) for index, item in enumerate(value)]
    # A log often ends with the answer that was given; that is what the target is to write.
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    if not any(message["role"] == "user" for message in messages):
        raise UnusableRow("`messages` hold no message of a user")
    _refuse_results_without_calls(messages)
    return messages


def _refuse_results_without_calls(messages: Sequence[Mapping[str, Any]]) -> None:
    called: set[object] = set()
    for index, message in enumerate(messages):
        calls = message.get("tool_calls")
        called.update(call.get("id") for call in calls or () if isinstance(calls, list) and isinstance(call, dict))
        if message["role"] == "tool" and message.get("tool_call_id") not in called:
            raise UnusableRow(f"`messages[{index}]` is the result of a tool without its call")


def _message(item: object, index: int) -> dict[str, Any]:
    place = f"messages[{index}]"
    if not isinstance(item, dict):
        raise UnusableRow(f"`{place}` is {_kind(item)}, not an object")
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        raise UnusableRow(f"`{place}.role` is none of: {', '.join(sorted(_ROLES))}")
    if isinstance(content, list):
        if not content or not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content):
            raise UnusableRow(f"`{place}.content` holds parts without a type")
    elif not (content is None and role == "assistant" and item.get("tool_calls")) and (
        role == "user" or not isinstance(content, str)
    ):
        _text(content, f"{place}.content")
    return item


def _first_turn(turns: object) -> str:
    if not isinstance(turns, list) or not turns:
        raise UnusableRow("`turns` is not a list of texts with at least one entry")
    first = turns[0].get("content") if isinstance(turns[0], dict) else turns[0]
    return _text(first, "turns[0]")


def _conversation(turns: object) -> list[dict[str, Any]]:
    if not isinstance(turns, list):
        raise UnusableRow(f"`conversations` is {_kind(turns)}, not a list")
    messages: list[dict[str, Any]] = []
    for turn in turns:
        speaker = turn.get("from", turn.get("role")) if isinstance(turn, dict) else None
        role = _SPEAKERS.get(speaker) if isinstance(speaker, str) else None
        if role is None:
            continue
        messages.append({"role": role, "content": _text(turn.get("value", turn.get("content")), "conversations.value")})
        if role == "user":
            return messages
    raise UnusableRow("`conversations` hold no turn of a human")


def _tools(row: Mapping[str, Any]) -> dict[str, Any]:
    tools, choice = row.get("tools"), row.get("tool_choice")
    if not tools:
        return {}
    if not isinstance(tools, list):
        raise UnusableRow(f"`tools` is {_kind(tools)}, not a list")
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if (
            not isinstance(function, dict)
            or not isinstance(function.get("name"), str)
            or tool.get("type") != "function"
        ):
            raise UnusableRow(f'`tools[{index}]` is not {{"type": "function", "function": {{"name": ...}}}}')
    if choice is not None and not isinstance(choice, str | dict):
        raise UnusableRow(f"`tool_choice` is {_kind(choice)}, not text or an object")
    return {"tools": tools, **({"tool_choice": choice} if choice is not None else {})}


def _format(row: Mapping[str, Any]) -> dict[str, Any]:
    value = row.get("response_format")
    if value is None:
        return {}
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise UnusableRow("`response_format` is not an object with a type")
    return {"response_format": value}


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
