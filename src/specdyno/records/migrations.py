"""The shapes a study's database has had, oldest first, and the way from one to the next.

Append only: a published migration is never edited, since files written by it are out there. Version n is the file
after the first n entries of `MIGRATIONS`; it stands in `PRAGMA user_version`. `docs/records.md` explains the columns.

History
    1   first shape: study, boot, window, request, answer, counter_sample, finding
    2   how a window's requests arrive (concurrency 0: open loop), the session, turn and phase of a request
    3   memory that each arm was expected to take
    4   recorded parts in the history of a session's turn
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

APPLICATION_ID = 0x53504459  # "SPDY" in the file's header: tells a study from another program's database

_FIRST = (
    """
    CREATE TABLE study (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        plan TEXT NOT NULL,
        plan_yaml TEXT NOT NULL,
        plan_sha256 TEXT NOT NULL,
        created_unix_ns INTEGER NOT NULL,
        provenance TEXT NOT NULL,
        sizing TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE boot (
        id INTEGER PRIMARY KEY,
        block INTEGER NOT NULL,
        arm TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        position INTEGER NOT NULL,
        status TEXT NOT NULL,
        started_ns INTEGER NOT NULL,
        started_unix_ns INTEGER NOT NULL,
        ready_ns INTEGER,
        ended_ns INTEGER,
        ended_unix_ns INTEGER,
        command TEXT NOT NULL,
        identity TEXT,
        failure TEXT NOT NULL,
        log_path TEXT NOT NULL,
        pid INTEGER,
        pid_started REAL,
        memory_bytes INTEGER,
        UNIQUE (block, arm, attempt)
    )
    """,
    """
    CREATE TABLE window (
        id INTEGER PRIMARY KEY,
        boot_id INTEGER NOT NULL REFERENCES boot (id),
        load TEXT NOT NULL,
        kind TEXT NOT NULL,
        class_name TEXT,
        concurrency INTEGER NOT NULL,
        planned INTEGER NOT NULL,
        started_ns INTEGER NOT NULL,
        ended_ns INTEGER,
        client_lag_max_ns INTEGER,
        host_busy REAL
    )
    """,
    """
    CREATE TABLE request (
        id INTEGER PRIMARY KEY,
        window_id INTEGER NOT NULL REFERENCES window (id),
        list_index INTEGER NOT NULL,
        prompt_id TEXT NOT NULL,
        class_name TEXT NOT NULL,
        outcome TEXT NOT NULL,
        intended_ns INTEGER NOT NULL,
        sent_ns INTEGER NOT NULL,
        first_byte_ns INTEGER,
        first_text_ns INTEGER,
        last_text_ns INTEGER,
        last_byte_ns INTEGER,
        longest_gap_ns INTEGER,
        chunks INTEGER NOT NULL,
        status INTEGER,
        finish_reason TEXT,
        prompt_tokens INTEGER,
        completion_tokens INTEGER,
        cached_tokens INTEGER,
        reasoning_tokens INTEGER,
        max_tokens INTEGER,
        spec_source TEXT,
        spec_steps INTEGER,
        spec_drafted INTEGER,
        spec_accepted INTEGER,
        spec_counts BLOB,
        UNIQUE (window_id, list_index)
    )
    """,
    """
    CREATE TABLE answer (
        request_id INTEGER PRIMARY KEY REFERENCES request (id),
        prompt_sha256 TEXT NOT NULL,
        error TEXT NOT NULL,
        text TEXT NOT NULL,
        reasoning TEXT NOT NULL,
        tool_calls TEXT NOT NULL,
        spec TEXT,
        chunk_stamps BLOB
    )
    """,
    """
    CREATE TABLE counter_sample (
        id INTEGER PRIMARY KEY,
        window_id INTEGER NOT NULL REFERENCES window (id),
        moment TEXT NOT NULL CHECK (moment IN ('before', 'after')),
        stamp_ns INTEGER NOT NULL,
        source TEXT NOT NULL,
        process_start REAL,
        series TEXT NOT NULL,
        problems TEXT NOT NULL,
        raw BLOB NOT NULL,
        UNIQUE (window_id, moment)
    )
    """,
    """
    CREATE TABLE finding (
        id INTEGER PRIMARY KEY,
        code TEXT NOT NULL,
        severity TEXT NOT NULL,
        place TEXT NOT NULL,
        detail TEXT NOT NULL,
        arm TEXT,
        load TEXT
    )
    """,
    "CREATE INDEX window_of_boot ON window (boot_id)",
)

_ARRIVALS_AND_SESSIONS = (
    "ALTER TABLE window ADD COLUMN arrival TEXT",
    "ALTER TABLE request ADD COLUMN session TEXT",
    "ALTER TABLE request ADD COLUMN turn INTEGER",
    "ALTER TABLE request ADD COLUMN phase TEXT",
)

_MEMORY = ("ALTER TABLE study ADD COLUMN memory TEXT NOT NULL DEFAULT '[]'",)

_SUPPLIED = ("ALTER TABLE request ADD COLUMN supplied INTEGER",)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _ARRIVALS_AND_SESSIONS, _MEMORY, _SUPPLIED)


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def upgrade(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> int:
    """Bring the file to the newest shape in one transaction: all of it, or nothing. Returns the version found before.

    The connection must be in autocommit mode (`isolation_level=None`). A file that is newer is left alone.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read inside the transaction: another process may have upgraded while this one waited for the lock.
        found = version_of(connection)
        for number in range(found, len(migrations)):
            for statement in migrations[number]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return found
