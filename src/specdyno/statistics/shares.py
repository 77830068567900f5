"""Interval of one share of steps: t over boot-level logits, else bootstrap over requests, else Wilson over steps.

The boot is the replicate. With four boots or more whose counts can carry a logit, the interval is Student's over them.
With fewer, requests are resampled, which describes these boots only. Where even that cannot be done (counters alone,
one request, a share of exactly 0 or 1), steps are taken as independent, which is optimistic and is said in the label.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from specdyno.statistics.intervals import Estimate, Interval, Undefined, t_interval, wilson
from specdyno.statistics.resampling import generator_for, resampled_sums

LEVEL = 0.95
BOOTS_FOR_T = 4
STEPS_FOR_LOGIT = 5
"""Fewest steps of a boot below which its logit says more about its continuity correction than about the draft."""


@dataclass(frozen=True, slots=True)
class Share:
    """`offset + scale * p` with p = sum(part) / (scale * sum(whole)) in [0, 1]; arrays of one row per unit."""

    part: np.ndarray
    whole: np.ndarray
    boot: np.ndarray
    units: str  # what a row is: "requests", "sessions" or "boots"
    scale: float = 1.0
    offset: float = 0.0


def share_interval(share: Share, *, seed: int, name: str) -> Estimate:
    """The share with its interval at 95 %; Undefined where the denominator is zero.

    Args:
        share: numerator and denominator by unit.
        seed: of the study.
        name: of the cell, so that each cell resamples from its own stream.
    """
    whole = float(np.sum(share.whole)) * share.scale
    if not np.isfinite(whole) or whole <= 0:
        return Undefined("nothing was drafted" if name.endswith(("length", "rate", "joint")) else "never reached")
    p = float(np.clip(np.sum(share.part) / whole, 0.0, 1.0))
    interval = _over_boots(share, p) or _over_requests(share, p, generator=generator_for(seed, name))
    if interval is None or interval.low == interval.high:
        interval = _over_steps(share, p, whole=whole)
    low, high = min(interval.low, p), max(interval.high, p)
    return replace(
        interval,
        estimate=share.offset + share.scale * p,
        low=share.offset + share.scale * low,
        high=share.offset + share.scale * high,
    )


def _over_boots(share: Share, p: float) -> Interval | None:
    _, boot = np.unique(share.boot, return_inverse=True)
    part = np.bincount(boot, weights=share.part)
    whole = np.bincount(boot, weights=share.whole) * share.scale
    keep = whole >= STEPS_FOR_LOGIT * share.scale
    if keep.sum() < BOOTS_FOR_T:
        return None
    part, whole = np.clip(part[keep], 0.0, whole[keep]), whole[keep]
    logits = np.log((part + 0.5) / (whole - part + 0.5))
    interval = t_interval(logits.tolist(), LEVEL, method="t over boot-level logits")
    if isinstance(interval, Undefined):
        return None
    low, high = float(special.expit(interval.low)), float(special.expit(interval.high))
    # The correction pulls logits of rare events towards 1/2; an interval that the pooled share has left is no use.
    return replace(interval, estimate=p, low=low, high=high) if low <= p <= high else None


def _over_requests(share: Share, p: float, *, generator: np.random.Generator) -> Interval | None:
    if share.units == "boots" or len(share.part) < 2:
        return None
    sums = resampled_sums(np.column_stack([share.part, share.whole * share.scale]), generator)
    kept = sums[sums[:, 1] > 0]
    low, high = np.quantile(np.clip(kept[:, 0] / kept[:, 1], 0.0, 1.0), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    boots = len(np.unique(share.boot))
    where = "within one boot" if boots == 1 else f"within {boots} boots"
    return Interval(p, float(low), float(high), LEVEL, f"bootstrap over {share.units}, {where}", len(share.part))


def _over_steps(share: Share, p: float, *, whole: float) -> Interval:
    """Steps as independent trials; of a count up to `scale` per step this takes its largest variance."""
    interval = wilson(
        p * whole / share.scale, whole / share.scale, LEVEL, method="Wilson over steps, as if independent"
    )
    if isinstance(interval, Undefined):  # `whole` is positive here
        return Interval(p, 0.0, 1.0, LEVEL, "nothing known", 0)
    return interval
