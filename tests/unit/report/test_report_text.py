import io

import pytest
from rich.console import Console
from tests.unit.report.hand_made_study import hostile, study

from specdyno.report import markdown, text, view


def printed(parts, width=100):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(text.render(view.build(*parts)))
    return console.file.getvalue()


def test_the_terminal_leads_with_the_verdict():
    said = printed(study())
    assert said.startswith("The objectives disagree: promote eagle3-k3 for interactive; hold for background pool.")
    assert "Promote eagle3-k3 for interactive (speed only: answers were not checked): +21.3 %" in " ".join(said.split())


def test_classes_are_shown_as_exploratory_with_their_level():
    assert "By class at load interactive, time per job: exploratory (95 % interval)" in printed(study(), 120)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    assert max(len(line) for line in printed(study(), width).splitlines()) <= width


def test_markup_and_escapes_from_outside_are_shown_as_text():
    said = printed(hostile(), 300)
    assert "[bold]" in said
    assert "\x1b" not in said
    assert "\u202e" not in said


def test_markdown_tables_keep_their_columns_whatever_the_cells_hold():
    lines = markdown.render(view.build(*hostile())).splitlines()
    columns = None
    for line in lines:
        if not line.startswith("| "):
            columns = None
            continue
        cells = line.replace("\\|", "").count("|")
        assert columns in (None, cells), line
        columns = cells


def test_markdown_lets_no_markup_from_outside_through():
    said = markdown.render(view.build(*hostile()))
    assert "<script" not in said
    assert "**b**" not in said
    assert r"\*\*b\*\*" in said


def test_markdown_holds_verdict_gates_findings_plan_and_words():
    said = markdown.render(view.build(*study()))
    for part in (
        "# agent-pool",
        "**Promote eagle3-k3",
        "## PROMOTE: interactive",
        "## Findings",
        "## Plan in force",
        "## Words",
    ):
        assert part in said
    assert "98.27 % interval" in said
