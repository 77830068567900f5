"""The declared looks replayed in block order for one candidate: the first crossing decides and is frozen.

What a look saw follows from the records alone. Racing and budgets only end a candidate's blocks early, which can make
an error no more likely, so a replay needs to know nothing about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdyno.plan.schema import BASELINE, Arm, MeasureName, Objective
from specdyno.statistics.blocks import PROMOTION_BLOCKS
from specdyno.statistics.intervals import Interval
from specdyno.statistics.measures import THROUGHPUT
from specdyno.verdict import gates
from specdyno.verdict.evidence import Evidence
from specdyno.verdict.gates import Checked
from specdyno.verdict.schema import Decision, GateStatus, Reason


@dataclass(frozen=True, slots=True)
class Crossing:
    """What the gates say by themselves: at the first look that promotes or rejects, else at the last one reached."""

    decision: Decision
    reason: Reason
    gate: str | None
    look: int | None  # None: no look has decided
    tested: tuple[Checked, ...]


def replay_looks(evidence: Evidence, objective: Objective, arm: Arm) -> Crossing:
    """The candidate's looks in order; blocks past the last complete look are not used. Before the first: all, hold."""
    blocks, reached = evidence.blocks_of(arm.name), evidence.looks_of(arm.name)
    if not reached:
        tested = run_gates(evidence, objective, arm, blocks=blocks)
        return Crossing(Decision.HOLD, Reason.TOO_FEW_BLOCKS, None, None, tested)
    for look in reached:
        tested = run_gates(evidence, objective, arm, blocks=blocks[:look])
        decision, reason, gate = weigh(tested, blocks=look)
        if decision is not Decision.HOLD:
            return Crossing(decision, reason, gate, look, tested)
    return Crossing(decision, reason, gate, None, tested)


def run_gates(evidence: Evidence, objective: Objective, arm: Arm, *, blocks: Sequence[int]) -> tuple[Checked, ...]:
    """The primary gate first, then the guards in force, over these blocks."""
    alpha, load = evidence.level(objective), objective.load
    measure = objective.measure.value
    threshold = 1 + objective.minimum_gain
    ys = evidence.ys(arm.name, load, measure, blocks=blocks)
    sides = evidence.sides(arm.name, load, measure, blocks=blocks)
    if sides is not None:
        primary = gates.check_bounds(gates.PRIMARY, measure, sides, ys, threshold=threshold, alpha=alpha)
    else:
        primary = gates.check_ratio(gates.PRIMARY, measure, ys, threshold=threshold, alpha=alpha)
    guards = guards_over(evidence, objective, arm, blocks=blocks, alpha=alpha)
    margin = evidence.plan.guards.failed_requests
    # A search goes beyond what the server carries, in each arm by as much; a failed request meets no level anyway.
    if margin is not None and objective.measure is not MeasureName.LARGEST_RATE:
        mine, theirs = (evidence.failures(name, load, blocks=blocks) for name in (arm.name, BASELINE))
        guards.append(gates.check_failures(mine, theirs, margin=margin, alpha=alpha))
    return (primary, *gates.settle_guards(guards, alpha=alpha))


def guards_over(  # noqa: PLR0913 - a cell of the evidence and the level at which it is tested
    evidence: Evidence,
    objective: Objective,
    arm: Arm,
    *,
    blocks: Sequence[int],
    alpha: float,
    class_name: str | None = None,
) -> list[Checked]:
    """The guards that rest on y_b, of the mixed traffic or of one class's cut of it; `missed` is not yet settled."""
    margins, tested = evidence.plan.guards, []
    if margins.output_length is not None:
        measure = "output_tokens_per_job"
        ys = evidence.ys(arm.name, objective.load, measure, blocks=blocks, class_name=class_name)
        tested.append(
            gates.check_equivalence(gates.OUTPUT_LENGTH, measure, ys, margin=margins.output_length, alpha=alpha)
        )
    if margins.tpot is not None and objective.measure.value in THROUGHPUT:
        ys = evidence.ys(arm.name, objective.load, "tpot", blocks=blocks, class_name=class_name)
        tested.append(gates.check_ratio(gates.TPOT, "tpot", ys, threshold=1 / (1 + margins.tpot), alpha=alpha))
    return tested


def weigh(tested: Sequence[Checked], *, blocks: int) -> tuple[Decision, Reason, str | None]:
    """Gates to a decision, its reason and the gate that made it. The order of the guards does not matter to it."""
    primary, *guards = (test.gate for test in tested)
    missed = sorted(gate.name for gate in guards if gate.status is GateStatus.MISSED)
    if primary.status is GateStatus.MISSED:
        return Decision.REJECT, Reason.GAIN_EXCLUDED, primary.name
    if missed:
        return Decision.REJECT, Reason.GUARD_BROKEN, missed[0]
    if primary.status is GateStatus.UNDECIDED:
        measured = isinstance(primary.ratio, Interval)
        return Decision.HOLD, Reason.PRIMARY_UNDECIDED if measured else Reason.NOT_MEASURED, primary.name
    undecided = sorted((isinstance(g.ratio, Interval), g.name) for g in guards if g.status is GateStatus.UNDECIDED)
    if undecided:
        measured, name = undecided[0]
        return Decision.HOLD, Reason.GUARD_UNDECIDED if measured else Reason.NOT_MEASURED, name
    if blocks < PROMOTION_BLOCKS:
        return Decision.HOLD, Reason.TOO_FEW_BLOCKS, None
    return Decision.PROMOTE, Reason.GAIN_SHOWN, primary.name


def guard_missed(tested: Sequence[Checked]) -> bool:
    return any(test.gate.status is GateStatus.MISSED for test in tested[1:])
