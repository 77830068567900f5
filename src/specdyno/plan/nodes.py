"""YAML text to plain data that remembers where each value stood.

Owns what a plan file may hold at all: one document of mappings, lists, text, numbers, true, false and null. Refuses
what is legal YAML but no plan (keys that stand twice, nesting and aliases beyond reason, numbers that are none), and
builds no objects from tags.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import yaml

from specdyno.errors import Problem
from specdyno.plan.spelling import quoted

Path = tuple[str | int, ...]

MAX_CHARACTERS = 256 * 1024
MAX_DEPTH = 32
MAX_ALIASES = 50
MAX_VALUES = 20_000
_EXPONENT_WITHOUT_POINT = re.compile(r"^[-+]?\d+[eE][-+]?\d+$", re.ASCII)
_TAG = "tag:yaml.org,2002:"


@dataclass(slots=True)
class Document:
    """A read plan file: its data, and for every key path the line (from 1) and the scalar as it was written."""

    data: object = None
    lines: dict[Path, int] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    values: int = 0

    def line(self, path: Path) -> int | None:
        """Line of the path, or of the nearest part of the file around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def refuse(self, path: Path, seen: str, remedy: str) -> None:
        self.problems.append(Problem(place(path), seen, remedy, self.line(path)))


class _Unreadable(Exception):  # noqa: N818 - carries a finding about the file, and never leaves this module
    def __init__(self, seen: str, remedy: str, line: int | None = None) -> None:
        super().__init__(seen)
        self.problem = Problem("", seen, remedy, line)


def place(path: Path) -> str:
    """A key path as a person writes it.

    >>> place(("candidates", 1, "draft_tokens"))
    'candidates[1].draft_tokens'
    """
    parts = (f"[{step}]" if isinstance(step, int) else f".{_key(step)}" for step in path)
    return "".join(parts).removeprefix(".")


def _key(step: str) -> str:
    return step if step.isprintable() and step and len(step) <= 60 else quoted(step)


def compose(text: str) -> Document:
    """Data of a YAML text with the problems found on the way; never raises, never builds more than a plan needs."""
    document = Document()
    try:
        node = _node(text)
        document.data = _value(node, document=document, path=(), depth=0)
    except _Unreadable as error:
        document.problems = [error.problem]
    return document


def _node(text: str) -> yaml.Node:
    if len(text) > MAX_CHARACTERS:
        raise _Unreadable(f"the file has {len(text):,} characters", "A plan is a page of YAML: is this the right file?")
    try:
        _check_structure(yaml.parse(text, Loader=yaml.SafeLoader))
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _syntax(error, text) from error
    # PyYAML lets escapes beyond Unicode and absurd version directives through as plain ValueError or OverflowError.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise _Unreadable(f"this is not YAML: {_plain(reason)}", "Save the plan as plain UTF-8 text") from error
    if node is None:
        raise _Unreadable("the file is empty", "`specdyno init` writes a plan to start from")
    return node


def _syntax(error: yaml.MarkedYAMLError, text: str) -> _Unreadable:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    lines = text.splitlines()
    around = lines[line - 1] if line is not None and line <= len(lines) else ""
    if around.lstrip(" ").startswith("\t"):
        return _Unreadable("a tab stands in the indentation", "Indent with spaces", line)
    reason = _plain(f"{error.problem or error.context or error}")
    remedy = "Check indentation, colons and quotes on this line and the one before"
    return _Unreadable(f"this is not YAML: {reason}", remedy, line)


def _plain(reason: str) -> str:
    return quoted(reason)[1:-1] if len(reason) <= 60 or not reason.isprintable() else reason


def _check_structure(events: Iterator[yaml.Event]) -> None:
    """Before anything recursive touches the text: depth, aliases and documents stay within reason."""
    depth = aliases = documents = 0
    for event in events:
        line = event.start_mark.line + 1 if event.start_mark else None
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        if depth > MAX_DEPTH:
            raise _Unreadable(f"lists and mappings stand {depth} deep", "A plan needs 5 levels", line)
        if aliases > MAX_ALIASES:
            raise _Unreadable(f"more than {MAX_ALIASES} aliases (*name)", "Write the values out", line)
        if documents > 1:
            raise _Unreadable("a second document begins", "Keep one plan per file: remove the line ---", line)


def _value(node: yaml.Node, *, document: Document, path: Path, depth: int) -> object:
    line = node.start_mark.line + 1
    document.values += 1
    document.lines.setdefault(path, line)
    if document.values > MAX_VALUES:
        raise _Unreadable(f"aliases blow the plan up to more than {MAX_VALUES:,} values", "Write the values out", line)
    if depth > MAX_DEPTH:
        raise _Unreadable("an alias stands inside the value that it names", "Write the values out", line)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, document=document, path=path, depth=depth)
    if isinstance(node, yaml.SequenceNode):
        return [
            _value(item, document=document, path=(*path, index), depth=depth + 1)
            for index, item in enumerate(node.value)
        ]
    scalar = cast("yaml.ScalarNode", node)
    document.written[path] = scalar.value
    return _scalar(scalar, document=document, path=path)


def _mapping(node: yaml.MappingNode, *, document: Document, path: Path, depth: int) -> dict[str, object]:
    data: dict[str, object] = {}
    first_line: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == f"{_TAG}merge":
            seen = "a merge (<<)" if isinstance(key_node, yaml.ScalarNode) else "a key that is a list or a mapping"
            document.problems.append(Problem(place(path), seen, "Write the keys out, as plain words", line))
            continue
        key = key_node.value
        here = (*path, key)
        if key in data:
            seen = f"this key stands twice, first on line {first_line[key]}"
            document.problems.append(Problem(place(here), seen, "Keep one of the two", line))
            continue
        first_line[key] = document.lines[here] = line
        data[key] = _value(value_node, document=document, path=here, depth=depth + 1)
    return data


def _scalar(node: yaml.ScalarNode, *, document: Document, path: Path) -> object:
    kind, text = node.tag.removeprefix(_TAG), node.value
    if kind == "str" and node.style is None and _EXPONENT_WITHOUT_POINT.match(text):
        kind = "float"  # YAML 1.1 takes 1e-3 for text, which no author means
    if kind in ("bool", "int", "float"):
        return _literal(node, kind=kind, document=document, path=path)
    if kind == "null":
        return None
    if kind not in ("str", "timestamp", "value"):
        document.refuse(path, f"the tag {quoted(node.tag)} means nothing in a plan", "Remove it")
        return None
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text):
        document.refuse(path, "this text holds characters that cannot be sent or stored", "Remove the escapes in it")
        return None
    return text


def _literal(node: yaml.ScalarNode, *, kind: str, document: Document, path: Path) -> bool | int | float | None:
    try:
        if kind == "bool":
            return _CONSTRUCTOR.construct_yaml_bool(node)
        if kind == "int":
            return _whole(_CONSTRUCTOR.construct_yaml_int(node), document=document, path=path)
        return _finite(float(_CONSTRUCTOR.construct_yaml_float(node)), document=document, path=path)
    except (ValueError, LookupError, OverflowError):
        seen = f"{quoted(node.value)} cannot be read as a number or as true or false"
        document.refuse(path, seen, "Write it plainly")
        return None


def _whole(number: int, *, document: Document, path: Path) -> int | None:
    if -(2**63) <= number < 2**63:
        return number
    document.refuse(path, "this number has too many digits", "Write a number below 2^63")
    return None


def _finite(number: float, *, document: Document, path: Path) -> float | None:
    if math.isfinite(number):
        return number
    document.refuse(path, f"{document.written[path][:60]} is not a finite number", "Write an ordinary number")
    return None


_CONSTRUCTOR = yaml.SafeLoader("")
