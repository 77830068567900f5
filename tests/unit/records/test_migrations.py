"""Files of every shape stay readable; an upgrade is whole or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.unit.records.small_study import HEADER, request

from specdyno.errors import RecordError
from specdyno.records import connection as connection_module
from specdyno.records.migrations import MIGRATIONS, upgrade, version_of
from specdyno.records.schema import SCHEMA_VERSION, BootStatus, FindingCode, Outcome, WindowKind
from specdyno.records.store import Store

OLDEST = Path(__file__).with_name("oldest_study.sql")


@pytest.fixture
def oldest(path):
    """A study of schema 1 as it was written when schema 1 was new; built without today's migrations."""
    connection = sqlite3.connect(path)
    connection.executescript(OLDEST.read_text())
    connection.close()
    return path


def shape(connection):
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")
    return {name: " ".join(sql.split()) for name, sql in rows}


def pretend_a_newer_schema(monkeypatch):
    newer = [*MIGRATIONS, ["ALTER TABLE request ADD COLUMN colour TEXT"]]
    monkeypatch.setattr(connection_module, "SCHEMA_VERSION", len(newer))
    monkeypatch.setattr(connection_module, "upgrade", lambda connection: upgrade(connection, newer))


def test_newest_migration_is_the_schema_version():
    assert len(MIGRATIONS) == SCHEMA_VERSION


def test_oldest_study_is_read_after_its_upgrade(oldest):
    with Store.open(oldest, write=False) as store:
        study = store.read_study()
        (record,) = store.read_requests(1)
    assert (study.header.plan, study.header.sizing) == ({"study": "oldest"}, {"pool": 1})
    assert study.boots[0].status is BootStatus.COMPLETE
    assert study.boots[0].identity.draft_tokens == 2
    assert study.windows[0].kind is WindowKind.MIXED
    assert study.windows[0].before.series[0].labels == (("engine", "0"),)
    assert study.findings[0].code is FindingCode.HOST_BUSY
    assert study.requests.spec_reached.tolist() == [[2.0, 1.0]]
    assert study.requests.spec_at_risk.tolist() == [[3.0, 2.0]]
    assert study.border_chunks[1, 0][0].tolist() == [120, 150]
    assert (record.outcome, record.text, record.chunk_ns) == (Outcome.FINISHED, "return 1", (120, 150))
    assert record.spec.per_step_accepted == (2, 0, 1)
    with sqlite3.connect(oldest) as connection:
        assert version_of(connection) == SCHEMA_VERSION
    connection.close()


def test_first_migration_is_never_edited(oldest, tmp_path):
    old, fresh = sqlite3.connect(oldest), sqlite3.connect(tmp_path / "fresh.sqlite", isolation_level=None)
    upgrade(fresh, MIGRATIONS[:1])
    assert shape(fresh) == shape(old)
    old.close()
    fresh.close()


def test_every_outstanding_migration_runs_once_in_order(path):
    with Store.create(path, HEADER):
        pass
    later = [
        *MIGRATIONS,
        ["ALTER TABLE boot ADD COLUMN colour TEXT"],
        ["UPDATE study SET plan_yaml = plan_yaml || '!'"],
    ]
    connection = sqlite3.connect(path, isolation_level=None)
    assert upgrade(connection, later) == SCHEMA_VERSION
    assert upgrade(connection, later) == SCHEMA_VERSION + 2
    assert connection.execute("SELECT plan_yaml FROM study").fetchone()[0] == HEADER.plan_yaml + "!"
    assert "colour" in shape(connection)["boot"]
    connection.close()


def test_upgrade_that_fails_leaves_the_file_as_it_was(path):
    with Store.create(path, HEADER):
        pass
    connection = sqlite3.connect(path, isolation_level=None)
    before = shape(connection)
    broken = [*MIGRATIONS, ["ALTER TABLE boot ADD COLUMN colour TEXT"], ["UPDATE nothing SET x = 1"]]
    with pytest.raises(sqlite3.OperationalError, match="nothing"):
        upgrade(connection, broken)
    assert (shape(connection), version_of(connection)) == (before, SCHEMA_VERSION)
    connection.close()


def test_opening_an_older_study_upgrades_it_and_keeps_its_rows(path, monkeypatch):
    with Store.create(path, HEADER) as store:
        boot_id = store.begin_boot(block=0, arm="a", attempt=0, position=0, started_ns=0, started_unix_ns=0)
        window_id = store.begin_window(
            boot_id, load="l", kind=WindowKind.MIXED, class_name=None, concurrency=1, planned=1, started_ns=0
        )
        store.add_request(window_id, request(0))
    pretend_a_newer_schema(monkeypatch)
    with Store.open(path, write=True) as store:
        assert list(store.read_requests(window_id)) == [request(0)]
    monkeypatch.undo()
    with pytest.raises(RecordError, match="newer specdyno"):  # what the older program now says
        Store.open(path, write=True)


def test_older_study_in_a_read_only_folder_asks_for_a_copy(read_only_folder, monkeypatch):
    pretend_a_newer_schema(monkeypatch)
    with pytest.raises(RecordError, match="work on a copy"):
        Store.open(read_only_folder / "study.sqlite", write=False)
