"""The verdict: looks replayed in block order, gates at each, the first crossing frozen, doubt towards hold.

Pure and total: any records give exactly one verdict, the same records the same. A forbidding finding takes a promote
down to a hold and never lifts a reject.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from specdyno.plan.schema import BASELINE, Arm, MeasureName, Objective, Plan, Role
from specdyno.records.schema import BootRecord, Finding, FindingCode, Severity, StudyRecords
from specdyno.statistics.analyse import analyse, plan_of
from specdyno.statistics.analysis import Analysis
from specdyno.statistics.blocks import PROMOTION_BLOCKS, sort_blocks
from specdyno.statistics.intervals import SPREAD_FLOOR, Interval, Undefined, spread, spread_interval
from specdyno.verdict import gates
from specdyno.verdict.choice import detectable_gain, find_best, recommend
from specdyno.verdict.fingerprint import fingerprint
from specdyno.verdict.gates import Checked
from specdyno.verdict.levels import ALPHA, nominal_level
from specdyno.verdict.schema import (
    ORDER,
    CandidateVerdict,
    Decision,
    GateStatus,
    ObjectiveVerdict,
    Reason,
    Verdict,
)

THROUGHPUT = (MeasureName.JOBS_PER_S, MeasureName.OUTPUT_TOKENS_PER_S)
NOT_CHECKED = "not measured"
_WANT_OF_BLOCKS = frozenset({FindingCode.TOO_FEW_BLOCKS, FindingCode.BLOCKS_INCOMPLETE})
MOST_BLOCKS = 10_000
"""Beyond it the number of blocks that would settle a hold is of no use to anyone."""


def judge(records: StudyRecords) -> tuple[Analysis, Verdict]:
    """Records to analysis and verdict."""
    analysis = analyse(records)
    return analysis, decide(records, analysis)


def decide(records: StudyRecords, analysis: Analysis) -> Verdict:
    """One verdict per objective and one for the study."""
    plan = plan_of(records)
    blocks = sort_blocks(records, plan)
    evidence = Evidence(plan, analysis, tuple(blocks.scored), blocks.dropped)
    objectives = tuple(decide_objective(evidence, objective) for objective in plan.objectives)
    return Verdict(
        study=plan.study,
        outcome=_outcome([objective.decision for objective in objectives]),
        objectives=objectives,
        quality=NOT_CHECKED,
        blocks_complete=len(blocks.scored),
        blocks_incomplete=blocks.incomplete,
        looks=plan.experiment.looks,
        findings=analysis.findings,
        fingerprint=fingerprint(records, _reference_boots(blocks.scored)),
    )


def _reference_boots(scored: dict[int, dict[str, BootRecord]]) -> dict[str, BootRecord]:
    """Each arm's first scored boot."""
    found: dict[str, BootRecord] = {}
    for boots in scored.values():
        for arm, boot in boots.items():
            found.setdefault(arm, boot)
    return found


def _outcome(decisions: Sequence[Decision]) -> Decision:
    """Promote if any promotes, else hold if any holds, else reject."""
    return max(decisions, key=ORDER.index) if decisions else Decision.HOLD


@dataclass(frozen=True)
class Evidence:
    """What the gates may look at: the plan, the estimates and the scored blocks in order."""

    plan: Plan
    analysis: Analysis
    blocks: tuple[int, ...]
    dropped: frozenset[str]

    @property
    def candidates(self) -> tuple[Arm, ...]:
        return tuple(arm for arm in self.plan.arms() if arm.role is Role.CANDIDATE)

    @property
    def alpha(self) -> float:
        return nominal_level(self.plan.experiment.looks, ALPHA, len(self.candidates))

    def ys(self, candidate: str, load: str, measure: str, *, blocks: Sequence[int]) -> tuple[float, ...] | Undefined:
        """y_b of `blocks`; Undefined unless every one of them has it, lest the gaps be no accident."""
        table = {
            block: y
            for contrast in self.analysis.contrasts
            if (contrast.candidate, contrast.load, contrast.measure) == (candidate, load, measure)
            and contrast.class_name is None
            for block, y in contrast.by_block
        }
        known = tuple(table[block] for block in blocks if block in table)
        if len(known) < len(blocks) or not known:
            return Undefined(f"measured in {len(known)} of {len(blocks)} blocks", len(known))
        return known

    def failures(self, arm: str, load: str, *, blocks: Sequence[int]) -> tuple[int, int]:
        """(failed, sent) over `blocks`."""
        counts = [c for c in self.analysis.outcome_counts if (c.arm, c.load) == (arm, load) and c.block in blocks]
        return sum(c.failed for c in counts), sum(c.requests for c in counts)

    def findings_on(self, candidate: str, load: str) -> tuple[Finding, ...]:
        """Findings that bear on a candidate at a load: its own, the baseline's, and those of everyone."""
        others = {arm.name for arm in self.candidates} - {candidate}
        return tuple(f for f in self.analysis.findings if f.arm not in others and f.load in (None, load))


def decide_objective(evidence: Evidence, objective: Objective) -> ObjectiveVerdict:
    """Every candidate's verdict for one objective, and the one to deploy."""
    verdicts = tuple(_decide_candidate(evidence, objective, arm) for arm in evidence.candidates)
    best = find_best(verdicts)
    return ObjectiveVerdict(
        objective=objective.name,
        load=objective.load,
        measure=objective.measure.value,
        minimum_gain=objective.minimum_gain,
        decision=_outcome([verdict.decision for verdict in verdicts]),
        recommended=recommend(evidence, objective, verdicts),
        best=best.candidate if best is not None else None,
        candidates=verdicts,
        level=evidence.alpha,
        detectable_gain=detectable_gain(best),
    )


def _decide_candidate(evidence: Evidence, objective: Objective, arm: Arm) -> CandidateVerdict:
    """The crossing, and what findings and failures leave of it. `look` stays None while more blocks could decide."""
    findings = evidence.findings_on(arm.name, objective.load)
    crossing = replay_looks(evidence, objective, arm)
    decision, reason, gate, look = crossing.decision, crossing.reason, crossing.gate, crossing.look
    if arm.name in evidence.dropped:
        decision, reason, gate, look = Decision.REJECT, Reason.FAILED_TO_RUN, None, len(evidence.blocks)
    elif decision is not Decision.REJECT and _forbidden(findings):
        few_only = reason is Reason.TOO_FEW_BLOCKS and not _forbidden(findings, but=_WANT_OF_BLOCKS)
        decision, reason, gate = Decision.HOLD, Reason.TOO_FEW_BLOCKS if few_only else Reason.FINDING_FORBIDS, None
    return CandidateVerdict(
        candidate=arm.name,
        decision=decision,
        reason=reason,
        deciding_gate=gate,
        gates=tuple(tested.gate for tested in crossing.tested),
        look=look,
        findings=(*findings, *_length_findings(crossing.tested, arm, objective)),
        blocks_needed=blocks_needed(crossing.tested) if decision is Decision.HOLD else None,
    )


@dataclass(frozen=True, slots=True)
class Crossing:
    """What the gates say by themselves: at the first look that promotes or rejects, else at the last one reached."""

    decision: Decision
    reason: Reason
    gate: str | None
    look: int | None  # None: no look has decided
    tested: tuple[Checked, ...]


def replay_looks(evidence: Evidence, objective: Objective, arm: Arm) -> Crossing:
    """The declared looks in order; blocks past the last complete look are not used. Before the first: all, and hold."""
    reached = [look for look in evidence.plan.experiment.looks if look <= len(evidence.blocks)]
    if not reached:
        tested = run_gates(evidence, objective, arm, blocks=evidence.blocks)
        return Crossing(Decision.HOLD, Reason.TOO_FEW_BLOCKS, None, None, tested)
    for look in reached:
        tested = run_gates(evidence, objective, arm, blocks=evidence.blocks[:look])
        decision, reason, gate = weigh(tested, blocks=look)
        if decision is not Decision.HOLD:
            return Crossing(decision, reason, gate, look, tested)
    return Crossing(decision, reason, gate, None, tested)


def _forbidden(findings: Sequence[Finding], *, but: Collection[FindingCode] = ()) -> bool:
    return any(finding.severity is Severity.FORBIDS and finding.code not in but for finding in findings)


def _length_findings(tested: Sequence[Checked], arm: Arm, objective: Objective) -> tuple[Finding, ...]:
    """A shorter answer is not a faster one: says so where the lengths are shown to differ."""
    missed = any(t.gate.name == gates.OUTPUT_LENGTH and t.gate.status is GateStatus.MISSED for t in tested)
    if not missed:
        return ()
    detail = "output tokens per job differ from the baseline's"
    code, place = FindingCode.OUTPUT_LENGTH_DIFFERS, f"{arm.name}, {objective.load}"
    return (Finding(code, Severity.FORBIDS, place, detail, arm.name, objective.load),)


def run_gates(evidence: Evidence, objective: Objective, arm: Arm, *, blocks: Sequence[int]) -> tuple[Checked, ...]:
    """The primary gate first, then the guards in force, over these blocks."""
    alpha, guards, load = evidence.alpha, evidence.plan.guards, objective.load
    measure = objective.measure.value
    ys = evidence.ys(arm.name, load, measure, blocks=blocks)
    primary = gates.check_ratio(gates.PRIMARY, measure, ys, threshold=1 + objective.minimum_gain, alpha=alpha)
    tested = []
    if guards.output_length is not None:
        lengths = evidence.ys(arm.name, load, "output_tokens_per_job", blocks=blocks)
        tested.append(
            gates.check_equivalence(
                gates.OUTPUT_LENGTH, "output_tokens_per_job", lengths, margin=guards.output_length, alpha=alpha
            )
        )
    if guards.failed_requests is not None:
        sides = [evidence.failures(name, load, blocks=blocks) for name in (arm.name, BASELINE)]
        tested.append(gates.check_failures(sides[0], sides[1], margin=guards.failed_requests, alpha=alpha))
    if guards.tpot is not None and objective.measure in THROUGHPUT:
        waits = evidence.ys(arm.name, load, "tpot", blocks=blocks)
        tested.append(gates.check_ratio(gates.TPOT, "tpot", waits, threshold=1 / (1 + guards.tpot), alpha=alpha))
    return (primary, *gates.settle_guards(tested, alpha=alpha))


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


def blocks_needed(tested: Sequence[Checked]) -> tuple[int, int] | None:
    """Range of total blocks that would settle the undecided gates: 2 + (3.2 s / gap)^2 over the 80 % interval of s.

    The gap lies between the estimate and the threshold, on logs; for equivalence to the nearer margin. None where no
    gate that blocks can settle is undecided.
    """
    ranges = []
    for test in tested:
        s = spread(test.ys)
        if test.gate.status is not GateStatus.UNDECIDED or s is None:
            continue
        mean, threshold = math.fsum(test.ys) / len(test.ys), math.log(test.gate.threshold)
        gap = abs(threshold - (abs(mean) if test.gate.name == gates.OUTPUT_LENGTH else mean))
        bounds = spread_interval(max(s, SPREAD_FLOOR), len(test.ys), 0.80)
        ranges.append(tuple(_blocks_for(bound, gap, at_least=len(test.ys) + 1) for bound in bounds))
    if not ranges:
        return None
    return max(low for low, _ in ranges), max(high for _, high in ranges)


def _blocks_for(s: float, gap: float, *, at_least: int) -> int:
    wanted = 2 + (3.2 * s / gap) ** 2 if gap > 0 else math.inf
    return min(MOST_BLOCKS, max(at_least, PROMOTION_BLOCKS, math.ceil(min(wanted, MOST_BLOCKS))))
