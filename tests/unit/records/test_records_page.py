"""docs/records.md says what the database holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.records.small_study import request

from specdyno.records.migrations import APPLICATION_ID
from specdyno.records.schema import SCHEMA_VERSION

PAGE = (Path(__file__).parents[3] / "docs" / "records.md").read_text()


def test_every_table_and_column_is_explained(store):
    explained = {line.split("`")[1]: line for line in PAGE.splitlines() if line.startswith("| `")}
    tables = store._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    assert set(explained) == {name for (name,) in tables}
    for table, line in explained.items():
        columns = {row["name"] for row in store._connection.execute(f"PRAGMA table_info({table})")} - {"id"}
        assert columns <= set(re.findall(r"`(\w+)`", line)), table


@pytest.mark.parametrize("query", re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL))
def test_queries_of_the_page_run(store, window_id, query):
    store.add_request(window_id, request(0))
    cursor = store._connection.execute(query)
    cursor.fetchall()
    assert len(cursor.description) >= 3


def test_version_history_ends_at_this_version():
    assert re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE) == [str(n + 1) for n in range(SCHEMA_VERSION)]
    assert str(APPLICATION_ID) in PAGE
