"""Most of a stream at little cost: events that differ in their text alone are not parsed one by one.

Owns `take_apart`, which gives for any reads what `chunks.unchunked` and `stream.read_stream` give for them. An event is
parsed as ever; where a trial shows that its only effect is one piece of text, the bytes around that text are kept as a
`Template`. An event of the same bytes around another string has that string's effect, since nothing else is read from
it. Whatever does not match, byte for byte, is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from typing import cast

import numpy as np
import orjson

from specdyno.load.chunks import LINE_END, Chunks, Reads
from specdyno.load.stream import Answer, Assembly

_TEXTS = re.compile(rb'"(?:content|reasoning_content|reasoning|text|arguments)"\s*:\s*"([^"\\]*+(?:\\.[^"\\]*+)*+)"')
# Texts, one a line, none of which ends its string early or opens an escape at its end: joining them keeps them apart.
_STRINGS = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+')
_ID = re.compile(rb'"id":\s?"[\w-]+"')
_CREATED = re.compile(rb'"created":\s?[1-9]\d{0,15}(?=[,}])')
_BLANK = b"\n\n"
_TRIAL = "\u00b6 trial"
_NEAR = 2_000  # bytes; longer events are parsed
_MANY = 4_096  # bytes of a read
_TRIALS = 2  # texts that are tried within one event
_CREDIT = 8  # trials that may fail in a row: a stream whose events all differ is parsed without more of them

Place = Callable[[Assembly, Sequence[str]], object]


@dataclass(slots=True)
class TakenApart:
    """What reads held: the answer, what is wrong with its chunks, and the stamps of its first and last bytes."""

    answer: Answer
    problem: str = ""
    first_ns: int | None = None
    last_ns: int | None = None


def take_apart(reads: Reads, *, chunked: bool) -> TakenApart:
    """A stream's reads, HTTP chunks where `chunked`, to its facts."""
    taking = _Taking(reads, chunked=chunked)
    while taking.goes_on:
        if not taking.alike():
            taking.one()
    return taking.finish()


class _Taking:
    """One stream being read: by its template as far as that goes, by parsing where it does not."""

    def __init__(self, reads: Reads, *, chunked: bool) -> None:
        self._reads, self._body = reads, bytes(reads.data)
        self._chunks = Chunks() if chunked else None
        self._assembly = Assembly()
        self._template: Template | None = None
        self._event = b""  # parsed last: its template is made where what follows looks like it
        self._credit = _CREDIT
        self._at = self._read = 0  # the byte to look at next, and the read that brought it
        self._stamps: list[int] = []

    @property
    def goes_on(self) -> bool:
        return self._at < len(self._body) and not (self._chunks and self._chunks.over)

    def alike(self) -> bool:
        """Whether the template took the event at hand; it takes those that follow, too."""
        between = self._assembly.between and (self._chunks is None or self._chunks.between)
        if not between or not (self._learnt() if self._event else self._template):
            return False
        assert self._template is not None  # noqa: S101 - for the type checker
        texts, ends = self._template.texts(self._body, self._at)
        if not texts:
            return False
        if (pieces := _strings(texts)) is None:
            self._template, self._credit = None, 0
            return False
        self._add(pieces, ends)
        return True

    def one(self) -> None:
        """Parse up to the end of the read; of an event, where many may follow it."""
        at, end, stamp_ns = self._at, self._reads.ends[self._of(self._at)], self._reads.stamps[self._read]
        if end - at > _MANY and (blank := self._body.find(_BLANK, at, end)) >= 0:
            end = min(end, blank + len(_BLANK) + (len(LINE_END) if self._chunks else 0))
        self._at, piece = end, self._body[at:end]
        parts = [piece] if self._chunks is None else self._chunks.feed(piece)
        if parts:
            self._stamps.append(stamp_ns)
            self._assembly.feed(b"".join(parts), stamp_ns)
            self._event = parts[-1] if self._credit else b""

    def _of(self, at: int) -> int:
        """Which read brought this byte, which lies in no earlier one than the last that was asked for."""
        while self._reads.ends[self._read] <= at:
            self._read += 1
        return self._read

    def _learnt(self) -> bool:
        """Whether there is a template, after the event parsed last was tried where what follows looks like it."""
        event, self._event = self._event, b""
        if self._template is not None and event.startswith(self._template.head):
            return True
        near = self._body[self._at : self._at + 2 * len(event)]
        for found in islice(_TEXTS.finditer(event), _TRIALS):
            head, tail = event[: found.start(1)], event[found.end(1) :]
            if not self._credit or head not in near or tail not in near:
                continue
            self._credit -= 1
            if (place := place_of(head, tail)) is not None:
                self._template = Template(head, tail, place, chunked=self._chunks is not None)
                break
        return self._template is not None

    def _add(self, pieces: list[str], ends: list[int]) -> None:
        """Add the texts of events that end before these bytes of the body."""
        template = cast("Template", self._template)
        stamps = self._stamps_of(ends, template)
        self._at = ends[-1]
        self._credit = min(_CREDIT, self._credit + len(pieces))
        sizes = [len(piece) for piece in pieces]
        if 0 in sizes:
            stamps = [stamp_ns for stamp_ns, size in zip(stamps, sizes, strict=True) if size]
            sizes = [size for size in sizes if size]
        template.place(self._assembly, pieces)
        self._assembly.answer.chunk_ns += stamps
        self._assembly.answer.chunk_chars += sizes

    def _stamps_of(self, ends: list[int], template: Template) -> list[int]:
        """The stamp of the read that brought the end of each event's data; its last byte may come later."""
        reads, first = self._reads, self._of(self._at)
        last = first + len(ends)
        if reads.ends[first:last].tolist() == ends:  # a read for each
            stamps = reads.stamps[first:last].tolist()
            self._stamps.append(stamps[-1])
            return stamps
        data_ends = np.array(ends) - template.after_data
        body_end = ends[-1] - 1 - (len(LINE_END) if template.chunked else 0)
        places = np.searchsorted(np.frombuffer(reads.ends, np.int64), np.append(data_ends, body_end), side="right")
        found: list[int] = np.frombuffer(reads.stamps, np.int64)[places].tolist()
        self._stamps.append(found.pop())
        return found

    def finish(self) -> TakenApart:
        problem = self._chunks.problem if self._chunks is not None else ""
        first_ns, last_ns = (self._stamps[0], self._stamps[-1]) if self._stamps else (None, None)
        return TakenApart(self._assembly.finish(), problem, first_ns, last_ns)


@dataclass(slots=True)
class Template:
    """An event's bytes around its text, and where that text goes."""

    head: bytes
    tail: bytes
    place: Place
    chunked: bool
    after_data: int = field(init=False)  # bytes from the line end of the text on
    _heads: dict[int, bytes] = field(default_factory=dict)  # with a chunk's size, by the length of the whole

    def __post_init__(self) -> None:
        self.tail += LINE_END if self.chunked else b""
        self.after_data = len(self.tail) - self.tail.index(b"\n")

    def texts(self, body: bytes, at: int) -> tuple[list[bytes], list[int]]:
        """The texts of the events from `at` on that fit, as they stand there, and where each event ends."""
        texts, ends = list[bytes](), list[int]()
        heads, tail, least = self._heads, self.tail, len(self.head)
        most = least + _NEAR  # a search in a short stretch needs no preparation
        while (text_end := body.find(tail, at + least, at + most)) >= 0:
            end = text_end + len(tail)
            head = heads.get(end - at) or self._sized(end - at)
            if not body.startswith(head, at):
                break
            texts.append(body[at + len(head) : text_end])
            ends.append(end)
            at = end
        return texts, ends

    def _sized(self, length: int) -> bytes:
        """The head of an event of this length; longer than that where no chunk, or no text, makes it so long."""
        size = _size_line(length) if self.chunked else b""
        head = self.head if size is None else size + self.head
        fits = size is not None and len(head) + len(self.tail) <= length
        self._heads[length] = head if fits else bytes(length + 1)
        return self._heads[length]


def _strings(texts: list[bytes]) -> list[str] | None:
    """What JSON strings of these bytes say; None where one is none."""
    lines = b"\n".join(texts)
    if not _STRINGS.fullmatch(lines):
        return None
    try:
        pieces: list[str] = orjson.loads(b'["%s"]' % lines.replace(b"\n", b'","'))
    except orjson.JSONDecodeError:
        return None
    return pieces if len(pieces) == len(texts) else None


@lru_cache(maxsize=4096)
def _size_line(length: int) -> bytes | None:
    """What a chunk of this length as a whole begins with, as servers write it; None where no chunk is so long."""
    whole = length - 2 * len(LINE_END)
    sizes = [b"%x" % (whole - digits) for digits in range(1, min(9, whole))]
    return next((size + LINE_END for size in sizes if int(size, 16) + len(size) == whole), None)


def place_of(head: bytes, tail: bytes) -> Place | None:
    """Where the text between these bytes goes; None where an event of them has any other effect."""
    # Of an id it matters at most whether there is one, and of a time nothing: so requests share what was found out.
    return _tried_place(_CREATED.sub(b'"created":1', _ID.sub(b'"id":"x"', head)), tail)


@lru_cache(maxsize=1024)
def _tried_place(head: bytes, tail: bytes) -> Place | None:
    """By trial: an empty text must have no effect, and another only its own."""
    empty, trial = _tried(head, b"", tail), _tried(head, _TRIAL.encode(), tail)
    if empty is None or trial is None:
        return None
    stamped = partial(Answer, chunk_ns=[0], chunk_chars=[len(_TRIAL)])
    before, after = empty.finish(), trial.finish()
    if before == Answer() and after == stamped(text=_TRIAL):
        return lambda assembly, pieces: assembly.text.extend(pieces)
    if before == Answer() and after == stamped(reasoning=_TRIAL):
        return lambda assembly, pieces: assembly.reasoning.extend(pieces)
    if before == Answer(tool_calls=[_call("")]) and after == stamped(tool_calls=[_call(_TRIAL)]):
        return partial(_add_arguments, next(iter(trial.calls)))
    return None


def _tried(head: bytes, text: bytes, tail: bytes) -> Assembly | None:
    """None where an event would not be whole with the line of this text, or not end with its last byte."""
    assembly = Assembly()
    line_end = tail.find(b"\n") + 1
    assembly.feed(head + text + tail[:line_end], 0)
    whole = line_end > 0 and assembly.between
    assembly.feed(tail[line_end:], 0)
    return assembly if whole and assembly.between else None


def _call(arguments: str) -> dict[str, object]:
    return {"id": None, "name": "", "arguments": arguments}


def _add_arguments(index: int, assembly: Assembly, pieces: Sequence[str]) -> None:
    assembly.call(index)["arguments"] += "".join(pieces)
