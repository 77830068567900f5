"""vLLM's "SpecDecoding metrics" log lines, four generations of them.

Each line covers one interval and starts from zero, so windows are pooled by drafts, never averaged. No line prints
the number of drafts: it is drafted / K where that agrees with the printed mean length, else accepted / (mean - 1),
which is rounded and labelled as estimated.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from specdyno.engine.reading.fields import numbers, parse_fields, quantity
from specdyno.engine.reading.schema import Kind, Reading, checked, labelled_range, length, lines, ratio

MARK = "SpecDecoding metrics:"
SOURCE = "vllm log"

_RATE = ("avg draft acceptance rate", "draft acceptance rate")
_POSITIONS = "per-position acceptance rate"
_DEPTH = "current speculative depth"
_UNDERSTOOD = frozenset({*_RATE, _POSITIONS, _DEPTH, "mean acceptance length", "accepted", "drafted"})
_ENGINE = re.compile(r"EngineCore_?(DP\d+|\d+)|Engine (\d+)\s*:")
_DECIMALS = re.compile(r"-?\d\.\d{3}|nan", re.IGNORECASE)
_HALF_DIGIT = 0.0051  # a mean length is printed with two decimals


@dataclass(frozen=True, slots=True)
class _Window:
    engine: str
    k: int | None = None
    mean: float | None = None
    rate: float | None = None
    accepted: float | None = None
    drafted: float | None = None
    drafts: float | None = None
    exact: bool = False
    joint: dict[int, float] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def counted(self) -> bool:
        return self.accepted is not None and self.drafted is not None


def read(text: str) -> Reading:
    """All windows of a log pooled, with parts by engine and draft length where these differ."""
    windows = [_window(line, row) for row, line in enumerate(lines(text), start=1) if MARK in line]
    if not windows:
        return Reading(Kind.VLLM_LOG, SOURCE, problems=("no SpecDecoding line found",))
    groups: dict[tuple[str, int | None], list[_Window]] = defaultdict(list)
    for window in windows:
        groups[window.engine, window.k].append(window)
    whole = _pooled(windows, label="")
    if len(groups) == 1:
        return whole
    parts = tuple(_pooled(group, label=_label(*key)) for key, group in groups.items())
    notes = list(whole.notes)
    if len({k for _, k in groups}) > 1:
        notes.append("windows differ in draft length: compare acceptance rates within a part only")
    return replace(whole, parts=parts, notes=tuple(notes))


def _label(engine: str, k: int | None) -> str:
    return ", ".join(word for word in (engine, "K unknown" if k is None else f"K {k}") if word)


def _window(line: str, row: int) -> _Window:
    found = parse_fields(line.split(MARK, 1)[1])
    named = _ENGINE.search(line)
    problems: list[str] = []
    joint = _positions(found.get(_POSITIONS), row, problems)
    depth = quantity(found.get(_DEPTH))
    window = _Window(
        engine=next((group for group in named.groups() if group), "") if named else "",
        k=int(depth) if depth is not None else len(joint) or None,
        mean=quantity(found.get("mean acceptance length")),
        rate=ratio(next((quantity(found[name], unit="%") for name in _RATE if name in found), None), 100.0),
        accepted=_tokens(found, "accepted", row, problems),
        drafted=_tokens(found, "drafted", row, problems),
        joint={place: share for place, share in enumerate(joint) if share is not None},
        unknown={name: value for name, value in found.items() if name not in _UNDERSTOOD},
    )
    # A list that ends its line may have been cut: the draft length is sure only where something follows.
    sure = depth is not None or next(reversed(found), None) != _POSITIONS
    window = _possible(window, row, sure_of_k=sure, problems=problems)
    return replace(_with_drafts(window, row, problems), problems=tuple(problems))


def _tokens(found: dict[str, str], name: str, row: int, problems: list[str]) -> float | None:
    value = quantity(found.get(name), unit="tokens")
    if value is None and name in found:
        problems.append(f"line {row}: {name} {found[name]!r} is cut off or no number")
    elif value is not None and value < 0:
        problems.append(f"line {row}: rejected: {name} {value:g} tokens is negative")
        return None
    return value


def _positions(text: str | None, row: int, problems: list[str]) -> list[float | None]:
    """Shares by position; a last number that lost digits is dropped."""
    items = [item.strip() for item in (text or "").split(",") if item.strip()]
    whole = [item for item in items if _DECIMALS.fullmatch(item)]
    if len(whole) < len(items):
        problems.append(f"line {row}: the list of positions is cut off or broken")
    return numbers(", ".join(whole))


def _possible(window: _Window, row: int, *, sure_of_k: bool, problems: list[str]) -> _Window:
    """The window without values that cannot be."""
    if window.accepted is not None and window.drafted is not None and window.accepted > window.drafted:
        problems.append(f"line {row}: rejected: {window.accepted:g} accepted of {window.drafted:g} drafted tokens")
        window = replace(window, accepted=None, drafted=None)
    if window.rate is not None and not 0 <= window.rate <= 1:
        problems.append(f"line {row}: rejected: an acceptance rate of {window.rate:.0%} lies outside 0 to 100 %")
        window = replace(window, rate=None)
    beyond = sure_of_k and window.k is not None and window.mean is not None and window.mean > window.k + 1 + _HALF_DIGIT
    if window.mean is not None and (window.mean < 1 or beyond):
        problems.append(f"line {row}: rejected: a mean length of {window.mean:g} with {window.k} draft tokens")
        window = replace(window, mean=None)
    return window


def _with_drafts(window: _Window, row: int, problems: list[str]) -> _Window:
    by_length = ratio(window.drafted, window.k)
    by_mean = None
    if window.accepted and window.mean is not None and window.mean > 1:
        by_mean = float(round(window.accepted / (window.mean - 1)))
    if by_length is not None and by_length == int(by_length) and _agrees(window, by_length):
        return replace(window, drafts=by_length, exact=True)
    if by_length is not None and by_mean is not None and by_mean < by_length * 0.98:
        problems.append(f"line {row}: the printed counts need more than {window.k} positions, so K is unknown")
        window = replace(window, k=None)
    return replace(window, drafts=by_mean)


def _agrees(window: _Window, drafts: float) -> bool:
    """Whether a number of drafts gives the mean length that was printed."""
    if window.mean is None or not drafts or window.accepted is None:
        return True
    return abs(1 + window.accepted / drafts - window.mean) <= _HALF_DIGIT


def _pooled(windows: Sequence[_Window], *, label: str) -> Reading:
    counted = [window for window in windows if window.counted]
    weighted = [window for window in counted if window.drafts is not None]
    whole = bool(counted) and len(weighted) == len(counted)
    notes = [f"{len(windows)} windows, pooled by drafts"] if len(windows) > 1 else []
    if counted and len(counted) < len(windows):
        notes.append(f"{len(windows) - len(counted)} of {len(windows)} windows without whole counts are left out")
    if weighted and not whole:
        notes.append(f"mean length over the {len(weighted)} of {len(counted)} windows whose drafts can be told")
    estimated = any(not window.exact for window in weighted)
    if estimated:
        notes.append("drafts estimated from the printed mean length, which is rounded")
    lengths = {window.k for window in windows}
    return checked(
        Reading(
            Kind.VLLM_LOG,
            SOURCE,
            label,
            steps=sum(window.drafts or 0.0 for window in weighted) if whole else None,
            draft_tokens=sum(window.drafted or 0.0 for window in counted) if counted else None,
            accepted_tokens=sum(window.accepted or 0.0 for window in counted) if counted else None,
            draft_tokens_k=next(iter(lengths)) if len(lengths) == 1 else None,
            mean_accepted_length=_mean(windows, weighted, whole=whole),
            acceptance_rate=windows[0].rate if len(windows) == 1 else None,
            joint=_joint(windows, weighted) if len(lengths) == 1 else {},
            length_range=None if counted else labelled_range(w.mean for w in windows if w.mean is not None),
            estimated=estimated,
            notes=tuple(notes),
            problems=tuple(problem for window in windows for problem in window.problems),
            fields=windows[0].unknown if len(windows) == 1 else {},  # each belongs to its own interval
        )
    )


def _mean(windows: Sequence[_Window], weighted: Sequence[_Window], *, whole: bool) -> float | None:
    if len(windows) == 1:
        return windows[0].mean
    if whole:
        return None  # from the pooled counts
    return length(sum(w.accepted or 0.0 for w in weighted), sum(w.drafts or 0.0 for w in weighted))


def _joint(windows: Sequence[_Window], weighted: Sequence[_Window]) -> dict[int, float]:
    """Shares by position, weighted by drafts; those of a single window as printed."""
    if len(windows) == 1:
        return windows[0].joint
    places = sorted({place for window in weighted for place in window.joint})
    shares: dict[int, float] = {}
    for place in places:
        holders = [(w.drafts or 0.0, w.joint[place]) for w in weighted if place in w.joint]
        share = ratio(sum(drafts * value for drafts, value in holders), sum(drafts for drafts, _ in holders))
        if share is not None:
            shares[place] = share
    return shares
