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
from typing import Any

import numpy as np
import numpy.typing as npt

SqlValue = str | bytes | int | float | None
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_CHUNK_HEADER = struct.Struct("<BII")  # bytes per size, number of stamps, number of sizes
_INT32_MAX = 2**31 - 1


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
    return write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def read_json(value: str | bytes) -> Any:
    return json.loads(read_text(value))


def write_chunks(stamps: Sequence[int], sizes: Sequence[int]) -> bytes | None:
    """Chunk stamps (ns) as 64-bit and sizes (characters) as 32-bit differences, little-endian, zlib. None if empty."""
    if not stamps and not sizes:
        return None
    widest = max((abs(size) for size in sizes), default=0)
    width = 4 if 2 * widest <= _INT32_MAX else 8
    # Differences may wrap around; the sum on reading wraps back.
    stamp_steps = np.diff(np.array(stamps, dtype="<i8"), prepend=np.int64(0)).astype("<i8")
    size_steps = np.diff(np.array(sizes, dtype="<i8"), prepend=np.int64(0)).astype(f"<i{width}")
    header = _CHUNK_HEADER.pack(width, len(stamps), len(sizes))
    return zlib.compress(header + stamp_steps.tobytes() + size_steps.tobytes())


def read_chunks(blob: bytes | None) -> tuple[Int64s, Int64s]:
    """Stamps and sizes as written by `write_chunks`; ValueError or zlib.error where the blob is damaged."""
    if blob is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    content = zlib.decompress(blob)
    if len(content) < _CHUNK_HEADER.size:
        raise ValueError("chunk stamps are cut off")
    width, stamp_count, size_count = _CHUNK_HEADER.unpack_from(content)
    stamps_end = _CHUNK_HEADER.size + 8 * stamp_count
    if width not in (4, 8) or len(content) != stamps_end + width * size_count:
        raise ValueError("chunk stamps do not fit their header")
    stamp_steps = np.frombuffer(content, "<i8", stamp_count, _CHUNK_HEADER.size)
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
