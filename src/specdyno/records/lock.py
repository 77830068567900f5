"""One running specdyno per study.

Owns `.lock` in the study's folder. The lock belongs to the process, not to the file: the kernel lets go of it when the
holder dies, however it dies, so a file left behind blocks nobody. Not for file systems without `flock`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specdyno.errors import RecordError

LOCK_NAME = ".lock"


@contextmanager
def lock_study(study: Path) -> Iterator[None]:
    """Hold the folder `study` for this process. RecordError if another live process holds it, naming its pid."""
    path = study / LOCK_NAME
    try:
        # Close-on-exec (Python's default): an engine that outlives us must not keep the lock.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RecordError(
            f"{path}: cannot be opened ({error.strerror}). Check that the folder exists and can be written."
        ) from error
    try:
        _take(descriptor, path)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        # Not removed: another process may wait on this very file, and a third would make and lock a new one.
        os.close(descriptor)


def _take(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        raise RecordError(
            f"{path.parent}: another specdyno is measuring this study (pid {holder}). Wait for it, or end it first."
        ) from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be locked ({error.strerror}). Keep the study on a local disk.") from error
