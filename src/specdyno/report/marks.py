"""How an arm looks in every chart: one style and one shape per method, the same all over the report."""

from __future__ import annotations

from dataclasses import dataclass

from specdyno.plan.schema import Arm, Candidate, Experiment, Plan
from specdyno.records.schema import StudyRecords
from specdyno.report.untrusted import sanitise
from specdyno.statistics.analysis import Analysis

SHAPES = ("circle", "square", "diamond", "triangle", "cross", "plus", "star", "bar")


@dataclass(frozen=True, slots=True)
class Mark:
    """How an arm looks in every chart: `style` counts methods from 1 (0: baseline), `shape` goes with it."""

    arm: str
    method: str | None
    draft_tokens: int | None
    style: int
    shape: str


def arms(records: StudyRecords) -> tuple[Arm, ...]:
    """The arms of the plan in force; the header's plan is a dump, whose durations no longer carry units."""
    plan = records.header.plan
    candidates = tuple(Candidate.model_validate(part) for part in plan.get("candidates", ()))
    experiment = Experiment.model_construct(a_a=bool(plan.get("experiment", {}).get("a_a", False)))
    return Plan.model_construct(candidates=candidates, experiment=experiment).arms()


def marks_of(records: StudyRecords, analysis: Analysis) -> dict[str, Mark]:
    planned = {arm.name: arm for arm in arms(records)}
    styles: dict[str, int] = {}
    found = {}
    for name in analysis.arms:
        arm = planned.get(name)
        method = arm.method.value if arm is not None and arm.method is not None else None
        style = styles.setdefault(method, len(styles) + 1) if method is not None else 0
        shape = SHAPES[(style - 1) % len(SHAPES)] if style else "bar"
        found[name] = Mark(sanitise(name), method, arm.draft_tokens if arm is not None else None, style, shape)
    return found


def mark_of(name: str, marks: dict[str, Mark]) -> Mark:
    return marks.get(name) or Mark(sanitise(name), None, None, 0, "bar")
