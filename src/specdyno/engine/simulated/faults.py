"""The ways in which the simulated engine can misbehave on purpose.

Owns the names, the values they take and their spelling on the command line: `name` or `name:value`, several separated
by commas, each optionally for one kind of arm only: `candidate@short_answers:0.5`, `baseline@http_500:0.1`. A process
with a speculative configuration counts as a candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import inf


class Fault(StrEnum):
    """What goes wrong; the value, where there is one, stands in brackets."""

    REFUSE_BOOT = "refuse_boot"  # prints an error like a missing draft and exits 1 [share of boots]
    BOOT_HANG = "boot_hang"  # never becomes ready
    DIE_AFTER = "die_after"  # kills itself while it answers this request [ordinal, from 1]
    HTTP_500 = "http_500"  # [share of requests]
    HTTP_400 = "http_400"  # [share of requests]
    BREAK_STREAM = "break_stream"  # closes the connection half-way [share of requests]
    HANG_STREAM = "hang_stream"  # stops sending half-way, connection open [share of requests]
    NO_USAGE = "no_usage"  # never reports usage
    SPEC_INACTIVE = "spec_inactive"  # accepts the configuration and never drafts
    WRONG_K = "wrong_k"  # another draft length is in force [K]
    COUNTER_RESET = "counter_reset"  # counters jump to 0 once after so many requests [number]
    NAN_METRICS = "nan_metrics"  # every counter reads NaN
    NO_METRICS = "no_metrics"  # /metrics answers 404
    BASELINE_SPECULATES = "baseline_speculates"  # drafts by n-gram though nothing was configured
    SLOW_STOP = "slow_stop"  # ignores SIGTERM for a while [seconds, not scaled]
    CHILD = "child"  # starts a sleeping process in the same group that outlives the server
    LOG_SECRETS = "log_secrets"  # writes credentials into the log
    LOG_ESCAPE = "log_escape"  # writes terminal escapes and markup into the log
    MARKUP_TEXT = "markup_text"  # answers carry markup, scripts and terminal escapes
    SHORT_ANSWERS = "short_answers"  # answers are shorter [factor]
    LOOP_TEXT = "loop_text"  # answers repeat themselves


# fault -> (value when none is written, lowest, highest); faults that are not here take no value
_VALUES: dict[Fault, tuple[float, float, float]] = {
    Fault.REFUSE_BOOT: (1.0, 0.0, 1.0),
    Fault.DIE_AFTER: (1.0, 1.0, inf),
    Fault.HTTP_500: (1.0, 0.0, 1.0),
    Fault.HTTP_400: (1.0, 0.0, 1.0),
    Fault.BREAK_STREAM: (1.0, 0.0, 1.0),
    Fault.HANG_STREAM: (1.0, 0.0, 1.0),
    Fault.WRONG_K: (1.0, 1.0, 128.0),
    Fault.COUNTER_RESET: (1.0, 1.0, inf),
    Fault.SLOW_STOP: (5.0, 0.0, 600.0),
    Fault.SHORT_ANSWERS: (0.5, 0.0, 1.0),
}

Faults = Mapping[Fault, float]
"""Faults in force with their values; 1.0 for those that take none."""


def parse_faults(specs: Iterable[str], *, speculating: bool) -> Faults:
    """Faults in force for this process.

    Raises:
        ValueError: an unknown name, a value where none belongs, or one outside its range.

    >>> parse_faults(["child,baseline@no_usage", "candidate@http_500:0.25"], speculating=True)
    {<Fault.CHILD: 'child'>: 1.0, <Fault.HTTP_500: 'http_500'>: 0.25}
    """
    faults: dict[Fault, float] = {}
    for spec in (part.strip() for listed in specs for part in listed.split(",") if part.strip()):
        scope, _, rest = spec.rpartition("@")
        if scope not in ("", "candidate", "baseline"):
            raise ValueError(f'fault "{spec}": write candidate@ or baseline@ before the name, or nothing')
        name, colon, written = rest.partition(":")
        fault = _fault(name)
        value = _value(fault, written if colon else None)
        if not scope or (scope == "candidate") == speculating:
            faults[fault] = value
    return faults


def _fault(name: str) -> Fault:
    try:
        return Fault(name)
    except ValueError:
        raise ValueError(f'there is no fault "{name}"; known: {", ".join(Fault)}') from None


def _value(fault: Fault, written: str | None) -> float:
    if fault not in _VALUES:
        if written is not None:
            raise ValueError(f'fault {fault} takes no value, not "{written}"')
        return 1.0
    default, low, high = _VALUES[fault]
    try:
        value = default if written is None else float(written)
    except ValueError:
        raise ValueError(f'fault {fault}: "{written}" is no number') from None
    if not low <= value <= high:
        raise ValueError(f"fault {fault}: {value:g} is outside {low:g} to {high:g}")
    return value
