"""llama.cpp server's log: a line per request, and cumulative statistics per drafting implementation.

Statistics lines count from server start, so the last one of an implementation stands. Several implementations in one
server are kept apart. Request lines carry a printed mean length but no number of drafts: it is recovered as
accepted / (mean - 1), rounded, and labelled as estimated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specdyno.engine.reading.fields import numbers
from specdyno.engine.reading.schema import Kind, Reading, checked, length, lines, ratio

SOURCE_STATISTICS = "llama.cpp statistics (since server start)"
SOURCE_REQUESTS = "llama.cpp request lines"

REQUEST = re.compile(
    r"draft acceptance(?: rate)?\s*=\s*(?P<rate>[-\d.]+|-?nan)\s*"
    r"\(\s*(?P<accepted>-?\d+)\s+accepted\s*/\s*(?P<drafted>-?\d+)\s+generated\s*\)"
)
STATISTICS = re.compile(r"statistics\s+(?P<name>\S+?)\s*:\s*(?P<rest>#.*)")
_MEAN = re.compile(r"(?:mean acceptance length|mean len|#mean acc len)\s*=\s*(\d+\.\d\d)(?!\d)")
_POSITIONS = re.compile(r"(?:acceptance rate per position|acc per pos|#acc rate/pos)\s*=\s*\(([^()]*)\)")
_SLOT = re.compile(r"id\s+(\d+)\s*\|\s*task\s+(-?\d+)")
_CALLS = re.compile(r"#calls(?:\(b,g,a\))?\s*=\s*(\d+)(?:[ \t]+(\d+)[ \t]+(\d+))?")


@dataclass(frozen=True, slots=True)
class _Request:
    accepted: float
    drafted: float
    mean: float | None
    joint: tuple[float, ...]
    slot: tuple[str, str] | None


def holds(text: str) -> bool:
    """Whether a text has lines of this kind."""
    return "draft acceptance" in text or ("statistics " in text and "#gen drafts" in text)


def read(text: str) -> Reading:
    """One implementation: its statistics. None: the requests pooled. Several: parts only."""
    problems: list[str] = []
    requests: list[_Request] = []
    statistics: dict[str, Reading] = {}
    for row, line in enumerate(lines(text), start=1):
        if match := STATISTICS.search(line):
            _add_statistics(statistics, match["name"], match["rest"], row, problems)
        elif match := REQUEST.search(line):
            requests.append(_request(match, line))
        elif (found := _POSITIONS.search(line)) and requests:
            _add_positions(requests, line, found[1])
        elif "draft acceptance" in line or "#gen drafts" in line:
            problems.append(f"line {row}: cut off or unknown: {line.strip()[:80]}")
    parts = tuple(statistics.values())
    pooled = _pooled(requests) if requests else None
    whole = parts[0] if len(parts) == 1 else pooled if pooled and not parts else None
    everything = (*parts, pooled) if pooled else parts
    if whole is not None:
        return replace(
            whole,
            label="",
            problems=(*problems, *whole.problems),
            parts=everything if len(everything) > 1 or whole.label else (),
        )
    notes = ("several drafting implementations: kept apart",) if len(parts) > 1 else ()
    return Reading(
        Kind.LLAMACPP_LOG,
        SOURCE_STATISTICS,
        active=any(part.active for part in parts) if parts else None,
        notes=notes,
        problems=tuple(problems) if everything or problems else ("no acceptance line found",),
        parts=everything,
    )


def _request(match: re.Match[str], line: str) -> _Request:
    mean, positions, slot = _MEAN.search(line), _POSITIONS.search(line), _SLOT.search(line)
    return _Request(
        accepted=float(match["accepted"]),
        drafted=float(match["drafted"]),
        mean=float(mean[1]) if mean else None,
        joint=_shares(positions[1]) if positions else (),
        slot=(slot[1], slot[2]) if slot else None,
    )


def _shares(text: str) -> tuple[float, ...]:
    found = numbers(text)
    known = tuple(share for share in found if share is not None)
    return known if len(known) == len(found) else ()


def _add_positions(requests: list[_Request], line: str, text: str) -> None:
    """Newer servers print the positions of a request on the line after."""
    named = _SLOT.search(line)
    slot = (named[1], named[2]) if named else None
    for place in range(len(requests) - 1, -1, -1):
        if slot is None or requests[place].slot == slot:
            requests[place] = replace(requests[place], joint=_shares(text))
            return


def _add_statistics(statistics: dict[str, Reading], name: str, rest: str, row: int, problems: list[str]) -> None:
    drafts, drafted, accepted = (_counter(rest, key) for key in ("gen drafts", "gen tokens", "acc tokens"))
    if drafts is None or drafted is None or accepted is None:
        problems.append(f"line {row}: statistics of {name} are cut off")
        return
    mean, positions = _MEAN.search(rest), _POSITIONS.search(rest)
    joint = _shares(positions[1]) if positions else ()
    printed = float(mean[1]) if mean else None
    steps, notes = _verified(drafts, accepted, printed, rest)
    reached = _counter(rest, "acc drafts")
    before = statistics.get(name)
    if before is not None and before.draft_tokens is not None and drafted < before.draft_tokens:
        problems.append(f"line {row}: the statistics of {name} fell, so the server restarted: since restart")
    if joint and drafted < steps * len(joint):
        notes.append(f"{drafted:g} tokens in {steps:g} drafts of up to {len(joint)}: some drafts were short")
    shares = dict(enumerate(joint)) or ({0: reached / steps} if reached is not None and steps else {})
    statistics[name] = checked(
        Reading(
            Kind.LLAMACPP_LOG,
            SOURCE_STATISTICS,
            name,
            steps=steps,
            draft_tokens=drafted,
            accepted_tokens=accepted,
            draft_tokens_k=len(joint) or None,
            mean_accepted_length=printed,
            joint=shares,
            notes=(*notes, "nothing drafted: acceptance is undefined") if not drafts else tuple(notes),
        )
    )


def _counter(text: str, name: str) -> float | None:
    # Followed by a comma or the end: a number that may go on beyond a cut is not whole.
    found = re.search(rf"#{name}\s*=\s*(\d+)\s*(?:,|$)", text)
    return float(found[1]) if found else None


def _verified(drafts: float, accepted: float, printed: float | None, rest: str) -> tuple[float, list[str]]:
    """Drafts that were verified: those generated, unless the printed mean speaks for the accept calls."""
    calls = _CALLS.search(rest)
    verified = float(calls[3]) if calls and calls[3] else drafts
    if verified and verified != drafts and printed is not None and abs(1 + accepted / verified - printed) < 0.0051:
        return verified, [f"{drafts:g} drafts made, {verified:g} verified"]
    return drafts, []


def _steps(request: _Request) -> float | None:
    if request.accepted > 0 and request.mean is not None and request.mean > 1:
        return float(round(request.accepted / (request.mean - 1)))
    if request.accepted == 0 and request.joint:
        return float(math.ceil(request.drafted / len(request.joint)))
    return 0.0 if request.drafted == 0 else None


def _pooled(requests: Sequence[_Request]) -> Reading:
    steps = [_steps(request) for request in requests]
    known = [count for count in steps if count is not None]
    whole = len(known) == len(steps)
    lengths = {len(request.joint) for request in requests}
    k = next(iter(lengths)) or None if len(lengths) == 1 else None
    single = requests[0] if len(requests) == 1 else None
    notes = [f"{len(requests)} requests pooled"] if not single else []
    if known:
        notes.append("drafts estimated from the printed mean length, which is rounded")
    if not whole:
        notes.append(f"no mean length printed for {len(steps) - len(known)} of {len(steps)}: drafts unknown")
    shares = dict(enumerate(single.joint)) if single else _joint(requests, steps, k)
    return checked(
        Reading(
            Kind.LLAMACPP_LOG,
            SOURCE_REQUESTS,
            "requests",
            steps=sum(known) if whole else None,
            draft_tokens=sum(request.drafted for request in requests),
            accepted_tokens=sum(request.accepted for request in requests),
            draft_tokens_k=k,
            mean_accepted_length=single.mean if single else None if whole else _mean(requests, steps),
            joint=shares,
            estimated=bool(known),
            notes=tuple(notes),
        )
    )


def _mean(requests: Sequence[_Request], steps: Sequence[float | None]) -> float | None:
    """Mean length over the requests whose drafts are known."""
    known = [(request.accepted, count) for request, count in zip(requests, steps, strict=True) if count is not None]
    return length(sum(accepted for accepted, _ in known), sum(count for _, count in known))


def _joint(requests: Sequence[_Request], steps: Sequence[float | None], k: int | None) -> dict[int, float]:
    if k is None or any(count is None for count in steps):
        return {}
    total = sum(count or 0.0 for count in steps)
    sums = (sum((s or 0.0) * r.joint[place] for r, s in zip(requests, steps, strict=True)) for place in range(k))
    return {place: share for place, value in enumerate(sums) if (share := ratio(value, total)) is not None}
