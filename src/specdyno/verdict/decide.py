"""The verdict: looks replayed in block order, gates at each, the first crossing frozen, doubt towards hold.

Pure and total: any records give exactly one verdict, the same records the same. A forbidding finding takes a promote
down to a hold and never lifts a reject.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from specdyno.plan.schema import Arm, Objective
from specdyno.records.schema import BootRecord, Finding, FindingCode, Severity, StudyRecords
from specdyno.statistics.analyse import analyse, plan_of
from specdyno.statistics.analysis import Analysis
from specdyno.statistics.blocks import sort_blocks
from specdyno.verdict import gates
from specdyno.verdict.choice import cannot_reach, detectable_gain, find_best, indifference, recommend
from specdyno.verdict.evidence import Evidence
from specdyno.verdict.fingerprint import fingerprint
from specdyno.verdict.gates import Checked
from specdyno.verdict.outlook import blocks_needed, power_curve
from specdyno.verdict.replay import Crossing, replay_looks, weigh
from specdyno.verdict.schema import (
    ORDER,
    CandidateVerdict,
    Decision,
    GateStatus,
    ObjectiveVerdict,
    Reason,
    Scope,
    Verdict,
)
from specdyno.verdict.scopes import find_scope

__all__ = ["Evidence", "blocks_needed", "decide", "decide_objective", "judge", "replay_looks", "weigh"]

NOT_CHECKED = "not measured"
_WANT_OF_BLOCKS = frozenset({FindingCode.TOO_FEW_BLOCKS, FindingCode.BLOCKS_INCOMPLETE})


def judge(records: StudyRecords) -> tuple[Analysis, Verdict]:
    """Records to analysis and verdict."""
    analysis = analyse(records)
    return analysis, decide(records, analysis)


def decide(records: StudyRecords, analysis: Analysis) -> Verdict:
    """One verdict per objective and one for the study."""
    # A value that is not finite is caught where it would be used; on the way there it is nobody's error.
    with np.errstate(all="ignore"):
        return _decide(records, analysis)


def _decide(records: StudyRecords, analysis: Analysis) -> Verdict:
    plan = plan_of(records)
    blocks = sort_blocks(records, plan)
    evidence = Evidence(plan, analysis, tuple(blocks.scored), blocks.dropped, blocks.retired)
    objectives = tuple(_with_power(evidence, objective) for objective in plan.objectives)
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


def decide_objective(evidence: Evidence, objective: Objective) -> ObjectiveVerdict:
    """Every candidate's verdict for one objective, and the one to deploy."""
    verdicts = tuple(_decide_candidate(evidence, objective, arm) for arm in evidence.candidates)
    verdicts = _without_the_beaten(evidence, objective, verdicts)
    best, near = find_best(verdicts), indifference(evidence, objective, verdicts)
    return ObjectiveVerdict(
        objective=objective.name,
        load=objective.load,
        measure=objective.measure.value,
        minimum_gain=objective.minimum_gain,
        decision=_outcome([verdict.decision for verdict in verdicts]),
        recommended=recommend(evidence, verdicts, near),
        best=best.candidate if best is not None else None,
        candidates=verdicts,
        level=evidence.level(objective),
        detectable_gain=detectable_gain(best),
        indifference=near,
    )


def _with_power(evidence: Evidence, objective: Objective) -> ObjectiveVerdict:
    decided = decide_objective(evidence, objective)
    return replace(decided, power=power_curve(evidence, objective, find_best(decided.candidates)))


def _decide_candidate(evidence: Evidence, objective: Objective, arm: Arm) -> CandidateVerdict:
    """The crossing, and what findings and failures leave of it. `look` stays None while more blocks could decide."""
    findings = evidence.findings_on(arm.name, objective.load)
    crossing = replay_looks(evidence, objective, arm)
    scope = find_scope(evidence, objective, arm, crossing)
    decision, reason, gate, look = _with_scope(crossing, scope)
    if arm.name in evidence.dropped:
        decision, reason, gate, look = Decision.REJECT, Reason.FAILED_TO_RUN, None, len(evidence.blocks)
    elif decision is not Decision.REJECT and forbidden(findings):
        few_only = reason is Reason.TOO_FEW_BLOCKS and not forbidden(findings, but=_WANT_OF_BLOCKS)
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
        pursued=arm.name not in evidence.dropped and (look is None or (scope is not None and scope.undecided)),
        scope=scope,
    )


def _with_scope(crossing: Crossing, scope: Scope | None) -> tuple[Decision, Reason, str | None, int | None]:
    """A shown scope stands in for a whole that is not promoted; an open whole may still be, with more blocks."""
    if scope is None or not scope.classes:
        return crossing.decision, crossing.reason, crossing.gate, crossing.look
    return Decision.PROMOTE, Reason.SCOPED_GAIN_SHOWN, gates.PRIMARY, crossing.look


def _without_the_beaten(
    evidence: Evidence, objective: Objective, verdicts: tuple[CandidateVerdict, ...]
) -> tuple[CandidateVerdict, ...]:
    """Open candidates that cannot come near the best one are not pursued: they hold, and the looks go on without them.

    Who was disqualified (failed, guard broken, forbidden) is no measure for others, however fast it was.
    """
    fit = [
        verdict
        for verdict in verdicts
        if verdict.candidate not in evidence.dropped
        and not any(gate.status is GateStatus.MISSED for gate in verdict.gates[1:])
        and not forbidden(verdict.findings, but=_WANT_OF_BLOCKS)
    ]
    best = find_best(fit)
    if best is None:
        return verdicts
    return tuple(
        replace(
            verdict,
            reason=Reason.NOT_PURSUED,
            look=looks[-1],
            deciding_gate=None,
            blocks_needed=None,
            pursued=verdict.scope is not None and verdict.scope.undecided,
        )
        if verdict.decision is Decision.HOLD
        and verdict.look is None
        and verdict.reason in (Reason.PRIMARY_UNDECIDED, Reason.GUARD_UNDECIDED)
        and (looks := evidence.looks_of(verdict.candidate))
        and cannot_reach(evidence, objective, verdict.candidate, best.candidate)
        else verdict
        for verdict in verdicts
    )


def forbidden(findings: Sequence[Finding], *, but: Collection[FindingCode] = ()) -> bool:
    return any(finding.severity is Severity.FORBIDS and finding.code not in but for finding in findings)


def _length_findings(tested: Sequence[Checked], arm: Arm, objective: Objective) -> tuple[Finding, ...]:
    """A shorter answer is not a faster one: says so where the lengths are shown to differ."""
    missed = any(t.gate.name == gates.OUTPUT_LENGTH and t.gate.status is GateStatus.MISSED for t in tested)
    if not missed:
        return ()
    detail = "output tokens per job differ from the baseline's"
    code, place = FindingCode.OUTPUT_LENGTH_DIFFERS, f"{arm.name}, {objective.load}"
    return (Finding(code, Severity.FORBIDS, place, detail, arm.name, objective.load),)


def pursued(records: StudyRecords, verdict: Verdict) -> frozenset[str]:
    """Candidates that further blocks are spent on: any decision open, of the whole traffic or of a class.

    Not those that were left behind earlier: a block that they missed could never be made whole again. Who missed only
    the newest block may have been next in it when the run was stopped.
    """
    newest = max((boot.block for boot in records.boots), default=0)
    retired = sort_blocks(records, plan_of(records)).retired
    still = {one.candidate for objective in verdict.objectives for one in objective.candidates if one.pursued}
    return frozenset(still - {name for name, block in retired.items() if block < newest})
