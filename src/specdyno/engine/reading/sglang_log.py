"""SGLang's "Decode batch" log lines.

Each line gives the mean accepted length of the last interval of decode steps at some number of running requests, and
no counts. Lines at the same number of running requests cover about the same number of steps, so they are averaged;
different numbers are kept apart as bins.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specdyno.engine.reading.fields import parse_fields, quantity
from specdyno.engine.reading.schema import Kind, Reading, labelled_range, lines

MARK = re.compile(r"Decode (?:rank )?batch\b[.,:]?")
SOURCE = "sglang log (mean of each interval)"


@dataclass(frozen=True, slots=True)
class _Line:
    running: int | None
    length: float | None
    rate: float | None
    speculative: bool


def read(text: str) -> Reading:
    """Mean accepted length by number of running requests; on the whole where there is one bin only."""
    problems: list[str] = []
    found = [
        _line(line[mark.end() :], row, problems)
        for row, line in enumerate(lines(text), start=1)
        if (mark := MARK.search(line))
    ]
    if not found:
        return Reading(Kind.SGLANG_LOG, SOURCE, problems=("no decode line found",))
    bins: dict[int | None, list[_Line]] = defaultdict(list)
    for line in found:
        if line.length is not None or line.rate is not None:
            bins[line.running].append(line)
    without = sum(not line.speculative for line in found)
    notes = [f"{without} of {len(found)} decode lines have no speculative fields"] if without else []
    parts = tuple(_bin(running, bins[running]) for running in sorted(bins, key=lambda n: (n is None, n or 0)))
    if len(parts) == 1:
        return replace(parts[0], notes=(*notes, *parts[0].notes), problems=tuple(problems), parts=parts)
    if parts:
        notes.append("intervals carry no counts: binned by running requests, not pooled")
    return Reading(
        Kind.SGLANG_LOG,
        SOURCE,
        length_range=labelled_range(
            part.mean_accepted_length for part in parts if part.mean_accepted_length is not None
        ),
        active=True if any(part.active for part in parts) else None,
        notes=tuple(notes),
        problems=tuple(problems),
        parts=parts,
    )


def _line(text: str, row: int, problems: list[str]) -> _Line:
    found = parse_fields(text)
    running = quantity(found.get("#running-req"))
    length = quantity(found.get("accept len"))
    rate = quantity(found.get("accept rate"))
    if length is not None and length < 1:
        problems.append(f"line {row}: rejected: an accepted length of {length:g} is below 1")
        length = None
    if rate is not None and not 0 <= rate <= 1:
        problems.append(f"line {row}: rejected: an acceptance rate of {rate:g} lies outside 0 to 1")
        rate = None
    return _Line(
        running=int(running) if running is not None else None,
        length=length,
        rate=rate,
        speculative="accept len" in found or "accept rate" in found,
    )


def _bin(running: int | None, found: Sequence[_Line]) -> Reading:
    lengths = [line.length for line in found if line.length is not None]
    rates = [line.rate for line in found if line.rate is not None]
    return Reading(
        Kind.SGLANG_LOG,
        SOURCE,
        label="running requests unknown" if running is None else f"{running} running requests",
        mean_accepted_length=sum(lengths) / len(lengths) if lengths else None,
        acceptance_rate=sum(rates) / len(rates) if rates else None,
        length_range=labelled_range(lengths),
        active=True,
        notes=(f"{len(found)} intervals, counting the target's own token",),
    )
