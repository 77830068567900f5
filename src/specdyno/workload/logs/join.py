"""The two halves of an OpenAI batch, requests and results, joined by `custom_id` across files.

Owns an index of hashes and places, so that a result is read from its file when its request comes by; 30 bytes a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

_SIGN = b'"custom_id"'
_LOOKED_AT = 4 * 1024 * 1024


class Results:
    """The results of all batches of an import. Can be sent to another process, which opens the files itself."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        asked: list[int] = []
        places: list[tuple[int, int, int, int]] = []
        for number, path in enumerate(paths):
            _index(path, number, asked=asked, places=places)
        self._asked = np.unique(np.array(asked, np.uint64))
        table = np.array(places, np.uint64).reshape(-1, 4)
        self._places = table[np.argsort(table[:, 0], kind="stable")]

    def __bool__(self) -> bool:
        return len(self._places) > 0

    def asked(self, custom_id: Any) -> bool:
        """Whether any file holds the request of this id."""
        place = int(np.searchsorted(self._asked, np.uint64(_hash(custom_id))))
        return place < len(self._asked) and int(self._asked[place]) == _hash(custom_id)

    def of(self, custom_id: Any) -> dict[str, Any] | None:
        """The result of this id; the first one, where there are several."""
        wanted = _hash(custom_id)
        place = int(np.searchsorted(self._places[:, 0], np.uint64(wanted)))
        if place >= len(self._places) or int(self._places[place, 0]) != wanted:
            return None
        _, number, start, size = (int(value) for value in self._places[place])
        with self._paths[number].open("rb") as file:
            file.seek(start)
            row = orjson.loads(file.read(size))
        return row if row.get("custom_id") == custom_id else None


def holds_batches(path: Path) -> bool:
    """Whether a file's beginning or end names a `custom_id`."""
    with path.open("rb") as file:
        if _SIGN in file.read(_LOOKED_AT):
            return True
        file.seek(max(0, path.stat().st_size - _LOOKED_AT))
        return _SIGN in file.read(_LOOKED_AT)


def _hash(custom_id: Any) -> int:
    return int.from_bytes(hashlib.blake2b(str(custom_id).encode(), digest_size=8).digest(), "big")


def _index(path: Path, number: int, *, asked: list[int], places: list[tuple[int, int, int, int]]) -> None:
    start = 0
    with path.open("rb") as file:
        for line in file:
            if _SIGN in line:
                try:
                    row = orjson.loads(line)
                except orjson.JSONDecodeError:
                    row = None
                if isinstance(row, dict) and "custom_id" in row:
                    if isinstance(row.get("body"), dict):
                        asked.append(_hash(row["custom_id"]))
                    elif "response" in row or "error" in row:
                        places.append((_hash(row["custom_id"]), number, start, len(line)))
            start += len(line)
