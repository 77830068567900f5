"""Which of the promoted candidates to deploy: the smallest K that is shown to lie within 3 % of the best."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specdyno.plan.schema import Objective
from specdyno.statistics.contrasts import ratio_interval
from specdyno.statistics.intervals import Estimate, Interval, Undefined
from specdyno.verdict.evidence import Evidence
from specdyno.verdict.schema import CandidateVerdict, Decision, Reason

INDIFFERENCE = 0.03
LEVEL = 0.95


def primary_estimate(verdict: CandidateVerdict) -> Interval | None:
    """The interval of a candidate's primary gate; None where it is undefined."""
    ratio = verdict.gates[0].ratio if verdict.gates else None
    return ratio if isinstance(ratio, Interval) else None


def find_best(verdicts: Sequence[CandidateVerdict]) -> CandidateVerdict | None:
    """The candidate with the largest estimate, the first of equals; None where none has one."""
    known = [(estimate.estimate, verdict) for verdict in verdicts if (estimate := primary_estimate(verdict))]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def detectable_gain(best: CandidateVerdict | None) -> float | None:
    """Half the width of the best candidate's interval, as a gain: what this much data could have shown.

    None where only one side of it is known.
    """
    estimate = primary_estimate(best) if best is not None else None
    if estimate is None or estimate.low <= 0 or estimate.bound:
        return None
    return math.expm1(min(700.0, (math.log(estimate.high) - math.log(estimate.low)) / 2))


def indifference(evidence: Evidence, objective: Objective, verdicts: Sequence[CandidateVerdict]) -> tuple[str, ...]:
    """Candidates promoted whole that cannot be told from the best of them: smallest K first, () where none is.

    In the set: the best, and every other whose paired interval (95 %) against it lies within 3 % either way.
    """
    promoted = [v for v in verdicts if v.decision is Decision.PROMOTE and v.reason is not Reason.SCOPED_GAIN_SHOWN]
    best = find_best(promoted)
    if best is None:
        return ()
    near = [v for v in promoted if v is best or _as_good(paired(evidence, objective, v.candidate, best.candidate))]
    return tuple(v.candidate for v in _smallest_first(evidence, near))


def recommend(evidence: Evidence, verdicts: Sequence[CandidateVerdict], near: Sequence[str]) -> str | None:
    """The first of the indifference set; without one, the scoped promote that covers the largest share of requests."""
    if near:
        return near[0]
    shares = {part.name: part.share for part in evidence.plan.workload.classes}
    scoped = [v for v in verdicts if v.decision is Decision.PROMOTE and v.scope is not None]
    widest = sorted(
        _smallest_first(evidence, scoped),
        key=lambda v: -round(math.fsum(shares[name] for name in v.scope.classes) if v.scope else 0.0, 9),
    )
    return widest[0].candidate if widest else None


def cannot_reach(evidence: Evidence, objective: Objective, candidate: str, best: str) -> bool:
    """Whether a candidate is shown to stay more than 3 % below another, at the level of the objective's gates."""
    between = paired(evidence, objective, candidate, best, level=1 - evidence.level(objective))
    return candidate != best and isinstance(between, Interval) and between.high < 1 / (1 + INDIFFERENCE)


def paired(evidence: Evidence, objective: Objective, candidate: str, other: str, *, level: float = LEVEL) -> Estimate:
    """The ratio of two candidates over the blocks that both have, up to the last look that both reached."""
    looks = [evidence.looks_of(name) for name in (candidate, other)]
    if not all(looks):
        return Undefined("no look yet")
    blocks = evidence.blocks_of(candidate)[: min(reached[-1] for reached in looks)]
    if any(evidence.sides(name, objective.load, objective.measure.value, blocks=blocks) for name in (candidate, other)):
        return Undefined("each lies between two rates")  # whose middle is not sharp enough to tell two candidates apart
    sides = [evidence.ys(name, objective.load, objective.measure.value, blocks=blocks) for name in (candidate, other)]
    if isinstance(sides[0], Undefined) or isinstance(sides[1], Undefined):
        return Undefined("not measured in the same blocks")
    return ratio_interval([mine - theirs for mine, theirs in zip(sides[0], sides[1], strict=True)], level)


def _smallest_first(evidence: Evidence, verdicts: Sequence[CandidateVerdict]) -> list[CandidateVerdict]:
    lengths = {arm.name: arm.draft_tokens or 0 for arm in evidence.candidates}
    return sorted(verdicts, key=lambda v: (lengths[v.candidate], -_estimate_of(v), v.candidate))


def _estimate_of(verdict: CandidateVerdict) -> float:
    estimate = primary_estimate(verdict)
    return estimate.estimate if estimate is not None else -math.inf


def _as_good(between: Estimate) -> bool:
    return isinstance(between, Interval) and between.low >= 1 / (1 + INDIFFERENCE) and between.high <= 1 + INDIFFERENCE
