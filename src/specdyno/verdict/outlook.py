"""What a hold would take: how many blocks in all, what this much data could have shown, and the power of the plan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import special

from specdyno.plan.power import power
from specdyno.plan.schema import Objective
from specdyno.statistics.blocks import PROMOTION_BLOCKS
from specdyno.statistics.intervals import SPREAD_FLOOR, Interval, spread, spread_interval
from specdyno.verdict.evidence import Evidence
from specdyno.verdict.gates import OUTPUT_LENGTH, Checked
from specdyno.verdict.schema import CandidateVerdict, GateStatus, PowerPoint

MOST_BLOCKS = 10_000
"""Beyond it the number of blocks that would settle a hold is of no use to anyone."""

POWER = 0.8
GAPS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)
"""Distances from the minimum gain, in units of s, at which the power curve is drawn."""


def blocks_needed(tested: Sequence[Checked]) -> tuple[int, int] | None:
    """Range of total blocks that would settle the undecided gates: 2 + (z s / gap)^2 over the 80 % interval of s.

    z = z(1 - level / 2) + z(0.8) to one decimal, the level being that of the first gate: 3.2 at 0.0173, the default
    for one candidate. The gap lies between the estimate and the threshold, on logs; for equivalence to the nearer
    margin. None where no gate that blocks can settle is undecided.
    """
    ranges = []
    for test in tested:
        s = spread(test.ys)
        if test.gate.status is not GateStatus.UNDECIDED or s is None or not math.isfinite(s):
            continue
        mean, threshold = math.fsum(test.ys) / len(test.ys), math.log(test.gate.threshold)
        gap = abs(threshold - (abs(mean) if test.gate.name == OUTPUT_LENGTH else mean))
        bounds = spread_interval(max(s, SPREAD_FLOOR), len(test.ys), 0.80)
        z = round(float(special.ndtri(1 - tested[0].gate.level / 2) + special.ndtri(POWER)), 1)
        ranges.append(tuple(_blocks_for(z * bound, gap, at_least=len(test.ys) + 1) for bound in bounds))
    if not ranges:
        return None
    return max(low for low, _ in ranges), max(high for _, high in ranges)


def _blocks_for(scaled: float, gap: float, *, at_least: int) -> int:
    wanted = 2 + (scaled / gap) ** 2 if gap > 0 and math.isfinite(gap) else math.inf
    return min(MOST_BLOCKS, max(at_least, PROMOTION_BLOCKS, math.ceil(min(wanted, MOST_BLOCKS))))


def power_curve(evidence: Evidence, objective: Objective, best: CandidateVerdict | None) -> tuple[PowerPoint, ...]:
    """The chance that this plan's primary gate promotes, for true gains at and above the minimum; () without a spread.

    s is the best candidate's, over its blocks up to its last look; it is an estimate itself, so the curve is too.
    """
    if best is None or not best.gates or not isinstance(best.gates[0].ratio, Interval):
        return ()
    blocks = evidence.blocks_of(best.candidate)[: best.gates[0].ratio.count]
    ys = evidence.ys(best.candidate, objective.load, objective.measure.value, blocks=blocks)
    s = spread(ys) if isinstance(ys, tuple) else None
    if s is None or not math.isfinite(s):
        return ()
    s, looks, level = max(s, SPREAD_FLOOR), evidence.plan.experiment.looks, evidence.level(objective)
    points = []
    for gap in GAPS:
        found = power(looks, level, [gap])
        gain = math.expm1(min(700.0, math.log1p(objective.minimum_gain) + gap * s))
        points.append(PowerPoint(gain, found.promote, found.blocks))
    return tuple(points)
