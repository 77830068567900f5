"""Beginnings of conversations that were read before, so that a log's growing histories are read once.

In most logs a request repeats its whole conversation, and often the same tools. What an earlier row held, byte for
byte, is cut out of the next one before it is parsed, and what was found out about it is taken up instead. This changes
how long a log takes, never what is found: what is cut out are whole objects of a list (so a row is JSON with them
exactly if it is JSON without them), a mark stands in their place, and the row is read in full if the mark does not come
out where the messages or the tools of a request do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from specdyno.workload.logs.request import Refused, messages_of, tools_of
from specdyno.workload.logs.walk import Walk, walked

MOST = 24 * 1024 * 1024
"""Bytes of texts, about, that are held at once; then all is forgotten and learned anew."""
SMALL = 16 * 1024
"""Bytes: shorter rows are read in full, since learning them takes as long as reading them."""
STRANGE = (TypeError, ValueError, AttributeError, KeyError, RecursionError, OverflowError)
"""Nobody checks what logs hold."""
_WINDOW = 96  # bytes by which a beginning is found; then it is compared whole
_ALIKE = 8  # beginnings with the same window
_PATIENCE = 200  # rows
_GAIN = 8  # rows that may be looked at in vain for one that is not
_TRIES = 3
_MARK, _TOKEN = "specdyno.known", os.urandom(8).hex()  # a log cannot hold what is drawn by chance now
_MARK_MESSAGES = orjson.dumps({_MARK: _TOKEN})
_MARK_TOOLS = orjson.dumps({"name": _TOKEN})
_JSON_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Style:
    """How a log writes what is looked for: with or without spaces between the parts of JSON."""

    messages: bytes
    tools: bytes
    ends: tuple[bytes, ...]
    next_object: bytes
    next_role: bytes
    system: tuple[bytes, ...]


def _style(key: str, space: str) -> _Style:
    def written(text: str) -> bytes:
        return text.replace("~", space).encode()

    return _Style(
        written(f'"{key}":~[{{'), written('"tools":~[{'), (written('}],~"'), b"}]}"),
        written('},~{"'), written('},~{"role":~'),
        (written('{"role":~"system"'), written('{"role":~"developer"')),
    )  # fmt: skip


_STYLES = [_style(key, space) for key in ("messages", "input") for space in ("", " ")]
_ANSWER = b'"assistant"'


@dataclass(slots=True)
class Part:
    """Messages that follow a beginning: as they are written, and the walk over all messages up to their end."""

    written: bytes
    walk: Walk
    following: dict[bytes, Part] = field(default_factory=dict)
    other: Part | None = None  # with the same window
    alike: int = 1


@dataclass(slots=True)
class Tools:
    """A list of tools as it is written in a log, as requests hold it, and that as JSON."""

    written: bytes
    tools: list[Any]
    dumped: bytes
    other: Tools | None = None
    alike: int = 1


@dataclass(slots=True)
class Short:
    """A row without what is known of it. `walk` is where its messages go on, `tools` are those that were cut out."""

    row: bytes
    walk: Walk
    tools: Tools | None

    def holds(self, messages: Sequence[Mapping[str, Any]] | None, tools: Sequence[Any] | None) -> bool:
        """Whether the marks came out as the first of a request's messages and as its tools."""
        if not messages or messages[0].get(_MARK) != _TOKEN:
            return False
        return self.tools is None or (tools is not None and tools[0]["function"]["name"] == _TOKEN)


class _Luck:
    """Whether it is worth looking: after many rows of no use, only now and then."""

    __slots__ = ("_left", "_passed")

    def __init__(self) -> None:
        self._left, self._passed = _PATIENCE, 0

    def __bool__(self) -> bool:
        if self._left > 0:
            return True
        self._passed += 1
        return self._passed % 16 == 0

    def found(self, *, use: bool) -> None:
        self._left = min(_PATIENCE, self._left + _GAIN) if use else max(0, self._left - 1)

    def lost(self) -> None:
        self._left = max(0, self._left - 20)


class Beginnings:
    """What one process has read so far; `held` is about how many bytes of it, at most `most` and one row."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._styles = list(_STYLES)
        self._luck, self._luck_of_tools = _Luck(), _Luck()
        self._forget()

    def _forget(self) -> None:
        self.held = 0
        self._root = Part(b"", Walk())
        self._tools: dict[bytes, Tools] = {}

    def shortened(self, data: bytes, start: int, end: int) -> Short | None:
        """The row of `data` from `start` to `end` without what is known of it; None where it is to be read in full."""
        if end - start < SMALL or not self._luck:
            return None
        if self.held > self._most:
            self._forget()
        place, stop, walk = self._messages(data, start, end)
        if walk is None:
            return None
        tools, begin = self._tools_of(data, start, place, stop, end) if self._luck_of_tools else (None, 0)
        if tools is None:
            return Short(b"".join((data[start:place], _MARK_MESSAGES, data[stop:end])), walk, None)
        after = begin + len(tools.written)
        if begin >= stop:
            pieces = (data[start:place], _MARK_MESSAGES, data[stop:begin], _MARK_TOOLS, data[after:end])
        else:
            pieces = (data[start:begin], _MARK_TOOLS, data[after:place], _MARK_MESSAGES, data[stop:end])
        return Short(b"".join(pieces), walk, tools)

    def lost(self) -> None:
        """A shortened row had to be read in full after all."""
        self._luck.lost()

    def _messages(self, data: bytes, start: int, end: int) -> tuple[int, int, Walk | None]:
        """Where the messages of a row begin, where those that are known by now end, and the walk over these."""
        for style in self._styles:
            place = data.find(style.messages, start, end)
            if place >= 0:
                break
        else:
            self._luck.found(use=False)
            return start, start, None
        if style is not self._styles[0]:
            self._styles.remove(style)
            self._styles.insert(0, style)
        place += len(style.messages) - 1
        part, stop = self._known(data, place)
        self._luck.found(use=4 * (stop - place) >= end - start)
        if part is self._root and data.startswith(style.system, place):  # the same for many conversations
            cut = data.find(style.next_object, place, end) + 1
            part, stop = (cut and self._added(data, part, place, cut)) or (part, stop)
        if data.startswith((b",", b"{"), stop):
            part, stop = self._learned(data, part, stop, end, style)
        return place, stop, None if part is self._root else part.walk

    def _known(self, data: bytes, place: int) -> tuple[Part, int]:
        part = self._root
        while True:
            found = part.following.get(data[place : place + _WINDOW])
            while found is not None and not data.startswith(found.written, place):
                found = found.other
            if found is None:
                return part, place
            part = found
            place += len(found.written)

    def _learned(self, data: bytes, part: Part, start: int, end: int, style: _Style) -> tuple[Part, int]:
        """The part that holds the rest of the messages, but for an answer at their end: that is no history yet."""
        for sign in style.ends:
            stop = start
            for _ in range(_TRIES):
                stop = data.find(sign, stop, end) + 1
                if not stop:
                    break
                last = data.rfind(style.next_role, start, stop)
                answered = last > start and data.startswith(_ANSWER, last + len(style.next_role))
                found = self._added(data, part, start, last + 1 if answered else stop)
                if found is not None:
                    return found
        return part, start

    def _added(self, data: bytes, part: Part, start: int, stop: int) -> tuple[Part, int] | None:
        """Adds the messages that are written from `start` to `stop`; None where these are no whole messages."""
        written = data[start:stop]
        try:
            messages = orjson.loads(b"[%b]" % written[written.index(b"{") :])
            if messages[-1].get("role") == "assistant":
                return None
            walk = walked(messages_of(messages), part.walk)
        except (Refused, *STRANGE):
            return None
        made = Part(written, walk)
        _put(part.following, data[start : start + _WINDOW], made)
        # The last question's text is held too.
        self.held += 2 * len(written) + 8 * len(walk.prefixes) + 64 * len(walk.calls) + 1000
        return made, stop

    def _tools_of(self, data: bytes, start: int, place: int, stop: int, end: int) -> tuple[Tools | None, int]:
        """The known tools after or before the messages, and where they begin."""
        sign = self._styles[0].tools
        begin = data.find(sign, stop, end)
        if begin < 0:
            begin = data.find(sign, start, place)
        if begin < 0:
            return None, 0
        begin += len(sign) - 1
        window = data[begin : begin + _WINDOW]
        found = self._tools.get(window)
        while found is not None and not data.startswith(found.written, begin):
            found = found.other
        self._luck_of_tools.found(use=found is not None)
        if found is None:
            found = _read_tools(data, begin, end if begin > stop else place)
            if found is not None:
                _put(self._tools, window, found)
                self.held += 4 * len(found.written) + 1000
        return found, begin


_Kept = TypeVar("_Kept", Part, Tools)


def _put(places: dict[bytes, _Kept], window: bytes, made: _Kept) -> None:
    other = places.get(window)
    if other is not None and other.alike < _ALIKE:
        made.other, made.alike = other, other.alike + 1
    places[window] = made


def _read_tools(data: bytes, begin: int, end: int) -> Tools | None:
    """The list of tools whose first entry is written at `begin`."""
    depth = 1
    for match in _JSON_TOKEN.finditer(data, begin, end):
        token = match.group()
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        if depth:
            continue
        written = data[begin : match.start()]
        try:
            tools = tools_of(orjson.loads(b"[%b]" % written))
        except STRANGE:
            return None
        return Tools(written, tools, orjson.dumps(tools)) if tools else None
    return None
