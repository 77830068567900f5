"""What can be wrong with a study's file, in words.

Owns the mapping from SQLite's result codes to `RecordError`. Codes that no user can act on (a broken constraint, bad
SQL) are bugs and pass through with their traceback.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specdyno.errors import RecordError

_RESCUE = "Restore a copy, or rescue what is left with `sqlite3 FILE .recover`"
_RESUME = "then go on with --resume; everything committed before is kept"

_DAMAGED = ("the database is damaged", _RESCUE)

# Primary result code (https://sqlite.org/rescode.html) -> what was seen, what to do.
_FAULTS: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: ("the disk is full", f"Free some space, {_RESUME}"),
    sqlite3.SQLITE_IOERR: ("the disk could not be read or written", f"Check the disk and its space, {_RESUME}"),
    sqlite3.SQLITE_BUSY: ("another process holds the database", f"Let it finish or end it, {_RESUME}"),
    sqlite3.SQLITE_LOCKED: ("another process holds the database", f"Let it finish or end it, {_RESUME}"),
    sqlite3.SQLITE_READONLY: ("the file or its folder is read-only", "Make both writable, or work on a copy"),
    sqlite3.SQLITE_PERM: ("access is denied", "Make the file and its folder accessible, or work on a copy"),
    sqlite3.SQLITE_CANTOPEN: (
        "the database cannot be opened",
        "Check that the folder exists and that it and the file can be written, or work on a copy",
    ),
    sqlite3.SQLITE_NOTADB: ("this is not a database", "Name a study that specdyno wrote"),
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about the file at `path` into `RecordError`; bugs pass unchanged."""
    try:
        yield
    except sqlite3.Error as error:
        # Absent where Python's own module raises, as it does for TEXT that is no UTF-8.
        code = getattr(error, "sqlite_errorcode", None)
        undecodable = code is None and "decode" in str(error)
        fault = _DAMAGED if undecodable else _FAULTS.get((code or 0) & 0xFF)
        if fault is None:
            raise
        seen, remedy = fault
        raise RecordError(f"{path}: {seen} ({error}). {remedy}.") from error


@contextmanager
def readable(path: Path, what: str) -> Iterator[None]:
    """Turn what decoding a damaged row raises into `RecordError`; SQLite does not check the bytes inside a row."""
    try:
        yield
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise RecordError(
            f"{path}: {what} cannot be read ({type(error).__name__}: {error}). "
            f"It is damaged or was written by another version of specdyno. {_RESCUE}."
        ) from error
