"""What an open loop did to the queue: offered, sent and achieved rate, how late the client was, whether it piled up.

Pure. Saturation is found from the queue, not guessed from a limit. The stretch from the first to the last intended send
is cut by the mean time in the system of the first quarter of the requests (an empty server fills up first) and then
into eight equal parts. The window is saturated if the mean number in flight rises over those parts (Mann-Kendall, S of
at least 14 of 28: 5 % by chance for independent parts), by at least half of its mean, and by at least the square root
of the requests offered there. Where the rate itself moves (a ramp, a trace), the number in flight is taken relative to
it. Where requests stay longer than a quarter of the stretch there is no steady part: the window is then saturated if
the times in the system rise by eighths of the requests (S of at least 20) to three times the first, else unknown.

Simulated queues with 8 servers and 300 requests are called saturated in 0 % of the windows at 80 % utilisation, 7 % at
90 %, 28 % at 100 %, 67 % at 110 %, 99 % at 130 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from specdyno.records.schema import Arrival, ArrivalKind
from specdyno.records.timings import Timings

FEWEST_REQUESTS = 20
LONGEST_STAY = 0.25  # of the stretch: a window in which requests stay longer has no steady part
LATE_NS = 100_000_000
BEHIND_NS = 10_000_000  # half of the sends later than this: no single stall but a rate that is not reached
LATE_SHARE_DOUBT, LATE_SHARE_FORBIDS = 0.01, 0.05
SENT_RATE_FORBIDS = 0.98
_PARTS = 8
_TREND = 14
_STRONG_TREND, _LONGER = 20, 3.0


class Saturation(StrEnum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"  # too few requests, or a window too short for how long they stay


@dataclass(frozen=True, slots=True)
class Queueing:
    """One window of an open loop. Rates are requests per second; None where the window has no stretch of load."""

    offered_per_s: float | None  # by the intended sends
    sent_per_s: float | None  # by the actual ones
    achieved_per_s: float | None  # done while load was offered
    in_flight: float | None  # mean over the steady part
    growth: float | None  # rise of the number in flight over that part, by least squares
    saturated: Saturation
    late_p50_ns: int
    late_p95_ns: int
    late_p99_ns: int
    late_max_ns: int
    late_share: float  # sent more than `LATE_NS` after the intended time

    @property
    def client_too_slow(self) -> bool:
        """The client did not offer the rate: nothing about the engine follows."""
        behind = self.sent_per_s is not None and self.sent_per_s < SENT_RATE_FORBIDS * (self.offered_per_s or 0.0)
        return self.late_share > LATE_SHARE_FORBIDS or (behind and self.late_p50_ns > BEHIND_NS)


def queueing(timings: Timings, arrival: Arrival | None = None) -> Queueing:
    """The queue of one open window, from the requests that were sent. `arrival` tells of ramps and traces."""
    known = (timings.sent_ns >= 0) & (timings.intended_ns >= 0)
    intended, sent = np.sort(timings.intended_ns[known]), np.sort(timings.sent_ns[known])
    late = np.maximum(0, timings.sent_ns[known] - timings.intended_ns[known])
    p50, p95, p99, most = (int(q) for q in np.quantile(late, (0.5, 0.95, 0.99, 1.0))) if len(late) else (0, 0, 0, 0)
    in_flight, growth, saturated = _backlog(timings, known, arrival)
    return Queueing(
        offered_per_s=_rate(intended),
        sent_per_s=_rate(sent),
        achieved_per_s=_achieved(timings, known),
        in_flight=in_flight,
        growth=growth,
        saturated=saturated,
        late_p50_ns=p50,
        late_p95_ns=p95,
        late_p99_ns=p99,
        late_max_ns=most,
        late_share=float(np.mean(late > LATE_NS)) if len(late) else 0.0,
    )


def _rate(rising_ns: npt.NDArray[np.int64]) -> float | None:
    if len(rising_ns) < 2 or rising_ns[-1] <= rising_ns[0]:
        return None
    return float((len(rising_ns) - 1) / ((rising_ns[-1] - rising_ns[0]) / 1e9))


def _achieved(timings: Timings, known: npt.NDArray[np.bool_]) -> float | None:
    if not known.any():
        return None
    start, end = timings.intended_ns[known].min(), timings.intended_ns[known].max()
    if end <= start:
        return None
    inside = known & timings.done & (timings.ended_ns > start) & (timings.ended_ns <= end)
    return float(inside.sum() / ((end - start) / 1e9))


def _backlog(
    timings: Timings, known: npt.NDArray[np.bool_], arrival: Arrival | None
) -> tuple[float | None, float | None, Saturation]:
    """Mean number in flight, its rise, and the verdict. A request counts from its *intended* send to its end."""
    known = known & (timings.ended_ns >= timings.intended_ns)
    if known.sum() < FEWEST_REQUESTS:
        return None, None, Saturation.UNKNOWN
    order = np.argsort(timings.intended_ns[known], kind="stable")
    came, left = timings.intended_ns[known][order] / 1e9, timings.ended_ns[known][order] / 1e9
    stay = float(np.mean((left - came)[: max(1, len(came) // 4)]))
    start, end = float(came[0]) + stay, float(came[-1])
    if stay > LONGEST_STAY * (came[-1] - came[0]) or end <= start:
        return None, None, Saturation.YES if _stays_longer_and_longer(left - came) else Saturation.UNKNOWN
    borders = np.linspace(start, end, _PARTS + 1)
    parts = np.array([_present(came, left, *borders[place : place + 2]) for place in range(_PARTS)])
    parts = parts / _relative_rate(arrival, came, borders)
    place = np.arange(_PARTS) - (_PARTS - 1) / 2
    growth = float(np.sum(place * parts) / np.sum(place * place)) * _PARTS
    offered = int((came >= start).sum())
    rising = _trend(parts) >= _TREND and growth >= parts.mean() / 2 and growth >= math.sqrt(offered)
    return float(parts.mean()), growth, Saturation.YES if rising else Saturation.NO


def _stays_longer_and_longer(stays: npt.NDArray[np.float64]) -> bool:
    """Far beyond the limit there is no steady part: each eighth of the requests stays longer than the one before."""
    eighths = np.array([float(part.mean()) for part in np.array_split(stays, _PARTS)])
    return _trend(eighths) >= _STRONG_TREND and eighths[-1] >= _LONGER * eighths[0]


def _trend(parts: npt.NDArray[np.float64]) -> float:
    """Mann-Kendall's S: pairs that rise less pairs that fall."""
    return sum(float(np.sign(parts[later:] - parts[later - 1]).sum()) for later in range(1, len(parts)))


def _relative_rate(
    arrival: Arrival | None, came: npt.NDArray[np.float64], borders: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The offered rate of each part over its mean: 1 where it is constant."""
    if arrival is not None and arrival.kind is ArrivalKind.TRACE:
        rates = np.maximum(1.0, np.histogram(came, borders)[0].astype(np.float64))
    elif arrival is not None and arrival.ramp_from is not None and arrival.rate is not None:
        first, last = arrival.ramp_from, 2.0 * arrival.rate - arrival.ramp_from
        middles = ((borders[1:] + borders[:-1]) / 2 - came[0]) / (came[-1] - came[0])
        rates = first + (last - first) * middles
    else:
        return np.ones(len(borders) - 1)
    relative: npt.NDArray[np.float64] = rates / rates.mean()
    return relative


def _present(came: npt.NDArray[np.float64], left: npt.NDArray[np.float64], start: np.float64, end: np.float64) -> float:
    """Mean number in flight between two moments."""
    return float(np.clip(np.minimum(left, end) - np.maximum(came, start), 0.0, None).sum() / (end - start))
