"""How a number is written, decided once for page, terminal and Markdown.

Refuses to invent: what was not measured is written "not measured (reason)", never 0 or NaN. A negative number carries
the true minus sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime

from specdyno.report.untrusted import sanitise
from specdyno.statistics.intervals import AT_LEAST, Estimate, Interval, Undefined

NOT_MEASURED = "not measured"
MINUS = "\u2212"
TIMES = "\u00d7"
_STEPS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))

Writer = Callable[[float], str]


def plain(value: float | None, decimals: int | None = None) -> str:
    """About three significant digits, thousands with commas, or a fixed number of decimals.

    >>> plain(1234.5), plain(12.34), plain(0.01234)
    ('1,234', '12.3', '0.0123')
    """
    if value is None or not math.isfinite(value):
        return NOT_MEASURED
    if decimals is None:
        magnitude = math.floor(math.log10(abs(value))) if value else 2
        decimals = min(max(0, 2 - magnitude), 6)
    return _signed(f"{value:,.{decimals}f}")


def count(value: float | None) -> str:
    return NOT_MEASURED if value is None or not math.isfinite(value) else _signed(f"{round(value):,}")


def share(fraction: float | None, decimals: int = 1) -> str:
    """A fraction in percent: 0.712 is "71.2 %"."""
    return NOT_MEASURED if fraction is None or not math.isfinite(fraction) else f"{plain(100 * fraction, decimals)} %"


def exact_share(fraction: float) -> str:
    """A stated fraction (a level, a margin) in percent without trailing zeros: 0.9827 is "98.27 %"."""
    return f"{_signed(f'{100 * fraction:.2f}'.rstrip('0').rstrip('.'))} %"


def change(ratio: float | None) -> str:
    """A ratio as a gain: 1.118 is "+11.8 %".

    >>> change(1.118), change(0.95) == f"{MINUS}5.0 %"
    ('+11.8 %', True)
    """
    if ratio is None or not math.isfinite(ratio):
        return NOT_MEASURED
    rounded = round(100 * (ratio - 1), 1)
    return f"{rounded:+.1f} %".replace("-", MINUS) if rounded else "0.0 %"


def points(difference: float) -> str:
    """A difference of shares in percentage points: 0.005 is "+0.50 points"."""
    return f"{100 * difference:+.2f} points".replace("-", MINUS)


def times(ratio: float | None) -> str:
    """A ratio as a factor: 1.118 is "1.118" and the sign of multiplication."""
    return NOT_MEASURED if ratio is None or not math.isfinite(ratio) else f"{plain(ratio, 3)}{TIMES}"


def seconds(value: float | None) -> str:
    """A duration in the two largest units that say something.

    >>> seconds(0.0123), seconds(12.34), seconds(3725)
    ('12.3 ms', '12.3 s', '1 h 2 min')
    """
    if value is None or not math.isfinite(value):
        return NOT_MEASURED
    if abs(value) < 1:
        return f"{plain(1000 * value)} ms"
    if abs(value) < 60:
        return f"{plain(value)} s"
    rest = round(value)
    words: list[str] = []
    for unit, size in _STEPS:
        amount, rest = divmod(rest, int(size))
        if amount or words:
            words.append(f"{amount} {unit}")
        if len(words) == 2:
            break
    return " ".join(word for word in words if not word.startswith("0 "))


def milliseconds(value: float | None) -> str:
    return NOT_MEASURED if value is None else seconds(value / 1000)


def moment(unix_ns: int) -> str:
    """A wall-clock moment in UTC, to the minute."""
    return datetime.fromtimestamp(unix_ns / 1e9, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")


def size(value: float | None) -> str:
    """Bytes in binary units: 536870912 is "512 MiB"."""
    if value is None:
        return NOT_MEASURED
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{plain(value)} {unit}"
        value /= 1024
    return f"{plain(value)} GiB"


def estimate(value: Estimate | None, write: Writer) -> str:
    """The estimate alone; where only one side is known, that side."""
    if isinstance(value, Interval) and value.bound:
        return f"{value.bound} {write(value.low if value.bound == AT_LEAST else value.high)}"
    return write(value.estimate) if isinstance(value, Interval) else absent(value)


def absent(value: Undefined | None) -> str:
    reason = sanitise(value.reason) if value is not None else ""
    return f"{NOT_MEASURED} ({reason})" if reason else NOT_MEASURED


def bounds(value: Interval, write: Writer) -> str:
    """Both ends; where only one side is known, that the other is open."""
    if value.bound:
        return "open above" if value.bound == AT_LEAST else "open below"
    return f"{write(value.low)} to {write(value.high)}"


def level(value: Interval) -> str:
    return f"{exact_share(value.level)} interval"


def with_interval(value: Estimate | None, write: Writer) -> str:
    """Estimate, level and bounds: "+11.8 % (95 % interval +8.1 % to +15.6 %)"."""
    if not isinstance(value, Interval):
        return absent(value)
    if value.bound:
        return f"{estimate(value, write)} ({exact_share(value.level)} limit)"
    return f"{write(value.estimate)} ({level(value)} {bounds(value, write)})"


def _signed(text: str) -> str:
    return text.replace("-", MINUS) if float(text.replace(",", "")) else text.lstrip("-")


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
