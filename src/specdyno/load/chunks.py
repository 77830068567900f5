"""HTTP chunks taken apart, after the timed part.

Owns the framing of a chunked body as its reads brought it, cut at any byte. It looks into no chunk.
"""

from __future__ import annotations

Reads = list[tuple[int, bytes]]

_OPEN = "the connection was closed within the answer"
_LINE_END = b"\r\n"


class Chunks:
    """Reads in, the data of chunks out. `problem` says what is wrong with a body that ends here, "" where nothing is."""

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
                if left > len(_LINE_END):
                    parts.append(data[at : min(at + left - len(_LINE_END), end)])
                self._left -= end - at
                at = end
                continue
            line_end = data.find(_LINE_END, at)
            if line_end < 0:
                self._rest = data[at:]
                break
            self._begin(_size(data[at:line_end]))
            at = line_end + len(_LINE_END)
        return parts

    def _begin(self, size: int | None) -> None:
        if size:
            self._left = size + len(_LINE_END)
        else:
            self.over = True
            self.problem = "" if size == 0 else "the answer is cut into chunks without a size"


def unchunked(reads: Reads) -> tuple[Reads, str]:
    """The body of chunked reads, each part with the stamp of the read that brought it, and what is wrong with it."""
    chunks, body = Chunks(), Reads()
    for stamp_ns, read in reads:
        if parts := chunks.feed(read):
            body.append((stamp_ns, parts[0] if len(parts) == 1 else b"".join(parts)))
        if chunks.over:
            break
    return body, chunks.problem


def _size(line: bytes) -> int | None:
    try:
        size = int(line.partition(b";")[0] if b";" in line else line, 16)
    except ValueError:
        return None
    return size if size >= 0 else None
