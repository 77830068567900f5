"""The pages hold the tables of the code and of the recorded figures: a new key, method, rule or figure shows there."""

import pytest

from lab import pages


@pytest.mark.parametrize("name", pages.TABLES)
def test_a_page_holds_the_tables_of_the_code(name):
    page = (pages.DOCS / name).read_text(encoding="utf-8")
    assert pages.with_tables(page, pages.made(name)) == page, "run: make docs"


def test_only_what_stands_between_the_marks_is_made_anew():
    page = "by hand\n<!-- a -->\nold\n<!-- /a -->\nby hand\n<!-- b -->\n<!-- /b -->\n"
    made = pages.with_tables(page, {"b": "2\n", "a": "1\n"})
    assert made == "by hand\n<!-- a -->\n1\n<!-- /a -->\nby hand\n<!-- b -->\n2\n<!-- /b -->\n"


@pytest.mark.parametrize("page", ["no marks\n", "<!-- a -->\n", "<!-- /a -->\n<!-- a -->\n"])
def test_a_page_without_both_marks_in_order_is_refused(page):
    with pytest.raises(ValueError, match="no place"):
        pages.with_tables(page, {"a": ""})
