"""The files of one checkpoint, wherever they lie: names, whole small files, ranges of large ones.

Owns the seam between "what a checkpoint's files mean" and "how their bytes are got". A folder answers from disk here;
`hub.HubFiles` answers by range requests. Nothing reads a weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import orjson

from specdyno.errors import PlanError, Problem

_POINTER = b"version https://git-lfs"
_LARGEST_TEXT_BYTES = 200_000_000  # a tokenizer of a million entries is about 100 MB


class Files(Protocol):
    """What the readers ask of a place that holds a checkpoint. `place` says it in a message: a path or a hub id."""

    place: str

    def names(self) -> frozenset[str]:
        """Names of the files at the top level."""
        ...

    def whole(self, name: str) -> bytes:
        """A small file's bytes."""
        ...

    def part(self, name: str, start: int, length: int) -> tuple[bytes, int]:
        """Up to `length` bytes from `start`, fewer at the end of the file; and the file's size in bytes."""
        ...


class FolderFiles:
    """A folder on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = str(folder)

    def names(self) -> frozenset[str]:
        try:
            # A link into nowhere (a cache that was cleaned) is no file.
            return frozenset(entry.name for entry in self.folder.iterdir() if entry.is_file())
        except OSError as error:
            raise unreadable(self.place, error) from error

    def whole(self, name: str) -> bytes:
        path = self.folder / name
        try:
            if path.stat().st_size > _LARGEST_TEXT_BYTES:
                raise wrong(
                    f"{path} has {path.stat().st_size} bytes, too many for such a file", "Name the right folder"
                )
            return path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from error

    def part(self, name: str, start: int, length: int) -> tuple[bytes, int]:
        path = self.folder / name
        try:
            with path.open("rb") as file:
                file.seek(start)
                return file.read(length), path.stat().st_size
        except OSError as error:
            raise unreadable(path, error) from error


def wrong(seen: str, remedy: str) -> PlanError:
    """What cannot be this checkpoint, as the author of the plan reads it; the caller fills in the place."""
    return PlanError([Problem("", seen, f"{remedy}.")])


def unreadable(path: Path | str, error: OSError) -> PlanError:
    return wrong(f"{path} cannot be read ({error.strerror or error})", "Check the path and its permissions")


def is_pointer(start: bytes) -> bool:
    """Whether these first bytes (eight are enough) are a Git LFS pointer's: the clone left the file itself out."""
    return len(start) >= 8 and (start.startswith(_POINTER) or _POINTER.startswith(start))


def pointer(place: str) -> PlanError:
    return wrong(
        f"{place} is a Git LFS pointer, not the file itself",
        'Fetch it: "git lfs install && git lfs pull" in the clone, or "hf download ORG/NAME --local-dir FOLDER"',
    )


def load_object(files: Files, name: str) -> Mapping[str, Any]:
    """A JSON file that must hold an object. PlanError for anything else."""
    return parse_object(files.whole(name), f"{files.place}/{name}")


def parse_object(raw: bytes, place: str) -> Mapping[str, Any]:
    if is_pointer(raw[: len(_POINTER)]):
        raise pointer(place)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        empty = "is empty" if not raw.strip() else f"is not JSON ({error})"
        raise wrong(f"{place} {empty}", "Fetch the checkpoint again") from error
    if not isinstance(value, dict):
        raise wrong(f"{place} holds a {type(value).__name__}, not an object", "Fetch the checkpoint again")
    return value
