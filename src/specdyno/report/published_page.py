"""Published sweeps drawn: one panel per target and prompt set, speed-up over draft length, on a page of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from specdyno.plan.schema import Method
from specdyno.published.sweeps import LABEL, PROVENANCE, Cell, cells, names, sweeps
from specdyno.report import charts
from specdyno.report.html import POLICY
from specdyno.report.marks import SHAPES, Mark

_HERE = Path(__file__).parent


def render(found: Sequence[Cell]) -> str:
    """A self-contained page of `found`; the same cells give the same bytes."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    marks = _marks()
    longest = max(cell.draft_tokens for cell in found)
    span = min(cell.speed_up for cell in found), max(cell.speed_up for cell in found)
    panels = [
        (target, [(name, _panel(here, marks, longest, span)) for name, here in _by_prompts(found, target).items()])
        for target in names(cell.target for cell in found)
    ]
    page = environment.get_template("published.html").render(
        policy=POLICY,
        css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        label=LABEL,
        provenance=PROVENANCE,
        legend=[(str(method), Markup(charts.swatch(marks[method])))  # noqa: S704 - charts escape their text
                for method in marks if any(cell.method is method for cell in found)],
        panels=panels,
        beyond=[(str(method), next(c.beyond_trained for c in found if c.method is method and c.beyond_trained))
                for method in marks if any(c.method is method and c.beyond_trained for c in found)],
        rows=[(cell, cell.target.rpartition("/")[2]) for group in sweeps(found).values() for cell in group],
    )  # fmt: skip
    return "\n".join(line.rstrip() for line in page.splitlines() if line.strip()) + "\n"


def _by_prompts(found: Sequence[Cell], target: str) -> dict[str, list[Cell]]:
    groups: dict[str, list[Cell]] = {}
    for cell in found:
        if cell.target == target:
            groups.setdefault(cell.prompts, []).append(cell)
    return groups


def _marks() -> dict[Method, Mark]:
    """Each method's mark, the same whatever is selected."""
    methods = [Method(name) for name in names(str(cell.method) for cell in cells())]
    return {
        method: Mark(str(method), str(method), None, 1 + order, SHAPES[order]) for order, method in enumerate(methods)
    }


def _panel(here: Sequence[Cell], marks: dict[Method, Mark], longest: int, span: tuple[float, float]) -> Markup:
    """One target's cells of one prompt set."""
    groups = [(marks[method], group) for (_, method, _), group in sweeps(here).items()]
    lines = [
        (mark, [(cell.draft_tokens, cell.speed_up, not cell.beyond_trained) for cell in group])
        for mark, group in groups
    ]
    says = "; ".join(f"{cell.method} {cell.draft_tokens}: {cell.speed_up:g} times" for _, g in groups for cell in g)
    title = f"Speed-up over draft length: {here[0].target}, {here[0].prompts}"
    return Markup(charts.sweep_panel(lines, title, says, longest=longest, span=span))  # noqa: S704
