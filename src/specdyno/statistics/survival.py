"""Acceptance by position where drafts vary in length: the product of the conditional rates (Kaplan and Meier 1958).

p_i = c_1 * ... * c_i is the share of steps that would accept at least i tokens had every draft been long enough. It
equals q_i where every step proposes K. It assumes that the length of a draft does not depend on how it would fare,
which drafts that stop where they are unsure break: there p_i is too high.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from specdyno.statistics.intervals import Estimate, Interval, Undefined, t_interval, wilson
from specdyno.statistics.resampling import generator_for, resampled_sums
from specdyno.statistics.shares import BOOTS_FOR_T, LEVEL, STEPS_FOR_LOGIT


@dataclass(frozen=True, slots=True)
class Exposure:
    """n_i and d_i, shapes (N, K), one row per request (or per boot, from counters), and each row's boot."""

    reached: np.ndarray
    at_risk: np.ndarray
    boot: np.ndarray
    units: str  # "requests" or "boots"


def survival(exposure: Exposure, *, seed: int, name: str) -> tuple[Estimate, ...]:
    """p_1 ... p_K, each with its interval at 95 %; Undefined where a position was never reached or d_i is unknown."""
    reached, at_risk = exposure.reached.sum(axis=0), exposure.at_risk.sum(axis=0)
    depth = len(reached)
    if not (np.isfinite(reached).all() and np.isfinite(at_risk).all()):
        return (Undefined("the length of each draft is not reported", len(exposure.boot)),) * depth
    boots = _by_boot(exposure)
    resampled = None
    if len(boots) < BOOTS_FOR_T and exposure.units == "requests" and len(exposure.boot) > 1:
        columns = np.concatenate([exposure.reached, exposure.at_risk], axis=1)
        resampled = resampled_sums(columns, generator_for(seed, f"{name}/survival"))
    found: list[Estimate] = []
    for place in range(depth):
        if at_risk[: place + 1].min() <= 0:
            found.append(Undefined("never reached"))
            continue
        p = float(np.clip(_product(reached[None], at_risk[None], place)[0], 0.0, 1.0))
        interval = _over_boots(boots, p, place) or _over_requests(
            resampled, p, place, boots=len(boots), exposure=exposure
        )
        found.append(interval or _over_steps(p, float(at_risk[0])))
    return tuple(found)


def _by_boot(exposure: Exposure) -> np.ndarray:
    """Sums by boot, shape (boots, 2, K)."""
    names, boot = np.unique(exposure.boot, return_inverse=True)
    sums = np.zeros((len(names), 2, exposure.reached.shape[1]))
    np.add.at(sums[:, 0], boot, exposure.reached)
    np.add.at(sums[:, 1], boot, exposure.at_risk)
    return sums


def _product(reached: np.ndarray, at_risk: np.ndarray, place: int) -> np.ndarray:
    """Product up to `place` of each row; NaN where a factor has no denominator."""
    with np.errstate(all="ignore"):
        product: np.ndarray = np.prod(reached[:, : place + 1] / at_risk[:, : place + 1], axis=1)
    return product


def _over_boots(boots: np.ndarray, p: float, place: int) -> Interval | None:
    """Student's t over boot-level logits, each corrected as a share of the boot's drafted steps."""
    kept = boots[(boots[:, 1, : place + 1] >= STEPS_FOR_LOGIT).all(axis=1)]
    if len(kept) < BOOTS_FOR_T:
        return None
    shares, steps = np.clip(_product(kept[:, 0], kept[:, 1], place), 0.0, 1.0), kept[:, 1, 0]
    logits = np.log((shares * steps + 0.5) / ((1 - shares) * steps + 0.5))
    found = t_interval(logits.tolist(), LEVEL)
    if isinstance(found, Undefined):
        return None
    low, high = float(special.expit(found.low)), float(special.expit(found.high))
    if not low <= p <= high or low == high:
        return None
    return Interval(p, low, high, LEVEL, "t over boot-level logits", len(kept))


def _over_requests(
    resampled: np.ndarray | None, p: float, place: int, *, boots: int, exposure: Exposure
) -> Interval | None:
    if resampled is None:
        return None
    depth = exposure.reached.shape[1]
    drawn = _product(resampled[:, :depth], resampled[:, depth:], place)
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) == 0:
        return None
    low, high = np.quantile(np.clip(drawn, 0.0, 1.0), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if low == high:
        return None
    where = "within one boot" if boots == 1 else f"within {boots} boots"
    method = f"bootstrap over requests, {where}"
    return Interval(p, min(p, float(low)), max(p, float(high)), LEVEL, method, len(exposure.boot))


def _over_steps(p: float, steps: float) -> Estimate:
    return wilson(p * steps, steps, LEVEL, method="Wilson over steps, as if independent")
