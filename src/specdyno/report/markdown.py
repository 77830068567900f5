"""report.md: the verdict and its tables for a pull request or a wiki.

Every text is escaped for Markdown and HTML, whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from specdyno.report.speed import SpeedGroup
from specdyno.report.tables import Cell, Table
from specdyno.report.untrusted import markdown, sanitise
from specdyno.report.view import FindingView, ObjectiveView, View


def render(view: View) -> str:
    """The report as Markdown; the same view gives the same bytes."""
    lines = [f"# {markdown(view.study)}", "", f"**{markdown(view.summary)}**", ""]
    lines += [" \u00b7 ".join(markdown(fact) for fact in view.context), "", markdown(view.blocks_text), ""]
    for part in view.objectives:
        lines += _objective(part)
    for group in view.speed_decides:
        if not group.decides:
            lines += _speed(group)
    if view.speed_explores:
        lines += ["## By class of traffic (exploratory: decides nothing but a scope that is named above)", ""]
        for group in view.speed_explores:
            lines += _speed(group)
    lines += _explained(view)
    lines += _sections(
        {
            "Over concurrency: where speculation stops paying": (view.crossovers,),
            "Open loops: offered and achieved": view.arrivals,
            "Agent sessions": view.phases,
        }
    )
    lines += _precision(view)
    lines += ["## Findings", "", *(_findings(view.findings) or ["None.", ""])]
    lines += _sections(
        {
            "Settings that differ": (view.settings,),
            "Every figure": view.figures,
            "Where this was measured": (view.memory, view.boots, *view.provenance),
            "Plan in force": (view.plan,),
        },
        even_empty=True,
    )
    fence = "`" * 4
    lines += [
        "To measure the same again:",
        "",
        fence,
        sanitise(view.command).replace("`", "'"),
        fence,
        "",
        "## Words",
        "",
    ]
    lines += [f"- **{markdown(word)}**: {markdown(meaning)}" for word, meaning in view.words]
    return "\n".join(lines) + "\n"


def _sections(sections: Mapping[str, tuple[Table, ...]], *, even_empty: bool = False) -> Iterator[str]:
    """Tables under their headings; a section without a row is left out unless it says something by being empty."""
    for heading, tables in sections.items():
        if even_empty or any(table.rows for table in tables):
            yield from (f"## {heading}", "")
            for table in tables:
                yield from _table(table, heading=len(tables) > 1)


def rows(columns: Iterable[str], cells: Iterable[Iterable[str]]) -> list[str]:
    """A Markdown table of texts."""
    names = [markdown(name) for name in columns]
    lines = [_row(names), _row(["---"] * len(names))]
    return [*lines, *(_row(markdown(cell) for cell in row) for row in cells), ""]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _objective(part: ObjectiveView) -> list[str]:
    lines = [f"## {markdown(part.decision.upper())}: {markdown(part.name)}", "", f"**{markdown(part.headline)}**", ""]
    lines += [line for detail in part.details for line in (markdown(detail), "")]
    decisions = ((one.mark.arm, one.gain, one.sentence) for one in part.candidates)
    lines += rows(("candidate", f"gain in {part.measure}", "decision"), decisions)
    gates = (
        (one.mark.arm, gate.name, gate.value, gate.threshold, gate.status)
        for one in part.candidates
        for gate in one.gates
    )
    return [*lines, *rows(("candidate", "gate", "seen", "asked for", "status"), gates)]


def _speed(group: SpeedGroup) -> list[str]:
    cells = ((row.mark.arm, row.change, f"{row.level} {row.interval}".strip(), row.units) for row in group.rows)
    return [f"### {markdown(group.title)}", "", *rows(("candidate", "gain", "interval", "from"), cells)]


def _explained(view: View) -> list[str]:
    if not view.explained:
        return []
    cells = ((row.load, row.mark.arm, row.tokens_text, row.speed_text, row.cost_text) for row in view.explained)
    columns = ("load", "candidate", "tokens per step", "speed-up", "step cost (derived)")
    return ["## Why: tokens per step against the cost of a step", "", *rows(columns, cells)]


def _precision(view: View) -> list[str]:
    lines = ["## How sure this study can be", ""]
    for panel in view.power:
        lines += [f"### {markdown(panel.title)}", "", markdown(panel.says), ""]
        lines += rows(("true gain", "promoted", "blocks on average"), panel.rows)
    for one in view.precision:
        lines += _table(one, heading=True)
    return lines if len(lines) > 2 else []


def _findings(findings: tuple[FindingView, ...]) -> list[str]:
    lines = []
    for finding in findings:
        lines.append(f"- **{markdown(finding.severity)}** {markdown(finding.says)} {markdown(finding.do)}")
        lines += [f"  - {markdown(place)}" for place in finding.places]
    return [*lines, ""] if lines else []


def _table(table: Table, *, heading: bool) -> Iterator[str]:
    if not table.rows:
        if not heading:
            yield from ("None.", "")
        return
    if heading:
        yield from (f"### {markdown(table.title)}", "")
    yield from rows(table.columns, ([_cell(cell) for cell in row] for row in table.rows))


def _cell(cell: Cell) -> str:
    return f"{cell.text} ({cell.small})" if cell.small else cell.text
