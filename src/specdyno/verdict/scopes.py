"""Classes that may be promoted apart where the whole traffic is not: a gatekeeper with its own share of the error.

The whole traffic keeps 4/5 of an objective's allowed error, the cells (one per class at the objective's load) share
1/5 by Holm's procedure, repeated at every look: a cell that crossed stays crossed and passes its share on. Whether a
cell crosses does not depend on when or how the whole traffic was decided, so a lower gain can never open a scope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdyno.plan.schema import Arm, Objective
from specdyno.statistics.blocks import PROMOTION_BLOCKS
from specdyno.statistics.intervals import Undefined
from specdyno.verdict import gates
from specdyno.verdict.evidence import Evidence
from specdyno.verdict.gates import Checked
from specdyno.verdict.levels import ALPHA, MIXTURE_SHARE, nominal_level
from specdyno.verdict.replay import Crossing, guard_missed, guards_over, run_gates
from specdyno.verdict.schema import CellVerdict, Decision, GateStatus, Scope


@dataclass(frozen=True, slots=True)
class _Holm:
    """Holm's procedure over the cells of one candidate, look by look."""

    evidence: Evidence
    objective: Objective
    arm: Arm

    def level(self, open_cells: int) -> float:
        share = ALPHA * (1 - MIXTURE_SHARE)
        return nominal_level(
            self.evidence.plan.experiment.looks, share, len(self.evidence.candidates) * max(1, open_cells)
        )

    def check(self, name: str, blocks: Sequence[int], level: float) -> tuple[CellVerdict, bool]:
        """One cell at one level, and whether it crossed: its primary and its own guards, all met."""
        objective = self.objective
        measure = objective.measure.value
        ys = self.evidence.ys(self.arm.name, objective.load, measure, blocks=blocks, class_name=name)
        threshold = 1 + objective.minimum_gain
        primary = gates.check_ratio(gates.PRIMARY, measure, ys, threshold=threshold, alpha=level).gate
        guards = guards_over(self.evidence, objective, self.arm, blocks=blocks, alpha=level, class_name=name)
        parts = [primary, *(guard.gate for guard in guards)]
        met = all(part.status is GateStatus.MET for part in parts)
        status = primary.status if met or primary.status is not GateStatus.MET else GateStatus.UNDECIDED
        return CellVerdict(name, status, primary.ratio, threshold, level, len(blocks) if met else None), met

    def run(self, blocks: Sequence[int], crossed: dict[str, CellVerdict], names: Sequence[str]) -> list[CellVerdict]:
        """Adds the cells that cross at this look to `crossed`; returns what is left open."""
        while True:
            left = [name for name in names if name not in crossed]
            level = self.level(len(left))
            found = [self.check(name, blocks, level) for name in left]
            new = {cell.class_name: cell for cell, met in found if met}
            if not new:
                return [cell for cell, _ in found]
            crossed |= new


def find_scope(evidence: Evidence, objective: Objective, arm: Arm, crossing: Crossing) -> Scope | None:
    """The classes for which the gain is shown although the whole traffic is not promoted; None: none were declared.

    A guard of the whole traffic that is broken at any look closes the gate, lest a lower gain open it; so does a whole
    that was not measured, or whose failed requests are not shown to be harmless: they are not known by class. At
    concurrency 1 a server never batches classes together, so all that crossed are one scope. Above it only one class,
    in its own window, was measured by itself: the one with the largest share of requests; all of them are a scope to
    confirm.
    """
    names = evidence.cells(objective)
    if not names or crossing.decision is Decision.PROMOTE:
        return None
    blocks = evidence.blocks_of(arm.name)
    reached = [look for look in evidence.looks_of(arm.name) if look >= PROMOTION_BLOCKS]
    holm, crossed = _Holm(evidence, objective, arm), dict[str, CellVerdict]()
    left = [
        CellVerdict(name, GateStatus.UNDECIDED, Undefined("no look yet"), 1 + objective.minimum_gain, holm.level(1))
        for name in names
    ]
    for look in reached:
        left = holm.run(blocks[:look], crossed, names)
    cells = {cell.class_name: cell for cell in (*left, *crossed.values())}
    closed = _closed([run_gates(evidence, objective, arm, blocks=blocks[:look]) for look in reached])
    classes = () if closed else tuple(name for name in names if name in crossed)
    shares = {part.name: part.share for part in evidence.plan.workload.classes}
    together = len(classes) < 2 or evidence.plan.load(objective.load).concurrency == 1
    return Scope(
        classes=classes if together else (max(classes, key=lambda name: shares[name]),),
        to_confirm=() if together else classes,
        undecided=not closed and any(_promising(cell) for cell in left),
        cells=tuple(cells[name] for name in names),
    )


def _closed(looks: Sequence[Sequence[Checked]]) -> bool:
    """Whether the whole traffic forbids any scope: never measured, its failures not shown harmless, a guard missed."""
    if not looks or any(guard_missed(tested) for tested in looks):
        return True
    primary, *guards = (test.gate for test in looks[-1])
    failures = [gate.status for gate in guards if gate.name == gates.FAILED_REQUESTS]
    return isinstance(primary.ratio, Undefined) or any(status is not GateStatus.MET for status in failures)


def _promising(cell: CellVerdict) -> bool:
    """Whether more blocks could let it cross: its estimate lies above the threshold, its interval on both sides."""
    ratio = cell.ratio
    return cell.status is GateStatus.UNDECIDED and (isinstance(ratio, Undefined) or ratio.estimate > cell.threshold)
