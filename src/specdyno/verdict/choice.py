"""Which of the promoted candidates to deploy: the smallest K that noise cannot tell from the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from specdyno.plan.schema import Arm, Objective
from specdyno.statistics.contrasts import ratio_interval
from specdyno.statistics.intervals import Interval, Undefined
from specdyno.verdict.schema import CandidateVerdict, Decision

INDIFFERENCE = 0.03
LEVEL = 0.95


class Evidence(Protocol):
    """What is needed of the evidence: the candidates and their y_b."""

    @property
    def candidates(self) -> tuple[Arm, ...]: ...

    @property
    def blocks(self) -> tuple[int, ...]: ...

    def ys(
        self, candidate: str, load: str, measure: str, *, blocks: Sequence[int]
    ) -> tuple[float, ...] | Undefined: ...


def primary_estimate(verdict: CandidateVerdict) -> Interval | None:
    """The interval of a candidate's primary gate; None where it is undefined."""
    ratio = verdict.gates[0].ratio if verdict.gates else None
    return ratio if isinstance(ratio, Interval) else None


def find_best(verdicts: Sequence[CandidateVerdict]) -> CandidateVerdict | None:
    """The candidate with the largest estimate, the first of equals; None where none has one."""
    known = [(estimate.estimate, verdict) for verdict in verdicts if (estimate := primary_estimate(verdict))]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def detectable_gain(best: CandidateVerdict | None) -> float | None:
    """Half the width of the best candidate's interval, as a gain: what this much data could have shown."""
    estimate = primary_estimate(best) if best is not None else None
    if estimate is None or estimate.low <= 0:
        return None
    return math.expm1(min(700.0, (math.log(estimate.high) - math.log(estimate.low)) / 2))


def recommend(evidence: Evidence, objective: Objective, verdicts: Sequence[CandidateVerdict]) -> str | None:
    """The smallest K of the promoted whose paired interval against the best of them holds 1 or lies within 3 %."""
    promoted = [verdict for verdict in verdicts if verdict.decision is Decision.PROMOTE]
    best = find_best(promoted)
    if best is None:
        return None
    lengths = {arm.name: arm.draft_tokens or 0 for arm in evidence.candidates}
    near = [v for v in promoted if v is best or _as_good(evidence, objective, v, best)]
    order = sorted(near, key=lambda v: (lengths[v.candidate], -_estimate_of(v), v.candidate))
    return order[0].candidate


def _estimate_of(verdict: CandidateVerdict) -> float:
    estimate = primary_estimate(verdict)
    return estimate.estimate if estimate is not None else -math.inf


def _as_good(evidence: Evidence, objective: Objective, verdict: CandidateVerdict, best: CandidateVerdict) -> bool:
    """Paired over the blocks of the later of the two looks."""
    look = max(verdict.look or 0, best.look or 0)
    blocks = evidence.blocks[:look]
    sides = [evidence.ys(v.candidate, objective.load, objective.measure.value, blocks=blocks) for v in (verdict, best)]
    if isinstance(sides[0], Undefined) or isinstance(sides[1], Undefined):
        return False
    between = ratio_interval([mine - theirs for mine, theirs in zip(sides[0], sides[1], strict=True)], LEVEL)
    if not isinstance(between, Interval):
        return False
    within = between.low >= 1 / (1 + INDIFFERENCE) and between.high <= 1 + INDIFFERENCE
    return within or between.low <= 1 <= between.high
