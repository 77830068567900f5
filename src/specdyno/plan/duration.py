"""How long a study will take, and the smallest gain it could show: arithmetic before anything is booted.

Owns assumptions and names each of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from specdyno.plan.looks import half_width, objective_level
from specdyno.plan.power import power
from specdyno.plan.schema import EngineKind, Load, MeasureName, Objective, Plan

ASSUMED_BOOT_S: Mapping[EngineKind, float] = {
    EngineKind.VLLM: 40.0,
    EngineKind.LLAMACPP: 3.0,
    EngineKind.SGLANG: 60.0,
    EngineKind.TRTLLM: 120.0,
    EngineKind.EXTERNAL: 60.0,
    EngineKind.SIMULATED: 1.0,
}
ASSUMED_WARM_UP_SHARE = 0.1
ASSUMED_SPREAD = 0.02
POWER = 0.8


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected run time. `assumptions` are short phrases for people, one for each value that it rests on."""

    block_s: float
    first_look_s: float
    total_s: float  # up to the last look
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VisibleGain:
    """Half-widths of the interval of a speed-up, as ratios (1.03: gains of 3 % and more stand out).

    `first` and `last` belong to the first and the last look; None where one block gives no interval.
    """

    first: float | None
    last: float | None
    first_blocks: int
    last_blocks: int
    level: float  # two-sided, per candidate and look
    spread: float
    likely: tuple[tuple[str, float | None], ...] = ()
    """(objective, true gain that is promoted in 80 % of studies, guards included); None: no gain of up to 100 % is."""


def estimate(plan: Plan) -> Estimate:
    """Seconds per block and in all, before anything was measured."""
    boot_s = ASSUMED_BOOT_S[plan.engine.kind]
    warm_up_s = ASSUMED_WARM_UP_SHARE * max(load.window for load in plan.measured_loads)
    windows_s = sum(_planned_s(load) for load in plan.measured_loads)
    block_s = len(plan.arms()) * (boot_s + warm_up_s + windows_s)
    return Estimate(
        block_s=block_s,
        first_look_s=block_s * plan.experiment.looks[0],
        total_s=block_s * plan.experiment.looks[-1],
        assumptions=(
            f"a boot takes {boot_s:g} s",
            f"a warm-up takes {warm_up_s:g} s",
            "a window takes as long as the plan says",
        ),
    )


def smallest_visible_gain(plan: Plan, spread: float = ASSUMED_SPREAD) -> VisibleGain:
    """Half-width of a speed-up's interval at the first and last look, as a ratio.

    With n blocks: exp(t(1 - level / 2, n - 1) * spread / sqrt(n)), at the level of the strictest objective. `spread` is
    the standard deviation over blocks of log(candidate / baseline), as in `Contrast.spread`. Assumes normal logs. To be
    promoted, a gain must lie about this far above the objective's minimum gain.
    """
    looks = plan.experiment.looks
    level = min(objective_level(plan, objective) for objective in plan.objectives)
    return VisibleGain(
        first=_ratio(looks[0], level=level, spread=spread),
        last=_ratio(looks[-1], level=level, spread=spread),
        first_blocks=looks[0],
        last_blocks=looks[-1],
        level=level,
        spread=spread,
        likely=tuple((part.name, likely_gain(plan, part, spread)) for part in plan.objectives),
    )


def likely_gain(plan: Plan, objective: Objective, spread: float = ASSUMED_SPREAD) -> float | None:
    """The smallest true gain that is promoted with 80 % chance, all guards met; None where even 100 % is not.

    The guards' true values are taken as unchanged, their spread as the primary's. Simulated (`plan.power`).
    """
    level, guards = objective_level(plan, objective), plan.guards
    margins = [guards.output_length]
    if objective.measure is not MeasureName.TIME_PER_JOB:
        margins.append(guards.tpot)
    gaps = [math.log1p(margin) / spread for margin in margins if margin is not None]
    if plan.experiment.looks[-1] < 4:
        return None
    looks = [look for look in plan.experiment.looks if look >= 4]
    threshold = math.log1p(objective.minimum_gain)

    def chance(gain: float) -> float:
        return power(looks, level, [(math.log1p(gain) - threshold) / spread, *gaps]).promote

    low, high = objective.minimum_gain, 1.0
    if chance(high) < POWER:
        return None
    while high - low > 0.0005:
        middle = (low + high) / 2
        low, high = (low, middle) if chance(middle) >= POWER else (middle, high)
    return high


def _planned_s(load: Load) -> float:
    if load.rates is not None:
        return load.window * load.steps
    if load.requests is not None and load.rate is not None:
        return load.requests / ((load.rate + (load.ramp_from or load.rate)) / 2.0)
    # The windows of single classes share out the prompts of the mixed one: together they last about as long.
    return load.window * (2.0 if load.class_windows else 1.0)


def _ratio(blocks: int, *, level: float, spread: float) -> float | None:
    return math.exp(half_width(blocks, level) * spread) if blocks > 1 else None
