"""Which requests met a service level, and whether a window's rate was carried.

Pure. A request that did not end well, or of which a limited time is unknown, met nothing: doubt never counts as met.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdyno.plan.schema import ServiceLevel
from specdyno.records.queueing import Saturation, queueing
from specdyno.records.timings import Timings


def met_level(timings: Timings, level: ServiceLevel) -> npt.NDArray[np.bool_]:
    """Per request: done within every limit of the level, each counted from the *intended* send.

    TTFT: intended send to first text. TPOT: (last - first text) / (tokens - 1); an answer of one token has none and
    meets any limit. E2EL: intended send to last byte.
    """
    met = timings.done.copy()
    if level.ttft is not None:
        met &= (timings.first_text_ns >= 0) & (timings.first_text_ns - timings.intended_ns <= level.ttft * 1e9)
    if level.e2el is not None:
        met &= (timings.ended_ns >= 0) & (timings.ended_ns - timings.intended_ns <= level.e2el * 1e9)
    if level.tpot is not None:
        text_ns = timings.last_text_ns - timings.first_text_ns
        with np.errstate(invalid="ignore"):
            within = (timings.first_text_ns >= 0) & (text_ns <= level.tpot * 1e9 * (timings.tokens - 1.0))
        met &= (timings.tokens == 1.0) | within
    return met


def attained(timings: Timings, level: ServiceLevel) -> float | None:
    """Share of the requests sent that met the level; None without requests."""
    return float(np.mean(met_level(timings, level))) if len(timings) else None


def rate_carried(timings: Timings, level: ServiceLevel, attainment: float) -> bool | None:
    """Whether the offered rate met the service level: share attained and no saturation; None without requests."""
    share = attained(timings, level)
    if share is None:
        return None
    return share >= attainment and queueing(timings).saturated is not Saturation.YES
