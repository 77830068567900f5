"""The page's table of live runs holds the recorded figures."""

from pathlib import Path

from lab import live_table

DOCS = Path(__file__).parents[2] / "docs" / "methods.md"


def test_the_page_holds_what_was_recorded():
    page = DOCS.read_text(encoding="utf-8")
    assert live_table.update(page) == page, "run: make docs"
