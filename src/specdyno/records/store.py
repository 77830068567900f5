"""The study's database: written while measuring, read by everything after.

Owns one SQLite file (WAL). Each writing call is its own committed transaction, so that `kill -9` loses at most the
requests in flight. Refuses files that are foreign, newer or damaged with a `RecordError` and changes nothing in them.
A store may be used from any thread; calls take turns.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from specdyno.errors import RecordError
from specdyno.records import rows
from specdyno.records.columns import read_border_chunks, read_columns
from specdyno.records.connection import connect, connect_new
from specdyno.records.encoding import SqlValue
from specdyno.records.faults import explained, readable
from specdyno.records.schema import (
    Arrival,
    BootRecord,
    BootStatus,
    CounterSample,
    Finding,
    RequestRecord,
    StudyHeader,
    StudyRecords,
    WindowKind,
    WindowRecord,
)

Moment = Literal["before", "after"]

_BOOT_FIELDS = frozenset(field.name for field in fields(BootRecord)) - {"id"}
_PAGE = 256  # requests held at once while iterating


class Store:
    """An open study. Make one with `create` or `open`; close it, or use it as a context manager."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def create(cls, path: Path, header: StudyHeader) -> Self:
        """Make a new study at `path` and open it for writing. RecordError if something is there already."""
        if path.exists():
            raise RecordError(f"{path}: a study is there already. Go on with --resume, or name another folder.")
        # Made beside its place and moved there whole: a file under the final name always holds a header.
        unfinished = path.with_name(f"{path.name}.new")
        # A log left by a study that was deleted would be replayed into this one.
        leftovers = [path.with_name(f"{path.name}{end}") for end in (".new", ".new-journal", "-wal", "-shm")]
        with explained(path):
            try:
                for leftover in leftovers:
                    leftover.unlink(missing_ok=True)
                with closing(connect_new(unfinished)) as connection:
                    values = {
                        field.name: rows.plain_value(getattr(header, field.name)) for field in fields(StudyHeader)
                    }
                    _insert(connection, "study", {"id": 1, **values})
                unfinished.replace(path)
            except OSError as error:
                raise RecordError(f"{path}: cannot be made ({error.strerror}). Check the folder.") from error
        return cls.open(path, write=True)

    @classmethod
    def open(cls, path: Path, *, write: bool, busy_timeout_s: float = 10.0) -> Self:
        """Open an existing study; older shapes are upgraded in place. RecordError if it is not one we can read.

        `busy_timeout_s` is how long any call waits for another process's transaction.
        """
        return cls(path, connect(path, write=write, busy_timeout_s=busy_timeout_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock, explained(self.path):
            self._connection.close()

    # Writing: one committed transaction per call.

    def begin_boot(self, **given: Any) -> int:
        """Record that a boot starts; fields of `BootRecord` but `id`, `status` STARTING unless given."""
        boot = BootRecord(id=0, **{"status": BootStatus.STARTING, **given})
        return self._insert("boot", {name: rows.plain_value(getattr(boot, name)) for name in sorted(_BOOT_FIELDS)})

    def update_boot(self, boot_id: int, **changes: Any) -> None:
        """Change fields of a boot. TypeError for a field it has not."""
        if unknown := set(changes) - _BOOT_FIELDS:
            raise TypeError(f"a boot has no {', '.join(sorted(unknown))}")
        self._update("boot", boot_id, {name: rows.plain_value(value) for name, value in changes.items()})
        if changes.get("status") in (BootStatus.COMPLETE, BootStatus.FAILED, BootStatus.INTERRUPTED):
            self._sync()

    def begin_window(  # noqa: PLR0913 - one per column that is known when a window starts
        self,
        boot_id: int,
        *,
        load: str,
        kind: WindowKind,
        class_name: str | None,
        concurrency: int | None,
        planned: int,
        started_ns: int,
        arrival: Arrival | None = None,
    ) -> int:
        window = {
            "boot_id": boot_id,
            "load": load,
            "kind": kind,
            "class_name": class_name,
            "concurrency": concurrency or 0,
            "planned": planned,
            "started_ns": started_ns,
            "arrival": arrival,
        }
        return self._insert("window", {name: rows.plain_value(value) for name, value in window.items()})

    def end_window(
        self, window_id: int, *, ended_ns: int, client_lag_max_ns: int | None, host_busy: float | None
    ) -> None:
        """Mark a window as whole; a window without an end was cut off."""
        self._update(
            "window",
            window_id,
            {"ended_ns": ended_ns, "client_lag_max_ns": client_lag_max_ns, "host_busy": host_busy},
        )

    def add_request(self, window_id: int, record: RequestRecord) -> None:
        self.add_requests(window_id, (record,))

    def add_requests(self, window_id: int, records: Iterable[RequestRecord]) -> None:
        """Commit all of `records`, or none."""
        with self._writing() as connection:
            for record in records:
                request_id = _insert(connection, "request", rows.request_row(window_id, record))
                _insert(connection, "answer", rows.answer_row(request_id, record))

    def add_counter_sample(self, window_id: int, when: Moment, sample: CounterSample, raw: str) -> None:
        """Keep the counters of a window at one moment, with the scraped text they were read from."""
        self._insert("counter_sample", rows.sample_row(window_id, when, sample, raw))

    def add_finding(self, finding: Finding) -> None:
        self._insert(
            "finding", {field.name: rows.plain_value(getattr(finding, field.name)) for field in fields(Finding)}
        )

    def set_sizing(self, sizing: dict[str, int]) -> None:
        """Fix the number of scored requests per mixed window, by load."""
        self._update("study", 1, {"sizing": rows.plain_value(sizing)})

    # Reading.

    @property
    def header(self) -> StudyHeader:
        with self._reading("the study's header") as connection:
            return rows.header_of(connection.execute("SELECT * FROM study").fetchone())

    def read_boots(self) -> tuple[BootRecord, ...]:
        """All boots in the order they were started."""
        with self._reading("the list of boots") as connection:
            return tuple(rows.boot_of(row) for row in connection.execute("SELECT * FROM boot ORDER BY id"))

    def read_study(self) -> StudyRecords:
        """All that `judge` may look at, as of one moment, even while a run goes on writing."""
        with self._reading("the study") as connection, _snapshot(connection):
            windows = _read_windows(connection)
            requests = read_columns(connection)
            return StudyRecords(
                header=rows.header_of(connection.execute("SELECT * FROM study").fetchone()),
                boots=tuple(rows.boot_of(row) for row in connection.execute("SELECT * FROM boot ORDER BY id")),
                windows=windows,
                requests=requests,
                findings=tuple(rows.finding_of(row) for row in connection.execute("SELECT * FROM finding ORDER BY id")),
                border_chunks=read_border_chunks(connection, windows, requests),
            )

    def read_requests(self, window_id: int) -> Iterator[RequestRecord]:
        """The requests of a window by their place in its list, whole: with text, chunk stamps and steps."""
        after = -(2**63)
        while True:
            with self._reading(f"a request of window {window_id}") as connection:
                found = connection.execute(
                    "SELECT * FROM request JOIN answer ON answer.request_id = request.id "
                    "WHERE window_id = ? AND list_index > ? ORDER BY list_index LIMIT ?",
                    (window_id, after, _PAGE),
                ).fetchall()
                page = [rows.request_of(row) for row in found]
            if not page:
                return
            yield from page
            after = page[-1].index

    def read_raw_counters(self, window_id: int, when: Moment) -> str | None:
        """The text that was scraped at that moment, or None if there was no sample."""
        with self._reading(f"the counters of window {window_id}") as connection:
            row = connection.execute(
                "SELECT raw FROM counter_sample WHERE window_id = ? AND moment = ?", (window_id, when)
            ).fetchone()
            return None if row is None else rows.raw_text_of(row)

    # The connection.

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, explained(self.path):
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # SQLite may have rolled back itself, as it can when the disk is full.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self, what: str) -> Iterator[sqlite3.Connection]:
        with self._lock, explained(self.path), readable(self.path, what):
            yield self._connection

    def _insert(self, table: str, values: Mapping[str, SqlValue]) -> int:
        with self._writing() as connection:
            return _insert(connection, table, values)

    def _update(self, table: str, row_id: int, values: Mapping[str, SqlValue]) -> None:
        assignments = ", ".join(f"{name} = ?" for name in values)
        with self._writing() as connection:
            statement = f"UPDATE {table} SET {assignments} WHERE id = ?"  # noqa: S608 - names from this module
            if connection.execute(statement, (*values.values(), row_id)).rowcount != 1:
                raise LookupError(f"there is no {table} {row_id}")

    def _sync(self) -> None:
        """Carry the log into the file and flush both, so that a finished boot outlives a power cut."""
        with self._lock, explained(self.path):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _insert(connection: sqlite3.Connection, table: str, values: Mapping[str, SqlValue]) -> int:
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - names from `rows`, never from data
    row_id = connection.execute(statement, tuple(values.values())).lastrowid
    assert row_id is not None  # noqa: S101 - an insert always has one; for the type checker
    return row_id


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        with suppress(sqlite3.Error):  # nothing was written; the error that ended the reading is the one to show
            connection.execute("ROLLBACK")


def _read_windows(connection: sqlite3.Connection) -> tuple[WindowRecord, ...]:
    samples: dict[int, dict[str, CounterSample]] = {}
    for row in connection.execute("SELECT * FROM counter_sample ORDER BY id"):
        samples.setdefault(row["window_id"], {})[row["moment"]] = rows.sample_of(row)
    return tuple(
        rows.window_of(row, samples.get(row["id"], {}))
        for row in connection.execute("SELECT * FROM window ORDER BY id")
    )
