"""What to deploy: for each objective the arm that its verdict recommends, and the traffic that it holds for.

Names arms only; how an arm is written for its engine is the adapter's knowledge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdyno.plan.schema import Plan
from specdyno.statistics.analysis import Analysis, Ladder
from specdyno.verdict.schema import CandidateVerdict, Decision, Gate, ObjectiveVerdict, Verdict


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One objective's outcome in terms of what to run. `arm` is None where nothing is promoted: keep the baseline."""

    objective: str
    load: str
    decision: Decision
    arm: str | None
    classes: tuple[str, ...]  # traffic that the promote holds for; all of the plan's classes where it is not scoped
    others: tuple[str, ...]  # classes that stay without speculation
    primary: Gate | None  # the measure that the promote rests on
    up_to: int | None = None  # requests in flight up to which a ladder shows that it pays; None: not limited


def recommendations(verdict: Verdict, analysis: Analysis, plan: Plan) -> tuple[Recommendation, ...]:
    """One per objective, in the plan's order."""
    found = (_recommendation(one, plan.classes_at(plan.load(one.load))) for one in verdict.objectives)
    return tuple(replace(one, up_to=_limit(one, analysis)) for one in found)


def ladders_of(arm: str, classes: tuple[str, ...] | None, analysis: Analysis) -> tuple[Ladder, ...]:
    """The ladders that say how far a recommendation reaches: of the whole traffic, or of each class of a scope."""
    names: tuple[str | None, ...] = (None,) if classes is None else classes
    return tuple(ladder for ladder in analysis.ladders if ladder.candidate == arm and ladder.class_name in names)


def _limit(one: Recommendation, analysis: Analysis) -> int | None:
    """Where a ladder of the plan shows that the recommended arm pays below some rung and not at all of them."""
    shown = ladders_of(one.arm, one.classes if one.others else None, analysis) if one.arm is not None else ()
    limits = [
        ladder.pays_up_to
        for ladder in shown
        if ladder.pays_up_to is not None and ladder.pays_up_to < ladder.rungs[-1].concurrency
    ]
    return min(limits, default=None)


def _recommendation(objective: ObjectiveVerdict, names: tuple[str, ...]) -> Recommendation:
    chosen = _chosen(objective)
    if chosen is None:
        return Recommendation(objective.objective, objective.load, objective.decision, None, (), names, None)
    scope = chosen.scope
    classes = scope.classes if scope is not None and scope.classes else names
    return Recommendation(
        objective=objective.objective,
        load=objective.load,
        decision=objective.decision,
        arm=chosen.candidate,
        classes=classes,
        others=tuple(name for name in names if name not in classes),
        primary=next((gate for gate in chosen.gates if gate.name == "primary"), None),
    )


def _chosen(objective: ObjectiveVerdict) -> CandidateVerdict | None:
    """The recommended candidate of a promote; None for hold and reject."""
    if objective.decision is not Decision.PROMOTE:
        return None
    return next((part for part in objective.candidates if part.candidate == objective.recommended), None)
