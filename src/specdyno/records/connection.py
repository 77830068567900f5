"""How a study's file is opened: which files are refused, and with which promises about commits.

Owns the connection's settings. Checks come before anything that could write to the file, so that a foreign or newer
database stays as it is, byte for byte.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from specdyno.errors import RecordError
from specdyno.records.faults import explained
from specdyno.records.migrations import APPLICATION_ID, upgrade, version_of
from specdyno.records.schema import SCHEMA_VERSION


def connect(path: Path, *, write: bool, busy_timeout_s: float) -> sqlite3.Connection:
    """A connection in autocommit mode to an existing study, brought to the newest shape. RecordError if it is none."""
    if not path.is_file():
        raise RecordError(f"{path}: there is no study here. Name a folder that `specdyno run` wrote.")
    with explained(path):
        connection = _connect(path, write=write, busy_timeout_s=busy_timeout_s)
        try:
            _check(connection, path)
            if version_of(connection) < SCHEMA_VERSION:
                upgrade(connection)
            _configure(connection, write=write)
        except BaseException:
            connection.close()
            raise
    return connection


def connect_new(path: Path) -> sqlite3.Connection:
    """A connection in autocommit mode to a new, empty study: the tables of the newest shape, no header yet."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        upgrade(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, *, write: bool, busy_timeout_s: float) -> sqlite3.Connection:
    effective = os.access in os.supports_effective_ids
    writable = all(os.access(place, os.W_OK, effective_ids=effective) for place in (path, path.parent))
    log = path.with_name(f"{path.name}-wal")
    mode = "mode=rw"
    if not write and not writable:
        # Without a log beside it nobody is writing, and SQLite need not make the files it shares with a writer.
        mode = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?{mode}",
        uri=True,
        timeout=busy_timeout_s,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.row_factory = sqlite3.Row
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise RecordError(
            f"{path}: this database is empty or belongs to another program. Name a study that specdyno wrote."
        )
    if (version := version_of(connection)) > SCHEMA_VERSION:
        raise RecordError(
            f"{path}: a newer specdyno wrote this study (schema {version}, this one knows {SCHEMA_VERSION}). "
            "Nothing was changed. Upgrade specdyno and try again."
        )


def _configure(connection: sqlite3.Connection, *, write: bool) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    if not write:
        connection.execute("PRAGMA query_only = ON")
        return
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    # NORMAL: a commit reaches the kernel, so no death of this process loses it. FULL would add a disk flush per
    # request, on the host that is being measured, only to keep requests of a boot that a power cut voids anyway. When
    # a boot ends, `_sync` flushes it.
    connection.execute("PRAGMA synchronous = NORMAL")
