"""How sure a study could be: its power for true gains, where its spread comes from, and what order in a block did.

Owns words and tables of these three, and of classes judged apart; numbers come from the verdict and the analysis.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdyno.report import sentences, spelling
from specdyno.report.tables import Cell, Table, figure, table
from specdyno.report.untrusted import sanitise
from specdyno.statistics.analysis import Analysis, NoiseBudget
from specdyno.verdict.schema import PowerPoint, Verdict


@dataclass(frozen=True, slots=True)
class PowerPanel:
    """The chance of a promote over the true gain, for one objective."""

    title: str
    says: str
    points: tuple[PowerPoint, ...]
    rows: tuple[tuple[str, str, str], ...]  # true gain, chance, blocks on average


def power_panels(verdict: Verdict) -> tuple[PowerPanel, ...]:
    panels = []
    for part in verdict.objectives:
        if part.power:
            rows = tuple(
                (spelling.change(1 + p.true_gain), spelling.share(p.promote, 0), spelling.plain(p.blocks, 1))
                for p in part.power
            )
            panels.append(PowerPanel(sanitise(part.objective), _power_says(part.power), part.power, rows))
    return tuple(panels)


def _power_says(points: tuple[PowerPoint, ...]) -> str:
    """The first gain of the curve that is promoted in eight of ten studies."""
    enough = next((point for point in points if point.promote >= 0.8), None)
    if enough is None:
        return "No gain on this curve is promoted in 80 % of such studies."
    gain, blocks = spelling.change(1 + enough.true_gain), spelling.plain(enough.blocks, 1)
    return (
        f"A true gain of {gain} is promoted in {spelling.share(enough.promote, 0)} of such studies, "
        f"after {blocks} blocks on average."
    )


def tables(analysis: Analysis, verdict: Verdict) -> tuple[Table, ...]:
    """Classes judged apart, noise budget, drift; those that have rows."""
    return tuple(one for one in (_cells(verdict), _noise(analysis), _drifts(analysis)) if one.rows)


def _cells(verdict: Verdict) -> Table:
    rows: list[tuple[object, ...]] = []
    for part in verdict.objectives:
        for one in part.candidates:
            for cell in one.scope.cells if one.scope is not None else ():
                asked = f"at least {spelling.change(cell.threshold)}"
                seen = figure(cell.ratio, spelling.change)
                when = spelling.plural(cell.look, "block") if cell.look is not None else ""
                status = Cell(sentences.GATE_STATUSES[cell.status], when)
                rows.append((part.objective, one.candidate, cell.class_name, seen, asked, status))
    return table(
        "Classes judged apart, where the whole traffic is not promoted",
        ("objective", "candidate", "class", "seen", "asked for", "status"),
        rows,
    )


def _noise(analysis: Analysis) -> Table:
    rows: list[tuple[object, ...]] = []
    for one in sorted(analysis.noise, key=lambda one: analysis.loads.index(one.load)):
        restarts = Cell("not told apart") if one.boot is None and one.window is not None else _part(one.boot)
        parts = (Cell(spelling.share(one.total)), restarts, _part(one.window), _part(one.prompts))
        rows.append((one.load, one.candidate, sentences.measure(one.measure), *parts, _remedy(one)))
    columns = ("load", "candidate", "measure", "spread over blocks, s", "restarts", "finite windows")
    title = "Noise budget: where the spread between blocks comes from (standard deviations; squares add up)"
    return table(title, (*columns, "prompts, cancelled by pairing", "what narrows it"), rows)


def _part(value: float | None) -> Cell:
    return Cell(spelling.NOT_MEASURED if value is None else spelling.share(value))


def _remedy(one: NoiseBudget) -> str:
    if one.window is None:
        return "more blocks"
    return "longer windows, then more blocks" if one.window > (one.boot or 0.0) else "more blocks"


def _drifts(analysis: Analysis) -> Table:
    rows: list[tuple[object, ...]] = [
        (one.load, sentences.measure(one.measure), figure(one.per_position, lambda slope: spelling.change(1 + slope)))
        for one in analysis.drifts
    ]
    title = "Order within a block: what one place later changes (above 0 % is better); balanced over blocks"
    return table(title, ("load", "measure", "per place"), rows)
