"""What the gates may look at: the plan, the estimates, and which blocks count for which candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from specdyno.plan.schema import BASELINE, Arm, Objective, Plan, Role
from specdyno.records.schema import Finding
from specdyno.statistics.analysis import Analysis
from specdyno.statistics.intervals import Undefined
from specdyno.verdict.levels import cells, objective_level

Cell = tuple[str, str, str, str | None]  # candidate, load, measure, class name or None for the mixed traffic


@dataclass(frozen=True)
class Evidence:
    """A plan, its analysis and the scored blocks in order."""

    plan: Plan
    analysis: Analysis
    blocks: tuple[int, ...]
    dropped: frozenset[str]  # candidates whose engine failed twice in one block
    retired: Mapping[str, int] = field(default_factory=dict)  # candidate -> first block that did not need it any more

    @cached_property
    def candidates(self) -> tuple[Arm, ...]:
        return tuple(arm for arm in self.plan.arms() if arm.role is Role.CANDIDATE)

    def cells(self, objective: Objective) -> tuple[str, ...]:
        """Classes that may be promoted apart."""
        return cells(self.plan, objective)

    def level(self, objective: Objective) -> float:
        """Two-sided level of one candidate's whole traffic at one look."""
        return objective_level(self.plan, objective)

    def blocks_of(self, candidate: str) -> tuple[int, ...]:
        """Scored blocks in which the candidate was still in the race, in order."""
        end = self.retired.get(candidate)
        return self.blocks if end is None else tuple(block for block in self.blocks if block < end)

    def looks_of(self, candidate: str) -> tuple[int, ...]:
        """The declared looks that the candidate's blocks reach."""
        return tuple(look for look in self.plan.experiment.looks if look <= len(self.blocks_of(candidate)))

    @cached_property
    def _tables(self) -> dict[Cell, dict[int, float]]:
        return {(c.candidate, c.load, c.measure, c.class_name): dict(c.by_block) for c in self.analysis.contrasts}

    @cached_property
    def _bounds(self) -> dict[Cell, dict[int, tuple[float | None, float | None]]]:
        return {
            (c.candidate, c.load, c.measure, c.class_name): {block: (low, high) for block, low, high in c.bounds}
            for c in self.analysis.contrasts
        }

    def ys(
        self, candidate: str, load: str, measure: str, *, blocks: Sequence[int], class_name: str | None = None
    ) -> tuple[float, ...] | Undefined:
        """y_b of `blocks`; Undefined unless every one of them has it, lest the gaps be no accident."""
        table = self._tables.get((candidate, load, measure, class_name), {})
        known = tuple(table[block] for block in blocks if block in table)
        if len(known) < len(blocks) or not known:
            reason = f"measured in {len(known)} of {len(blocks)} blocks"
            if nought := self._at_nought(candidate, (load, measure, class_name), blocks):
                reason += f"; it was 0 in {nought}, which has no ratio"
            return Undefined(reason, len(known))
        return known

    def sides(
        self, candidate: str, load: str, measure: str, *, blocks: Sequence[int]
    ) -> tuple[tuple[float | None, float | None], ...] | None:
        """What y_b of `blocks` are not below and not above; None where one of them has no such bounds."""
        bounded = self._bounds.get((candidate, load, measure, None), {})
        known = tuple(bounded[block] for block in blocks if block in bounded)
        return known if known and len(known) == len(blocks) else None

    def _at_nought(self, candidate: str, cell: tuple[str, str, str | None], blocks: Sequence[int]) -> int:
        """Blocks in which the candidate or the baseline was measured and is 0: nothing met a service level."""
        values = [
            dict(one.by_block)
            for one in self.analysis.levels
            if one.arm in (candidate, BASELINE) and (one.load, one.measure, one.class_name) == cell
        ]
        return sum(any(table.get(block) == 0 for table in values) for block in blocks)

    def failures(self, arm: str, load: str, *, blocks: Sequence[int]) -> tuple[int, int]:
        """(failed, sent) over `blocks`."""
        counts = [c for c in self.analysis.outcome_counts if (c.arm, c.load) == (arm, load) and c.block in blocks]
        return sum(c.failed for c in counts), sum(c.requests for c in counts)

    def findings_on(self, candidate: str, load: str) -> tuple[Finding, ...]:
        """Findings that bear on a candidate at a load: its own, the baseline's, and those of everyone."""
        others = {arm.name for arm in self.candidates} - {candidate}
        return tuple(f for f in self.analysis.findings if f.arm not in others and f.load in (None, load))
