"""A file that cannot be used is refused with one clear message, and nothing in it is changed."""

from __future__ import annotations

import sqlite3

import pytest
from tests.unit.records.small_study import HEADER, begin_boot, begin_window, request

from specdyno.errors import RecordError
from specdyno.records.store import Store


def test_full_disk_is_named_and_what_was_committed_stays(store, window_id, path):
    store.add_request(window_id, request(0))
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()
    with pytest.raises(RecordError, match=r"study\.sqlite: the disk is full .* Free some space"):
        store.add_request(window_id, request(1, text="x" * 100_000))
    assert list(store.read_requests(window_id)) == [request(0)]
    store._connection.execute("PRAGMA max_page_count = 1000000").fetchall()
    store.add_request(window_id, request(1))  # goes on once there is space
    store.close()
    with Store.open(path, write=False) as reader:
        assert [record.index for record in reader.read_requests(window_id)] == [0, 1]


def test_file_locked_by_another_process_is_named(path, store):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Store.open(path, write=True, busy_timeout_s=0.05) as waiting:
        with pytest.raises(RecordError, match="another process holds the database"):
            begin_boot(waiting)
        other.execute("ROLLBACK")
        assert begin_boot(waiting) == 1
    other.close()


def test_new_study_in_a_read_only_folder_is_refused(read_only_folder):
    with pytest.raises(RecordError, match=r"other\.sqlite: the database cannot be opened .* Check that the folder"):
        Store.create(read_only_folder / "other.sqlite", HEADER)


def test_study_in_a_read_only_folder_can_be_read_but_not_written(read_only_folder):
    path = read_only_folder / "study.sqlite"
    with Store.open(path, write=False) as reader:
        assert reader.header == HEADER
    with pytest.raises(RecordError, match=r"read-only .* work on a copy"), Store.open(path, write=True) as store:
        begin_boot(store)


def test_study_opened_for_reading_cannot_be_written(path, store):
    with Store.open(path, write=False) as reader, pytest.raises(RecordError, match="read-only"):
        begin_boot(reader)


def test_existing_study_is_not_overwritten(path, store):
    with pytest.raises(RecordError, match=r"a study is there already\. Go on with --resume"):
        Store.create(path, HEADER)
    assert store.header == HEADER


def test_missing_study_is_named_and_not_made(path):
    with pytest.raises(RecordError, match="there is no study here"):
        Store.open(path, write=True)
    assert not path.exists()


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(RecordError, match="the database cannot be opened"):
        Store.create(tmp_path / "nowhere" / "study.sqlite", HEADER)


@pytest.mark.parametrize("content", [b"just some notes\n", b"n" * 5000])
def test_file_that_is_no_database_is_refused_unchanged(path, content):
    path.write_bytes(content)
    with pytest.raises(RecordError, match="this is not a database"):
        Store.open(path, write=True)
    assert path.read_bytes() == content


def test_database_of_another_program_is_refused_unchanged(path):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE request (id INTEGER PRIMARY KEY, url TEXT)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(RecordError, match="belongs to another program"):
        Store.open(path, write=True)
    assert path.read_bytes() == before


def test_newer_study_is_refused_unchanged(path):
    with Store.create(path, HEADER) as store:
        store._connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    for write in (True, False):
        with pytest.raises(RecordError, match=r"newer specdyno .*schema 99.* Nothing was changed"):
            Store.open(path, write=write)
    assert path.read_bytes() == before


def test_corrupt_page_is_named_with_the_way_to_rescue_the_rest(path):
    with Store.create(path, HEADER) as store:
        window_id = begin_window(store, begin_boot(store))
        store.add_requests(window_id, [request(index, text="word " * 200) for index in range(200)])
        root = store._connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'request'").fetchone()[0]
    with path.open("r+b") as file:
        file.seek(4096 * (root - 1))
        file.write(b"\xff" * 4096)
    with Store.open(path, write=False) as reader:
        with pytest.raises(RecordError, match=r"the database is damaged .*\.recover"):
            reader.read_study()
        assert reader.header == HEADER  # other pages stay readable


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE answer SET chunk_stamps = x'00'",
        "UPDATE answer SET tool_calls = '[{'",
        "UPDATE answer SET text = CAST(x'ff' AS TEXT)",
        "UPDATE request SET outcome = 'vanished'",
    ],
)
def test_damaged_row_is_a_record_error(store, window_id, damage):
    store.add_request(window_id, request(0, chunk_ns=(1, 2), chunk_chars=(1, 1)))
    store._connection.execute(damage)
    with pytest.raises(RecordError, match="damaged"):
        list(store.read_requests(window_id))


@pytest.mark.parametrize(
    "damage", ["UPDATE request SET outcome = 'vanished'", "UPDATE request SET spec_counts = x'000102030405060708'"]
)
def test_damaged_row_is_a_record_error_in_columns_too(store, window_id, damage):
    store.add_request(window_id, request(0))
    store._connection.execute(damage)
    with pytest.raises(RecordError, match="the study cannot be read"):
        store.read_study()


def test_finding_of_an_unknown_kind_is_a_record_error(store):
    store._connection.execute(
        "INSERT INTO finding (code, severity, place, detail) VALUES ('gremlins', 'doubt', 'block 0', '')"
    )
    with pytest.raises(RecordError, match="another version of specdyno"):
        store.read_study()
