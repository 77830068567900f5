"""Acceptance as panels: one per load and class, one line per arm."""

from __future__ import annotations

from dataclasses import dataclass

from specdyno.report import spelling, tables
from specdyno.report.marks import Mark, mark_of
from specdyno.report.untrusted import sanitise
from specdyno.statistics.analysis import Analysis, Curve


@dataclass(frozen=True, slots=True)
class CurveLine:
    mark: Mark
    curve: Curve
    rows: tuple[tuple[str, tables.Cell, tables.Cell], ...]  # position, joint, conditional
    facts: tuple[tuple[str, str], ...]  # rate, mean accepted length, coverage, tokens per step, data behind it


@dataclass(frozen=True, slots=True)
class CurvePanel:
    load: str
    class_name: str | None
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
                panels.append(CurvePanel(sanitise(load), name, title, lines))
    return panels


def _curve_line(curve: Curve, mark: Mark) -> CurveLine:
    conditional = curve.conditional + (None,) * (len(curve.joint) - len(curve.conditional))
    rows = tuple(
        (str(place), tables.figure(joint, spelling.share), tables.figure(other, spelling.share))
        for place, (joint, other) in enumerate(zip(curve.joint, conditional, strict=False), start=1)
    )
    facts = (
        ("acceptance rate", spelling.with_interval(curve.rate, spelling.share)),
        ("mean accepted length", spelling.with_interval(curve.mean_accepted_length, spelling.plain)),
        ("draft coverage", spelling.with_interval(curve.coverage, spelling.share)),
        ("tokens per step", spelling.with_interval(curve.tokens_per_step, spelling.plain)),
        ("drafted steps", spelling.count(curve.drafted_steps)),
        ("boots", str(curve.boots)),
        ("source", sanitise(curve.source)),
    )
    return CurveLine(mark, curve, rows, facts)
