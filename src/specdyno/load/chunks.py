"""HTTP chunks taken apart, after the timed part.

Owns the framing of a chunked body as its reads brought it, cut at any byte. It looks into no chunk.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

_OPEN = "the connection was closed within the answer"
LINE_END = b"\r\n"


@dataclass(slots=True)
class Reads:
    """Bytes as they came, and the stamp (ns) of each read. Read by read they are (stamp, bytes).

    One buffer, not an object per read: what is read seconds later lies together in memory.
    """

    data: bytearray = field(default_factory=bytearray)
    stamps: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))  # where each read ends in `data`

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, bytes]]) -> Self:
        reads = cls()
        for stamp_ns, data in pairs:
            reads.add(stamp_ns, data)
        return reads

    def add(self, stamp_ns: int, data: bytes) -> None:
        self.data += data
        self.stamps.append(stamp_ns)
        self.ends.append(len(self.data))

    def __len__(self) -> int:
        return len(self.stamps)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        start = 0
        for stamp_ns, end in zip(self.stamps, self.ends, strict=True):
            yield stamp_ns, bytes(self.data[start:end])
            start = end

    @property
    def first_ns(self) -> int | None:
        return self.stamps[0] if self.stamps else None

    @property
    def last_ns(self) -> int | None:
        return self.stamps[-1] if self.stamps else None


class Chunks:
    """Reads in, the data of chunks out. `problem` says what is wrong with a body that ends here; "": nothing."""

    __slots__ = ("_left", "_rest", "over", "problem")

    def __init__(self) -> None:
        self.over = False  # the last chunk has come, or nothing can be read any more
        self.problem = _OPEN
        self._rest = b""  # of the line that holds a size
        self._left = 0  # bytes of the chunk at hand, with the line end that closes it

    @property
    def between(self) -> bool:
        """Whether the next read begins with a chunk."""
        return not (self._left or self._rest or self.over)

    def feed(self, read: bytes) -> list[bytes]:
        """The data that a read brought: one part per chunk, none empty."""
        data, at, parts = self._rest + read, 0, list[bytes]()
        self._rest = b""
        while at < len(data) and not self.over:
            if left := self._left:
                end = min(at + left, len(data))
                if left > len(LINE_END):
                    parts.append(data[at : min(at + left - len(LINE_END), end)])
                self._left -= end - at
                at = end
                continue
            line_end = data.find(LINE_END, at)
            if line_end < 0:
                self._rest = data[at:]
                break
            self._begin(_size(data[at:line_end]))
            at = line_end + len(LINE_END)
        return parts

    def _begin(self, size: int | None) -> None:
        if size:
            self._left = size + len(LINE_END)
        else:
            self.over = True
            self.problem = "" if size == 0 else "the answer is cut into chunks without a size"


def unchunked(reads: Iterable[tuple[int, bytes]]) -> tuple[Reads, str]:
    """The body of chunked reads, each part with the stamp of the read that brought it, and what is wrong with it."""
    chunks, body = Chunks(), Reads()
    for stamp_ns, read in reads:
        if parts := chunks.feed(read):
            body.add(stamp_ns, b"".join(parts))
        if chunks.over:
            break
    return body, chunks.problem


def _size(line: bytes) -> int | None:
    try:
        size = int(line.partition(b";")[0] if b";" in line else line, 16)
    except ValueError:
        return None
    return size if size >= 0 else None
