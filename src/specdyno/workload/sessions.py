"""Agent sessions: what is said turn by turn, whoever answers.

Owns the shape of a session and the reading of session files: each usable row becomes a session, each other row a
reason. A session whose messages stand in an order that no server takes (a result without a call, a call without its
result, an answer in the place of a question) is refused. Its answers are the engine's own or the recorded ones, as the
plan says; the replay is `load.agents`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from specdyno.plan.schema import Plan
from specdyno.workload import classes, packages
from specdyno.workload.pools import Pool, Row, free_id, json_rows, pools_of, refused, sha256_of
from specdyno.workload.rows import UnusableRow, asked

_HINT = 'Write JSON lines: {"id": "...", "system": null, "tools": null, "turns": [{"phase": "...", "messages": [...]}]}'
_LONGEST_PAUSE_S = 3600.0
_LONGEST_PHASE = 40  # characters: it stands in the tables of the report


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session: `messages` (user, tool results) are added to the history, then the engine answers."""

    phase: str  # what the agent does in this turn
    messages: tuple[Mapping[str, Any], ...]
    pause_s: float = 0.0  # think time or tool time before this turn is sent
    recorded: Mapping[str, Any] | None = None  # the assistant message that was given to this turn once


@dataclass(frozen=True, slots=True)
class Session:
    """`id` is unique within its source."""

    id: str
    tools: tuple[Mapping[str, Any], ...] | None
    system: str | None
    turns: tuple[Turn, ...]


class ClassSessions(Pool[Session]):
    """The distinct sessions of one class."""

    __slots__ = ()

    @property
    def sessions(self) -> tuple[Session, ...]:
        return self.usable


def load_session_pools(plan: Plan, base_dir: Path) -> dict[str, ClassSessions]:
    """The sessions of every class of a plan that holds sessions, by class name.

    Raises:
        PlanError: the problems of all classes at once.
    """
    return pools_of(plan, "sessions", lambda part: load_sessions(part.source, base_dir))


def load_sessions(source: str, base_dir: Path) -> ClassSessions:
    """The sessions of a source: a built-in collection, or a file relative to the plan's folder.

    Raises:
        PlanError: no such collection or file, or no usable session.
    """
    if source.startswith(classes.PREFIX):
        found = read_sessions(classes.read_sessions(source.removeprefix(classes.PREFIX)))
    elif source.startswith(packages.PREFIX):
        found = collect_sessions(packages.session_rows(source))
    else:
        found = read_sessions(_file(source, base_dir))
    return found.or_refused(source, what="session", hint=_HINT)


def read_sessions(data: bytes) -> ClassSessions:
    """Sessions from JSON lines or one JSON list; a row that is none is skipped with its reason."""
    return collect_sessions(json_rows(data))


def collect_sessions(rows: Iterable[Row]) -> ClassSessions:
    """Sessions from numbered rows, wherever they come from.

    Exact duplicates are dropped and counted; a session whose id came before gets its number added.
    """
    return ClassSessions.of(rows, _session)


def _file(source: str, base_dir: Path) -> bytes:
    try:
        return (base_dir / Path(source).expanduser()).read_bytes()
    except FileNotFoundError as error:
        known = ", ".join(classes.PREFIX + name for name in classes.SESSIONS)
        raise refused(f"there is no file {source}", f"Paths are relative to the plan; or use {known}") from error
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise refused(f"{source} cannot be read ({reason})", "Name a file of sessions") from error


def _session(row: object, number: int, taken: Container[str]) -> tuple[Session, str]:
    if not isinstance(row, dict):
        raise UnusableRow("is no JSON object")
    system, tools, listed = row.get("system"), row.get("tools"), row.get("turns")
    if system is not None and not isinstance(system, str):
        raise UnusableRow("`system` is no text")
    if not isinstance(listed, list) or not listed:
        raise UnusableRow("`turns` is not a list with at least one entry")
    turns = tuple(_turn(turn, f"turns[{index}]") for index, turn in enumerate(listed))
    turns = tuple(_in_order(turns))
    _check_talk(turns, system=system, tools=tools)
    own = row.get("id")
    name = str(own) if isinstance(own, str | int) and own != "" else str(number)
    session = Session(free_id(name, number, taken), tuple(tools) if tools else None, system or None, turns)
    return session, _sha256(session)


def _turn(turn: object, place: str) -> Turn:
    if not isinstance(turn, dict):
        raise UnusableRow(f"`{place}` is no object")
    messages, pause_s, recorded = turn.get("messages"), turn.get("pause_s") or 0.0, turn.get("recorded")
    phase = turn.get("phase") or "turn"
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise UnusableRow(f"`{place}.messages` is not a list of messages with at least one entry")
    if not isinstance(phase, str) or len(phase) > _LONGEST_PHASE:
        raise UnusableRow(f"`{place}.phase` is no text of at most {_LONGEST_PHASE} characters")
    if isinstance(pause_s, bool) or not isinstance(pause_s, int | float) or not 0 <= pause_s <= _LONGEST_PAUSE_S:
        raise UnusableRow(f"`{place}.pause_s` is no number of seconds from 0 to {_LONGEST_PAUSE_S:.0f}")
    if recorded is not None and not isinstance(recorded, dict):
        raise UnusableRow(f"`{place}.recorded` is no message")
    _check_recorded(recorded or {}, f"{place}.recorded")
    return Turn(phase, tuple(messages), float(pause_s), recorded or None)


def _check_recorded(recorded: Mapping[str, Any], place: str) -> None:
    if recorded and recorded.get("role") != "assistant":
        raise UnusableRow(f"`{place}.role` is not assistant")
    calls = recorded.get("tool_calls") or []
    if not isinstance(calls, list):
        raise UnusableRow(f"`{place}.tool_calls` is not a list")
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not all(
            isinstance(value, str) and value for value in (call.get("id"), function.get("name"))
        ):
            raise UnusableRow(f"`{place}.tool_calls[{index}]` lacks its id or its function's name")
        if not _is_object(function.get("arguments")):
            raise UnusableRow(f"`{place}.tool_calls[{index}]` has arguments that are not the JSON text of an object")
    ids = [call["id"] for call in calls]
    if len(set(ids)) < len(ids):
        raise UnusableRow(f"`{place}.tool_calls` have the same id twice")


def _is_object(arguments: object) -> bool:
    try:
        return isinstance(arguments, str) and isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        return False


def _in_order(turns: Sequence[Turn]) -> Iterator[Turn]:
    """The turns with the results of tools in the order of their calls.

    Raises:
        UnusableRow: an order of roles that no server takes.
    """
    calls: list[str] = []
    for index, turn in enumerate(turns):
        place = f"turns[{index}].messages"
        roles = [message.get("role") for message in turn.messages]
        strange = next((role for role in roles if role not in ("user", "tool")), None)
        if strange is not None or None in roles:
            hint = {"assistant": "answers stand in `recorded`", "system": "it stands in `system`"}
            why = hint.get(str(strange), "only user and tool speak there")
            raise UnusableRow(f"`{place}` holds a message of {strange or 'nobody'}: {why}")
        results = {message.get("tool_call_id"): message for message in turn.messages if message["role"] == "tool"}
        if "tool" in roles[roles.index("user") :] if "user" in roles else False:
            raise UnusableRow(f"`{place}` holds the result of a tool after a message of the user")
        if roles.count("tool") != len(results) or set(results) != set(calls):
            raise UnusableRow(f"`{place}` {_unmatched(calls, results)}")
        asked_now = [message for message in turn.messages if message["role"] == "user"]
        yield Turn(turn.phase, (*(results[one] for one in calls), *asked_now), turn.pause_s, turn.recorded)
        calls = [call["id"] for call in (turn.recorded or {}).get("tool_calls") or []]


def _unmatched(calls: Sequence[str], results: Mapping[Any, Any]) -> str:
    missing = next((one for one in calls if one not in results), None)
    if missing is not None:
        return f"lacks the result of the call {missing!r} of the turn before"
    stray = next((one for one in results if one not in calls), None)
    if stray is not None or None in results:
        return f"holds the result of a call that the turn before did not record ({stray!r})"
    return "holds two results of the same call"


def _check_talk(turns: Sequence[Turn], *, system: str | None, tools: object) -> None:
    """The whole talk is held to the rules of a prompt file: contents, tools."""
    talk: list[Mapping[str, Any]] = [{"role": "system", "content": system}] if system else []
    for turn in turns:
        talk += turn.messages
        if turn.recorded is not None:
            talk.append(turn.recorded)
    asked({"messages": talk, "tools": tools})


def _sha256(session: Session) -> str:
    turns = [{"messages": list(turn.messages), "recorded": turn.recorded} for turn in session.turns]
    return sha256_of({"system": session.system, "tools": session.tools, "turns": turns})
