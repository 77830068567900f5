"""Scales and sensible ticks: where a value stands on an axis, and which values are written below it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from specdyno.statistics.intervals import Estimate, Interval

_UNEVEN = (0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 15.0)
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps [low, high] to [start, end]; logarithmic where `ratio`, so that 2 and 1/2 lie equally far from 1."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    ratio: bool = False

    def at(self, value: float) -> float:
        """Where `value` stands, kept within the axis."""
        value = min(max(value, self.low), self.high)
        if self.ratio:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 2)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def ratio_axis(values: Iterable[Estimate], marks: Iterable[float] = (1.0,)) -> Axis:
    """An axis in percent of a width that holds every estimate and mark; far interval ends are cut, not squeezed in."""
    defined = [one for one in values if isinstance(one, Interval) and one.estimate > 0]
    points = [*marks, *(one.estimate for one in defined)]
    lowest, highest = min(points), max(points)
    reach = max(1.08, (highest / lowest) ** 0.75)
    low = max(lowest / reach, min([lowest, *(one.low for one in defined if one.low > 0)]))
    high = min(highest * reach, max([highest, *(one.high for one in defined if math.isfinite(one.high))]))
    room = max(high / low, 1.05) ** 0.04
    low, high = low / room, high * room
    return Axis(low, high, 0.0, 100.0, ratio_ticks(low, high), ratio=True)


def ratio_ticks(low: float, high: float) -> tuple[float, ...]:
    """Ticks of a logarithmic axis, 1 always among them.

    >>> ratio_ticks(0.85, 1.3)
    (0.9, 1.0, 1.1, 1.2, 1.3)
    """
    if 3 < high / low <= 10:
        return tuple(tick for tick in _UNEVEN if low <= tick <= high)
    if high / low > 10:
        steps = 2 if math.log2(high / low) > 6 else 1
        reach = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
        return tuple(2.0**power for power in reach if power % steps == 0)
    return linear_ticks(low, high, most=7)


def linear_ticks(low: float, high: float, *, most: int = 5) -> tuple[float, ...]:
    """Round values within [low, high], at most `most` of them.

    >>> linear_ticks(0, 100)
    (0.0, 25.0, 50.0, 75.0, 100.0)
    """
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / most))
    for step in (size * power for size in (*_STEPS, 20.0)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return tuple(round(index * step, 10) for index in range(first, last + 1))
    return (low, high)


def value_axis(values: Iterable[Estimate | None], *, start: float, end: float) -> Axis:
    """A linear axis around intervals, with a little room; it need not begin at zero."""
    defined = [one for one in values if isinstance(one, Interval)]
    low, high = min(one.low for one in defined), max(one.high for one in defined)
    room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    low, high = low - room, high + room
    return Axis(low, high, start, end, linear_ticks(low, high))


def draft_axis(longest: int, *, first: int, start: float, end: float) -> Axis:
    """Draft lengths or positions from `first` to `longest`, each a tick where there is room."""
    step = 1
    while (longest - first) / step > 8:
        step += 1
    ticks = tuple(float(value) for value in range(first, longest + 1, step))
    return Axis(first - 0.4, max(longest, first + 1) + 0.4, start, end, ticks)
