"""What one reading of an engine's output is, and which values are refused.

Promises: fractions everywhere, never percent; None means unknown or undefined, never 0; a value that cannot be
(negative, a rate above 1, more accepted than drafted, a mean length beyond K + 1) is None with the reason in
`problems`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

ROUNDING = 0.0051  # printed lengths carry two decimals
_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Kind(StrEnum):
    """What a text turned out to be."""

    METRICS = "metrics"  # a Prometheus exposition, or two
    VLLM_LOG = "vllm_log"
    SGLANG_LOG = "sglang_log"
    SGLANG_SERVER_INFO = "sglang_server_info"
    LLAMACPP_LOG = "llamacpp_log"
    TRTLLM_STATISTICS = "trtllm_statistics"
    ANSWER = "answer"  # a response, or the last event of a stream
    BENCH_RESULT = "bench_result"
    OFFLINE_RESULT = "offline_result"
    GOLDEN_ACCEPTANCE = "golden_acceptance"
    MIXED = "mixed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reading:
    """Acceptance read from one text. Counts are tokens or drafted steps; rates and shares are fractions.

    `joint` maps a draft position, counted from 0 as engines do, to the share of drafted steps that accepted it; gaps
    are allowed. `parts` are what must not be pooled: implementations, draft lengths, load bins, ranks. `fields` keeps
    what was printed and is not understood. `length_range` stands where means cannot be weighted.
    """

    kind: Kind
    source: str = ""
    label: str = ""  # names a part
    steps: float | None = None  # steps that had a draft
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    draft_tokens_k: int | None = None
    mean_accepted_length: float | None = None
    acceptance_rate: float | None = None
    joint: Mapping[int, float] = field(default_factory=dict)
    tokens_per_step: float | None = None
    coverage: float | None = None  # share of decode steps that had a draft
    length_range: tuple[float, float] | None = None
    active: bool | None = None  # whether anything was drafted
    estimated: bool = False  # steps were derived, not printed
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    parts: tuple[Reading, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)


def lines(text: str) -> list[str]:
    """The lines of a log without colour codes, byte-order mark and carriage returns."""
    text = _COLOUR.sub("", text.removeprefix("\ufeff"))
    return [line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]


def number(value: object) -> float | None:
    """A finite number from JSON or from text; None for anything else, `nan` included."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def ratio(part: float | None, whole: float | None) -> float | None:
    """A quotient, None where either side is unknown or the whole is 0."""
    return None if part is None or not whole else part / whole


def length(accepted: float | None, steps: float | None) -> float | None:
    """Mean accepted length from counts; None where undefined."""
    per_step = ratio(accepted, steps)
    return None if per_step is None else 1.0 + per_step


def checked(reading: Reading) -> Reading:
    """The reading without the values that cannot be, each with its reason; A and rate filled in from counts."""
    problems: list[str] = []
    reading = _counts(reading, problems)
    printed_length, printed_rate = reading.mean_accepted_length, reading.acceptance_rate
    by_count = length(reading.accepted_tokens, reading.steps)
    if by_count is not None and not reading.estimated:
        _compare("mean accepted length", printed_length, by_count, within=ROUNDING, problems=problems)
    rate_by_count = ratio(reading.accepted_tokens, reading.draft_tokens)
    if rate_by_count is not None:
        _compare("acceptance rate", printed_rate, rate_by_count, within=ROUNDING, problems=problems)
    exact = by_count is not None and (not reading.estimated or printed_length is None)
    reading = replace(
        reading,
        mean_accepted_length=_length(by_count if exact else printed_length, reading.draft_tokens_k, problems),
        acceptance_rate=_fraction(
            "acceptance rate", printed_rate if rate_by_count is None else rate_by_count, problems
        ),
        coverage=_fraction("coverage", reading.coverage, problems),
        joint=_joint(reading.joint, problems),
    )
    active = reading.active
    if active is None and (known := [n for n in (reading.steps, reading.draft_tokens) if n is not None]):
        active = any(count > 0 for count in known)
    return replace(reading, active=active, problems=(*reading.problems, *problems))


def labelled_range(values: Iterable[float]) -> tuple[float, float] | None:
    """Smallest and largest, None of nothing."""
    found = sorted(values)
    return (found[0], found[-1]) if found else None


def _counts(reading: Reading, problems: list[str]) -> Reading:
    def possible(name: str, value: float | None) -> float | None:
        if value is not None and value < 0:
            problems.append(f"rejected: {name} {value:g} is negative")
            return None
        return value

    steps = possible("drafted steps", reading.steps)
    drafted = possible("drafted tokens", reading.draft_tokens)
    accepted = possible("accepted tokens", reading.accepted_tokens)
    k = reading.draft_tokens_k
    if accepted is not None and drafted is not None and accepted > drafted:
        problems.append(f"rejected: {accepted:g} accepted of {drafted:g} drafted tokens is impossible")
        accepted = None
    if k and steps and not reading.estimated:
        most = k * steps
        if accepted is not None and accepted > most:
            problems.append(f"rejected: {accepted:g} accepted tokens in {steps:g} steps of {k} drafts is impossible")
            accepted = None
        if drafted is not None and drafted > most:
            problems.append(f"rejected: {drafted:g} drafted tokens in {steps:g} steps of {k} drafts is impossible")
            drafted = None
    return replace(reading, steps=steps, draft_tokens=drafted, accepted_tokens=accepted)


def _compare(name: str, printed: float | None, counted: float, *, within: float, problems: list[str]) -> None:
    if printed is not None and abs(printed - counted) > within:
        problems.append(f"the printed {name} {printed:g} is not what the counts give, {counted:.4g}")


def _length(value: float | None, k: int | None, problems: list[str]) -> float | None:
    if value is None:
        return None
    if value < 1:
        problems.append(f"rejected: a mean accepted length of {value:g} is below 1")
        return None
    if k is not None and value > k + 1 + ROUNDING:
        problems.append(f"rejected: a mean accepted length of {value:g} is above K + 1 = {k + 1}")
        return None
    return value


def _fraction(name: str, value: float | None, problems: list[str]) -> float | None:
    if value is not None and not 0 <= value <= 1:
        problems.append(f"rejected: {name} {value:g} lies outside 0 to 1")
        return None
    return value


def _joint(joint: Mapping[int, float], problems: list[str]) -> dict[int, float]:
    kept = {
        place: share
        for place, value in sorted(joint.items())
        if (share := _fraction(f"acceptance at position {place}", value, problems)) is not None
    }
    if any(deeper > nearer + 1e-9 for nearer, deeper in pairwise(kept.values())):
        problems.append("rejected: a deeper position is accepted more often than a nearer one")
        return {}
    return kept
