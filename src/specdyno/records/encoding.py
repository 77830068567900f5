"""Values to SQL and back, without loss.

Owns how text, integers, JSON, chunk stamps and position counts lie in a column. Text is TEXT, or UTF-8 bytes where it
holds a NUL (SQLite's own functions would cut it there) or a lone surrogate (no valid UTF-8). Integers beyond 64 bits
are their decimal digits as bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from operator import sub
from typing import Any

import numpy as np
import numpy.typing as npt

SqlValue = str | bytes | int | float | None
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_CHUNK_HEADER = struct.Struct("<BBII")  # bytes per stamp, bytes per size, number of stamps, number of sizes
_SIZES = {1: "b", 2: "h", 4: "i", 8: "q"}
_ZLIB = b"x"  # what zlib writes first; no width is so large
_PACKED_HEADER = struct.Struct("<BII")  # bytes per size, number of stamps, number of sizes
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def write_text(text: str) -> str | bytes:
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")
    return encoded if "\0" in text else str(text)


def read_text(value: str | bytes) -> str:
    return value.decode(errors="surrogatepass") if isinstance(value, bytes) else value


def write_integer(number: int | None) -> int | bytes | None:
    if number is None or -(2**63) <= number < 2**63:
        return number
    return str(number).encode()


def read_integer(value: int | bytes | None) -> int | None:
    return int(value) if isinstance(value, bytes) else value


def write_json(value: Any) -> str | bytes:
    # Unescaped, because \uXXXX escapes would fuse two lone surrogates into one character when read back.
    return write_text(_to_json(value))


def read_json(value: str | bytes) -> Any:
    return json.loads(read_text(value))


def write_chunks(stamps: Sequence[int], sizes: Sequence[int]) -> bytes | None:
    """Chunk stamps (ns) and sizes (characters), little-endian, in the fewest bytes that hold each. None if empty.

    Stamps are 64 bits, or the first of them and 32-bit differences; sizes 8, 16, 32 or 64 bits. Not compressed: that
    would cost as much as all the rest of storing a request, and save little.
    """
    if not stamps and not sizes:
        return None
    try:
        width, body = 4, struct.pack(f"<q{len(stamps) - 1}i", stamps[0], *map(sub, stamps[1:], stamps))
    except (struct.error, IndexError):
        width, body = 8, struct.pack(f"<{len(stamps)}q", *stamps)
    for size, code in _SIZES.items():
        with suppress(struct.error):
            tail = struct.pack(f"<{len(sizes)}{code}", *sizes)
            return _CHUNK_HEADER.pack(width, size, len(stamps), len(sizes)) + body + tail
    raise OverflowError("the size of a chunk is beyond 64 bits")


def read_chunks(blob: bytes | None) -> tuple[Int64s, Int64s]:
    """Stamps and sizes as written by `write_chunks`; ValueError or zlib.error where the blob is damaged."""
    if blob is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if blob[:1] == _ZLIB:
        return _read_packed(zlib.decompress(blob))
    if len(blob) < _CHUNK_HEADER.size:
        raise ValueError("chunk stamps are cut off")
    width, size, stamp_count, size_count = _CHUNK_HEADER.unpack_from(blob)
    first = 4 * (width == 4)  # the first stamp has 64 bits
    sizes_at = _CHUNK_HEADER.size + width * stamp_count + first
    if width not in (4, 8) or size not in _SIZES or len(blob) != sizes_at + size * size_count:
        raise ValueError("chunk stamps do not fit their header")
    sizes = np.frombuffer(blob, f"<i{size}", size_count, sizes_at).astype(np.int64)
    if width == 8:
        return np.frombuffer(blob, "<i8", stamp_count, _CHUNK_HEADER.size).astype(np.int64), sizes
    stamps = np.empty(stamp_count, np.int64)
    stamps[:1] = np.frombuffer(blob, "<i8", 1, _CHUNK_HEADER.size)
    stamps[1:] = np.frombuffer(blob, "<i4", stamp_count - 1, _CHUNK_HEADER.size + 8)
    return np.cumsum(stamps), sizes


def _read_packed(content: bytes) -> tuple[Int64s, Int64s]:
    """As earlier versions wrote them: differences of 64 bits, and of 32 for sizes, compressed."""
    if len(content) < _PACKED_HEADER.size:
        raise ValueError("chunk stamps are cut off")
    width, stamp_count, size_count = _PACKED_HEADER.unpack_from(content)
    stamps_end = _PACKED_HEADER.size + 8 * stamp_count
    if width not in (4, 8) or len(content) != stamps_end + width * size_count:
        raise ValueError("chunk stamps do not fit their header")
    stamp_steps = np.frombuffer(content, "<i8", stamp_count, _PACKED_HEADER.size)
    size_steps = np.frombuffer(content, f"<i{width}", size_count, stamps_end)
    return np.cumsum(stamp_steps, dtype=np.int64), np.cumsum(size_steps, dtype=np.int64)


def write_counts(reached: Floats, at_risk: Floats) -> bytes:
    """Position counts of one request, K each, as 32-bit floats: exact up to 2^24 steps, and they can hold NaN."""
    return np.stack([reached, at_risk]).astype("<f4").tobytes()


def read_counts(blobs: Sequence[bytes | None], positions: int) -> tuple[Floats, Floats]:
    """Position counts of many requests, (N, positions) each; NaN rows where a request has none.

    Positions beyond a request's own K hold 0, which is measured: no step of it went there. Where its counts at risk
    are unknown they stay NaN in every position.
    """
    reached = np.full((len(blobs), positions), np.nan)
    at_risk = np.full((len(blobs), positions), np.nan)
    sizes = np.fromiter((len(blob) if blob else 0 for blob in blobs), np.int64, len(blobs))
    for size in np.unique(sizes[sizes > 0]).tolist():
        rows = np.flatnonzero(sizes == size)
        joined = b"".join(blob for blob in blobs if blob and len(blob) == size)
        values = np.frombuffer(joined, "<f4").reshape(len(rows), 2, -1)
        own = values.shape[2]
        reached[rows] = 0.0
        reached[rows, :own] = values[:, 0]
        at_risk[rows] = np.where(np.isnan(values[:, 1, :1]), np.nan, 0.0)
        at_risk[rows, :own] = values[:, 1]
    return reached, at_risk
