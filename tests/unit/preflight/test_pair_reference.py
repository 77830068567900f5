"""`docs/methods.md` holds the tables of the data: a new method or rule shows there, or this fails."""

from __future__ import annotations

from pathlib import Path

from specdyno.plan.methods import Method
from specdyno.preflight.pair.rules import RULES

DOCS = Path(__file__).parents[3] / "docs" / "methods.md"


def test_every_method_and_rule_stands_on_the_page():
    page = DOCS.read_text(encoding="utf-8")
    for name in (*map(str, Method), *(rule.name for rule in RULES)):
        assert f"`{name}`" in page
