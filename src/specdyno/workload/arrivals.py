"""When requests are meant to be sent in an open loop: integer nanoseconds from the start of a window.

Pure and seeded by a label, so that every arm of a block meets the same arrivals. Owns the stream of chance of the
arrivals: Python promises that `random.Random(n).random()` never changes, and the gaps are its quantiles.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaincinv

from specdyno.plan.schema import Load


def open_loop(
    count: int, *, label: str, rate: float, burstiness: float = 1.0, ramp_from: float | None = None
) -> tuple[int, ...]:
    """Rising offsets of `count` requests, scaled so that the mean rate is met exactly.

    Gaps are gamma with shape `burstiness` and mean 1 / rate, as `vllm bench serve` draws them (1: Poisson; below:
    bursts; above: evener). Given their number, the arrivals of a Poisson process are those gaps and one to the end of
    the window scaled to fill it, so 1 is exactly Poisson with this count; for other shapes the scaling changes each
    gap by about 1 / sqrt(count * burstiness) of itself. With `ramp_from` the rate goes evenly from there to `rate`:
    arrivals of rate 1 are moved to where the integral of the rate reaches them (an exact time change).

    >>> open_loop(3, label="doc", rate=2.0) == open_loop(3, label="doc", rate=2.0)
    True
    """
    if count < 1:
        return ()
    unit = _unit_rate(count, label=label, burstiness=burstiness)
    first = rate if ramp_from is None else ramp_from
    rise = (rate - first) * (rate + first) / (2.0 * count)  # per second: the window lasts 2 count / (first + rate)
    seconds = 2.0 * unit / (first + np.sqrt(first * first + 2.0 * rise * unit))
    return tuple(np.rint(seconds * 1e9).astype(np.int64).tolist())


def replayed(times_s: Sequence[float], count: int, *, rate: float | None = None) -> tuple[int, ...]:
    """The first `count` times of a trace from 0 on, as recorded or so that their mean gap is 1 / rate.

    Raises:
        ValueError: a rate is asked of times that are all the same.

    >>> replayed([0.0, 1.0, 4.0], 3, rate=1.0)
    (0, 500000000, 2000000000)
    """
    taken = np.asarray(times_s[:count], np.float64)
    if len(taken) == 0:
        return ()
    taken = taken - taken[0]
    if rate is not None and len(taken) > 1:
        if taken[-1] <= 0:
            raise ValueError(f"its first {len(taken)} times are all the same, so they have no rate to scale")
        taken = taken * ((len(taken) - 1) / rate / taken[-1])
    return tuple(np.rint(taken * 1e9).astype(np.int64).tolist())


def offsets(
    load: Load, count: int, *, label: str, trace: Sequence[float] = (), rate: float | None = None
) -> tuple[int, ...]:
    """The intended times of one window of an open load: of its trace, at its rate, or at the `rate` of a search."""
    if load.trace is not None:
        return replayed(trace, count, rate=load.rate)
    asked = rate if rate is not None else load.rate
    if asked is None:
        raise ValueError(f"{load.name} is no open loop")
    return open_loop(count, label=label, rate=asked, burstiness=load.burstiness, ramp_from=load.ramp_from)


def mean_rate(load: Load) -> float | None:
    """Requests per second offered over a window; None for closed loops, searches and traces as recorded."""
    if load.rate is None:
        return None
    return load.rate if load.ramp_from is None else (load.rate + load.ramp_from) / 2.0


def step_rates(load: Load) -> tuple[float, ...]:
    """The largest rate that each step of a search can come to: every one before it met the service level."""
    if load.rates is None:
        return ()
    low, high = load.rates
    return (*(low**0.5 ** (step + 1) * high ** (1 - 0.5 ** (step + 1)) for step in range(load.steps - 1)), high)


def step_sizes(load: Load) -> tuple[int, ...]:
    """Prompts kept ready for each step of a search; a lower rate leaves some of them unasked."""
    return tuple(load.requests or max(2, round(rate * load.window)) for rate in step_rates(load))


def count_of(load: Load, trace: Sequence[float] = ()) -> int | None:
    """Requests that a window of this load holds, all steps of a search together; None where a warm-up must tell."""
    if load.rates is not None:
        return sum(step_sizes(load))
    if load.trace is not None:
        return _count_of_trace(load, trace)
    rate = mean_rate(load)
    if load.requests is not None or rate is None:
        return load.requests
    return max(2, round(rate * load.window))


def _count_of_trace(load: Load, trace: Sequence[float]) -> int:
    if load.requests is not None:
        return min(load.requests, len(trace))
    if load.rate is not None:
        return min(max(2, round(load.rate * load.window)), len(trace))
    start = trace[0] if trace else 0.0
    return int(np.searchsorted(np.asarray(trace, np.float64) - start, load.window, side="left"))


def _unit_rate(count: int, *, label: str, burstiness: float) -> np.ndarray:
    """Arrivals of mean rate 1 in (0, count)."""
    seed = int.from_bytes(hashlib.sha256(label.encode()).digest()[:16], "big")
    draw = random.Random(seed).random  # noqa: S311 - arrivals, no secret
    gaps = gammaincinv(burstiness, np.array([draw() for _ in range(count + 1)]))
    total = float(gaps.sum())
    if total <= 0:  # shapes so small that every gap is lost in rounding
        return np.full(count, count / 2.0)
    scaled: np.ndarray = np.cumsum(gaps)[:-1] * (count / total)
    return scaled
