"""Files appear whole or not at all: written beside their place, then renamed into it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from specdyno.errors import RecordError


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` once the block ends without an exception.

    Raises `RecordError` where the folder cannot be written or the disk is full; an older file then stays as it was.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as problem:
        seen = problem.strerror or problem
        raise RecordError(f"{path} could not be written: {seen}. Free space or choose another folder.") from problem
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write(path: Path, text: str) -> Path:
    """Writes `text` as UTF-8 with the same promise."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
    return path
