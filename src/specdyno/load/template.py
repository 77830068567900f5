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
from functools import partial
from itertools import islice

import orjson

from specdyno.load.chunks import Chunks, Reads
from specdyno.load.stream import Answer, Assembly

_TEXTS = re.compile(rb'"(?:content|reasoning_content|reasoning|text|arguments)"\s*:\s*"([^"\\]*+(?:\\.[^"\\]*+)*+)"')
# Texts, one a line, none of which ends its string early or opens an escape at its end: joining them keeps them apart.
_STRINGS = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+')
_TRIAL = "\u00b6 trial"
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
    """A stream's reads (stamp in ns, bytes), HTTP chunks where `chunked`, to its facts."""
    taking = _Taking(chunked=chunked)
    at = 0
    while at < len(reads) and not taking.over:
        used = taking.alike(reads, at)
        if not used:
            taking.one(*reads[at])
        at += used or 1
    return taking.finish()


class _Taking:
    """One stream being read: by its template as far as that goes, by parsing where it does not."""

    def __init__(self, *, chunked: bool) -> None:
        self._chunks = Chunks() if chunked else None
        self._assembly = Assembly()
        self._template: Template | None = None
        self._event = b""  # parsed last: its template is made where the next read looks like it
        self._credit = _CREDIT
        self._stamps: list[int] = []

    @property
    def over(self) -> bool:
        return self._chunks is not None and self._chunks.over

    def alike(self, reads: Reads, at: int) -> int:
        """How many reads from `at` on the template took."""
        between = self._assembly.between and (self._chunks is None or self._chunks.between)
        if not between or not (self._learnt(reads[at][1]) if self._event else self._template):
            return 0
        assert self._template is not None  # noqa: S101 - for the type checker
        used = self._template.take(reads, at, self._assembly)
        if used is None:
            self._template, self._credit = None, 0
        elif used:
            self._stamps += (reads[at][0], reads[at + used - 1][0])
            self._credit = min(_CREDIT, self._credit + used)
        return used or 0

    def one(self, stamp_ns: int, read: bytes) -> None:
        """Parse what one read brought."""
        parts = [read] if self._chunks is None else self._chunks.feed(read)
        if parts:
            self._stamps.append(stamp_ns)
            self._assembly.feed(b"".join(parts), stamp_ns)
            self._event = parts[-1] if self._credit else b""

    def _learnt(self, read: bytes) -> bool:
        """Whether there is a template, after the event parsed last was tried where the next read has the same ends."""
        event, self._event = self._event, b""
        if self._template is not None and event.startswith(self._template.head):
            return True
        for found in islice(_TEXTS.finditer(event), _TRIALS):
            head, tail = event[: found.start(1)], event[found.end(1) :]
            if not self._credit or head not in read or tail not in read:
                continue
            self._credit -= 1
            if (place := place_of(head, tail)) is not None:
                self._template = Template(head, tail, place, chunked=self._chunks is not None)
                break
        return self._template is not None

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
    _heads: dict[int, bytes] = field(default_factory=dict)  # with a chunk's size, by the length of the whole

    def __post_init__(self) -> None:
        self.tail += b"\r\n" if self.chunked else b""

    def take(self, reads: Reads, at: int, assembly: Assembly) -> int | None:
        """Add the reads from `at` on that are such events; how many, or None where a text is no JSON string."""
        texts, stamps, used = list[bytes](), list[int](), 0
        heads, tail, end = self._heads, self.tail, -len(self.tail)
        for place in range(at, len(reads)):
            stamp_ns, read = reads[place]
            head = heads.get(len(read)) or self._sized(len(read))
            if read.startswith(head) and read.endswith(tail) and (self.chunked or read.count(tail) == 1):
                texts.append(read[len(head) : end])
                stamps.append(stamp_ns)
            elif several := self._several(read):
                texts += several
                stamps += [stamp_ns] * len(several)
            else:
                break
            used += 1
        return used if not texts or self._add(texts, stamps, assembly) else None

    def _several(self, read: bytes) -> list[bytes]:
        """The texts of a read that is nothing but such events; none where it is anything else."""
        *events, rest = read.split(self.tail)
        if rest:
            return []
        lengths = [len(event) + len(self.tail) for event in events]
        heads = [self._heads.get(length) or self._sized(length) for length in lengths]
        if not all(map(bytes.startswith, events, heads)):
            return []
        return [event[len(head) :] for event, head in zip(events, heads, strict=True)]

    def _sized(self, length: int) -> bytes:
        """The head of an event of this length; longer than that where no chunk, or no text, makes it so long."""
        head, whole = self.head, length - 2 * len(b"\r\n")
        if self.chunked:
            sizes = [b"%x" % (whole - digits) for digits in range(1, min(9, whole))]
            size = next((size for size in sizes if int(size, 16) + len(size) == whole), b"")
            head = size + b"\r\n" + head if size else bytes(length)
        self._heads[length] = head if len(head) + len(self.tail) <= length else bytes(length + 1)
        return self._heads[length]

    def _add(self, texts: list[bytes], stamps: list[int], assembly: Assembly) -> bool:
        lines = b"\n".join(texts)
        if not _STRINGS.fullmatch(lines):
            return False
        try:
            pieces: list[str] = orjson.loads(b'["%s"]' % lines.replace(b"\n", b'","'))
        except orjson.JSONDecodeError:
            return False
        if len(pieces) != len(texts):
            return False
        sizes = [len(piece) for piece in pieces]
        if 0 in sizes:
            stamps = [stamp_ns for stamp_ns, size in zip(stamps, sizes, strict=True) if size]
            sizes = [size for size in sizes if size]
        self.place(assembly, pieces)
        assembly.answer.chunk_ns += stamps
        assembly.answer.chunk_chars += sizes
        return True


def place_of(head: bytes, tail: bytes) -> Place | None:
    """Where the text between these bytes goes, by trial: an empty one must have no effect, and another only its own."""
    empty, trial = _tried(head, b"", tail), _tried(head, _TRIAL.encode(), tail)
    if empty is None or trial is None:
        return None
    stamped = {"chunk_ns": [0], "chunk_chars": [len(_TRIAL)]}
    before, after = empty.finish(), trial.finish()
    if before == Answer() and after == Answer(**stamped, text=_TRIAL):
        return lambda assembly, pieces: assembly.text.extend(pieces)
    if before == Answer() and after == Answer(**stamped, reasoning=_TRIAL):
        return lambda assembly, pieces: assembly.reasoning.extend(pieces)
    if before == Answer(tool_calls=[_call("")]) and after == Answer(**stamped, tool_calls=[_call(_TRIAL)]):
        return partial(_add_arguments, next(iter(trial.calls)))
    return None


def _tried(head: bytes, text: bytes, tail: bytes) -> Assembly | None:
    """None where an event with this text would not end with its last byte."""
    assembly = Assembly()
    assembly.feed(head + text + tail, 0)
    return assembly if assembly.between else None


def _call(arguments: str) -> dict[str, object]:
    return {"id": None, "name": "", "arguments": arguments}


def _add_arguments(index: int, assembly: Assembly, pieces: Sequence[str]) -> None:
    assembly.call(index)["arguments"] += "".join(pieces)
