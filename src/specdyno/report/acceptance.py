"""Acceptance as panels: one per load and class, one line per arm."""

from __future__ import annotations

from dataclasses import dataclass

from specdyno.report import spelling, tables
from specdyno.report.marks import Mark, mark_of
from specdyno.report.untrusted import sanitise
from specdyno.statistics.analysis import Analysis, Curve
from specdyno.statistics.intervals import Estimate


@dataclass(frozen=True, slots=True)
class CurveLine:
    mark: Mark
    joint: tuple[Estimate, ...]
    rows: tuple[tuple[str, tables.Cell, tables.Cell, tables.Cell], ...]  # position, joint, conditional, corrected


@dataclass(frozen=True, slots=True)
class CurvePanel:
    load: str
    title: str
    lines: tuple[CurveLine, ...]


def curve_panels(analysis: Analysis, marks: dict[str, Mark]) -> list[CurvePanel]:
    panels = []
    for load in analysis.loads:
        for name in (None, *analysis.classes):
            here = [one for one in analysis.curves if one.load == load and one.class_name == name]
            lines = tuple(_curve_line(one, mark_of(one.arm, marks)) for one in here if one.joint)
            if lines:
                title = sanitise(name) if name is not None else "all classes, mixed"
                panels.append(CurvePanel(sanitise(load), title, lines))
    return panels


def _curve_line(curve: Curve, mark: Mark) -> CurveLine:
    def figure_at(estimates: tuple[Estimate, ...], place: int) -> tables.Cell:
        return tables.figure(estimates[place] if place < len(estimates) else None, spelling.share)

    rows = tuple(
        (
            str(place + 1),
            figure_at(curve.joint, place),
            figure_at(curve.conditional, place),
            figure_at(curve.survival, place),
        )
        for place in range(len(curve.joint))
    )
    return CurveLine(mark, curve.joint, rows)
