"""How an arm looks in every chart: one style and one shape per method, the same all over the report."""

from __future__ import annotations

from dataclasses import dataclass

from specdyno.records.schema import StudyRecords
from specdyno.report.untrusted import sanitise
from specdyno.statistics.analyse import plan_of
from specdyno.statistics.analysis import Analysis

SHAPES = ("circle", "square", "diamond", "triangle", "cross", "plus", "star")
BASELINE_SHAPE = "bar"
COLOURS = 8
"""As many as the page's style sheet has, `--m1` to `--m8`; there is one shape less, so no pair comes twice."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How an arm looks in every chart: `style` counts methods from 1 (0: baseline), `shape` goes with it."""

    arm: str
    method: str | None
    draft_tokens: int | None
    style: int
    shape: str


def marks_of(records: StudyRecords, analysis: Analysis) -> dict[str, Mark]:
    """Marks by arm, in the order of the analysis. Methods get their style in the order of the plan."""
    planned = {arm.name: arm for arm in plan_of(records).arms()}
    styles: dict[str, int] = {}
    found = {}
    for name in analysis.arms:
        arm = planned.get(name)
        method = arm.method.value if arm is not None and arm.method is not None else None
        order = styles.setdefault(method, len(styles)) if method is not None else None
        style = 0 if order is None else 1 + order % COLOURS
        shape = BASELINE_SHAPE if order is None else SHAPES[order % len(SHAPES)]
        found[name] = Mark(sanitise(name), method, arm.draft_tokens if arm is not None else None, style, shape)
    return found


def mark_of(name: str, marks: dict[str, Mark]) -> Mark:
    return marks.get(name) or Mark(sanitise(name), None, None, 0, BASELINE_SHAPE)
