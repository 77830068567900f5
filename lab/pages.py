"""Pages under docs/ whose tables are made from the code and the recorded figures: python -m lab.pages.

A table stands between two marks, `<!-- keys -->` and `<!-- /keys -->`; all else on a page is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from lab import live_table
from specdyno.plan import reference
from specdyno.preflight.pair import reference as pairs

DOCS = Path(__file__).parents[1] / "docs"
TABLES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "plan.md": {"keys": reference.table},
    "methods.md": {"methods": pairs.methods, "live": live_table.table, "rules": pairs.rules},
}  # by page and mark


def parts(page: str, mark: str) -> tuple[str, str, str]:
    """A page as what stands up to a table, the table, and the rest; the marks stay with their surroundings."""
    before, begin, rest = page.partition(f"<!-- {mark} -->\n")
    table, end, after = rest.partition(f"<!-- /{mark} -->")
    if not begin or not end:
        raise ValueError(f"the page has no place for the table: <!-- {mark} --> and <!-- /{mark} -->")
    return before + begin, table, end + after


def with_tables(page: str, tables: Mapping[str, str]) -> str:
    """A page with these tables, by mark, in the places of the old ones."""
    for mark, table in tables.items():
        before, _, after = parts(page, mark)
        page = before + table + after
    return page


def made(name: str) -> dict[str, str]:
    return {mark: table() for mark, table in TABLES[name].items()}


def write(name: str, tables: Mapping[str, str]) -> None:
    path = DOCS / name
    path.write_text(with_tables(path.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    for name in TABLES:
        write(name, made(name))
