"""The verdict in a terminal, with rich: objectives, the exploratory table per class, findings, where the page is.

Every text goes in as `rich.text.Text`, so that nothing from outside is read as markup.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from specdyno.report.speed import SpeedGroup, SpeedRow
from specdyno.report.untrusted import sanitise
from specdyno.report.view import FindingView, ObjectiveView, View

TONES = {"promote": "bold green", "hold": "bold yellow", "reject": "bold red"}
SEVERITY_TONES = {"forbids": "red", "doubt": "yellow", "note": "dim"}


def render(view: View) -> RenderableType:
    """Something that a rich console prints."""
    parts: list[RenderableType] = [Text(view.summary, style="bold"), Text(view.blocks_text, style="dim"), Text()]
    parts += [_objective(part) for part in view.objectives]
    parts += [_by_class(load, view) for load in dict.fromkeys(group.load for group in view.speed_explores)]
    parts += [Text(line) for line in view.crossing_says]
    parts += [Text(f"{panel.title}: {panel.says}", style="dim") for panel in view.power]
    if view.power:
        parts.append(Text())
    if view.findings:
        parts.append(Text("Findings", style="bold"))
        parts += [_finding(finding) for finding in view.findings]
    return Group(*parts)


def _objective(part: ObjectiveView) -> RenderableType:
    head = Text(part.headline)
    head.stylize(TONES[part.decision], 0, len(part.decision))
    lines: list[RenderableType] = [head, *(Text(line, style="dim") for line in part.details)]
    if part.candidates:
        lines.append(_candidates(part))
    return Group(*lines, Text())


def _candidates(part: ObjectiveView) -> RenderableType:
    levels = _levels(one.row for one in part.candidates)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("candidate", "decision", f"gain in {part.measure}{levels}"):
        table.add_column(Text(name), no_wrap=name == "candidate", max_width=34)
    table.add_column(Text("why"))
    for one in part.candidates:
        why = one.sentence.partition(": ")[2]
        decision = Text(one.decision, style=TONES[one.decision])
        table.add_row(Text(one.mark.arm), decision, _gain(one.row), Text(why))
    return Padding(table, (0, 0, 0, 2))


def _by_class(load: str, view: View) -> RenderableType:
    """Candidates down, classes across: the gain of each with its interval."""
    groups = [group for group in view.speed_explores if group.load == load]
    levels = _levels(row for group in groups for row in group.rows)
    title = f"By class at load {load}, {groups[0].measure}: exploratory{levels}"
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(Text("candidate"))
    for group in groups:
        table.add_column(Text(sanitise(group.class_name or "")))
    for arm in dict.fromkeys(row.mark.arm for group in groups for row in group.rows):
        table.add_row(Text(arm), *(_gain_of(arm, group) for group in groups))
    return Group(Text(title, style="bold"), Padding(table, (0, 0, 1, 2)))


def _levels(rows: Iterable[SpeedRow]) -> str:
    levels = dict.fromkeys(row.level for row in rows if row.level)
    return f" ({' or '.join(levels)})" if levels else ""


def _gain_of(arm: str, group: SpeedGroup) -> Text:
    row = next((row for row in group.rows if row.mark.arm == arm), None)
    return _gain(row) if row is not None else Text("\u2013", style="dim")


def _gain(row: SpeedRow) -> Text:
    return Text.assemble(row.change, (f"  {row.interval}", "dim")) if row.interval else Text(row.change, style="dim")


def _finding(finding: FindingView) -> RenderableType:
    head = Text.assemble((finding.severity, SEVERITY_TONES[finding.severity]), "  ", finding.says, " ", finding.do)
    return Group(head, *(Padding(Text(place, style="dim"), (0, 0, 0, 4)) for place in finding.places), Text())
