"""What happened between two scrapes: differences of cumulative counters, in neutral names.

Owns the names of counter families and the arithmetic between two `CounterSample`s. Parses no text and knows no
engine. Promises: differences are taken per series and summed over engines afterwards; nothing is ever negative; what
cannot be told is None with its reason in `problems`, never 0. Refuses to difference across draft lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from specdyno.records.schema import CounterSample

POSITION = "position"  # label of the per-position families: an integer as text, counted from 0
ENGINE_LABELS = ("engine", "engine_index", "dp_rank", "instance", "model_name")  # tell processes or replicas apart

_LONGEST_POSITION = 4  # digits, so that a broken label cannot ask for much memory
START_TOLERANCE_S = 1.0  # stamps of series created while one process starts lie within this


class Family(StrEnum):
    """Neutral names of counter families."""

    SPEC_DRAFTS = "spec_drafts"  # steps of a request that had a draft to verify
    SPEC_DRAFT_TOKENS = "spec_draft_tokens"
    SPEC_ACCEPTED_TOKENS = "spec_accepted_tokens"
    SPEC_ACCEPTED_PER_POSITION = "spec_accepted_per_position"
    SPEC_DRAFTED_PER_POSITION = "spec_drafted_per_position"
    GENERATION_TOKENS = "generation_tokens"
    PROMPT_TOKENS = "prompt_tokens"
    CACHED_PROMPT_TOKENS = "cached_prompt_tokens"
    DECODE_STEPS = "decode_steps"  # steps of a request after its first token, drafted or not
    FIRST_TOKENS = "first_tokens"  # requests that got a first token
    REQUESTS_FINISHED = "requests_finished"
    PREFIX_QUERIES = "prefix_queries"
    PREFIX_HITS = "prefix_hits"
    PREEMPTIONS = "preemptions"


CANONICAL: frozenset[str] = frozenset(Family)
SPEC_FAMILIES = tuple(family for family in Family if family.startswith("spec_"))

Labels = tuple[tuple[str, str], ...]
_Values = dict[Labels, float | None]
_Positions = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class CounterDelta:
    """Counts between two samples, summed over engines. None: unknown. Per-position tuples start at position 0.

    `draft_tokens_k` is K in force: the number of positions, else draft tokens per draft where that is whole.
    `since_restart`: the engine restarted in between; the counts hold what came after that.
    """

    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: _Positions | None = None
    drafted_per_position: _Positions | None = None
    draft_tokens_k: int | None = None
    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    cached_prompt_tokens: float | None = None
    decode_steps: float | None = None
    first_tokens: float | None = None
    requests_finished: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    preemptions: float | None = None
    since_restart: bool = False
    problems: tuple[str, ...] = ()

    @property
    def active(self) -> bool | None:
        """Whether anything was drafted; None where the counters do not tell."""
        known = [count for count in (self.drafts, self.draft_tokens) if count is not None]
        return any(count > 0 for count in known) if known else None

    @property
    def mean_accepted_length(self) -> float | None:
        """A = 1 + accepted / drafted steps."""
        per_draft = _ratio(self.accepted_tokens, self.drafts)
        return None if per_draft is None else 1.0 + per_draft

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted tokens, a fraction."""
        return _ratio(self.accepted_tokens, self.draft_tokens)

    @property
    def joint(self) -> _Positions | None:
        """q_(i+1) at index i: share of drafted steps that accepted at least i+1 tokens."""
        if self.accepted_per_position is None or not self.drafts:
            return None
        return tuple(_ratio(accepted, self.drafts) for accepted in self.accepted_per_position)

    @property
    def tokens_per_step(self) -> float | None:
        """(generated - first tokens) / all decode steps."""
        if self.generation_tokens is None or self.first_tokens is None:
            return None
        return _ratio(self.generation_tokens - self.first_tokens, self.decode_steps)

    @property
    def coverage(self) -> float | None:
        """Share of decode steps that had a draft."""
        return _ratio(self.drafts, self.decode_steps)


def difference(before: CounterSample, after: CounterSample) -> CounterDelta:
    """What was counted from `before` to `after`, two samples of one server, the earlier one first."""
    problems: list[str] = []
    old, new = _by_family(before), _by_family(after)
    restarted = _restarted(before, after, old, new, problems)
    spans: dict[Family, _Values] = {}
    for family in Family:
        if family not in old and not restarted and family in new and before.problems:
            problems.append(f"{family}: missing in a first sample that was not read whole, so its start is unknown")
            continue
        span = _span(family, old.get(family, {}), new.get(family, {}), restarted, problems)
        if span is not None:
            spans[family] = span
    if _other_draft_length(old, new, problems):
        for family in SPEC_FAMILIES:
            spans.pop(family, None)
    return _checked(spans, new, since_restart=bool(restarted), problems=problems)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _by_family(sample: CounterSample) -> dict[Family, _Values]:
    families: dict[Family, _Values] = {}
    for series in sample.series:
        if series.name in CANONICAL:
            families.setdefault(Family(series.name), {})[series.labels] = series.value
    return families


def _engine(labels: Labels) -> Labels:
    return tuple(label for label in labels if label[0] in ENGINE_LABELS)


def _restarted(
    before: CounterSample,
    after: CounterSample,
    old: Mapping[Family, _Values],
    new: Mapping[Family, _Values],
    problems: list[str],
) -> frozenset[Labels]:
    """The engines (by their labels) whose counters began anew between the samples."""
    if before.process_start is not None and after.process_start is not None:
        moved = after.process_start - before.process_start
        if abs(moved) > START_TOLERANCE_S:
            problems.append(f"counters reset: the process start moved by {moved:.0f} s; counts are since restart")
            everyone = {_engine(labels) for side in (old, new) for values in side.values() for labels in values}
            return frozenset(everyone | {()})
    fallen = {
        _engine(labels): f"{family} fell from {value:g} to {now:g}"
        for family, values in old.items()
        for labels, value in values.items()
        if value is not None and (now := new.get(family, {}).get(labels)) is not None and now < value
    }
    problems.extend(f"counters reset: {seen}; counts are since restart" for seen in fallen.values())
    return frozenset(fallen)


def _span(
    family: Family, old: _Values, new: _Values, restarted: frozenset[Labels], problems: list[str]
) -> _Values | None:
    """Difference of each series; None where the family is absent or cannot be told."""
    starts = {labels: value for labels, value in old.items() if _engine(labels) not in restarted}
    unreadable = [labels for side in (starts, new) for labels, value in side.items() if value is None]
    if unreadable:
        problems.append(f"{family}: unknown, no readable count in {_shown(unreadable[0])}")
        return None
    lost = [labels for labels in starts if labels not in new]
    if lost:
        problems.append(f"{family}: unknown, the second sample lacks {_shown(lost[0])}")
        return None
    return {labels: (now or 0.0) - (starts.get(labels) or 0.0) for labels, now in new.items()} or None


def _shown(labels: Labels) -> str:
    return "{" + ", ".join(f"{name}={value!r}" for name, value in labels) + "}"


def _place(labels: Labels) -> int | None:
    """The draft position of a series, or None where the label is missing or no count."""
    text = dict(labels).get(POSITION, "")
    return int(text) if text.isdecimal() and len(text) <= _LONGEST_POSITION else None


def _other_draft_length(old: Mapping[Family, _Values], new: Mapping[Family, _Values], problems: list[str]) -> bool:
    """Whether the two samples come from different K, or from speculation that went away."""
    had_spec = any(family in old for family in SPEC_FAMILIES)
    if had_spec and not any(family in new for family in SPEC_FAMILIES):
        problems.append("the second sample has no speculative counters at all; take a fresh baseline")
        return True
    for family in (Family.SPEC_ACCEPTED_PER_POSITION, Family.SPEC_DRAFTED_PER_POSITION):
        sides = (old.get(family, {}), new.get(family, {}))
        if not all(sides) or any(value is None for side in sides for value in side.values()):
            continue
        was, now = ({_place(labels) for labels in side} for side in sides)
        if was != now:
            problems.append(
                f"refused: {len(was)} draft positions before and {len(now)} after, so the draft length differs; "
                "take a fresh baseline"
            )
            return True
    return False


def _total(spans: Mapping[Family, _Values], family: Family) -> float | None:
    values = spans.get(family)
    return None if values is None else sum(value for value in values.values() if value is not None)


def _per_position(spans: Mapping[Family, _Values], family: Family, problems: list[str]) -> _Positions | None:
    """Counts by position over all engines; None at a position that the engine did not print."""
    values = spans.get(family)
    if not values:
        return None
    counts: dict[int, float] = {}
    for labels, value in values.items():
        place = _place(labels)
        if place is None or value is None:
            problems.append(f"{family}: no draft position in {_shown(labels)}")
            return None
        counts[place] = counts.get(place, 0.0) + value
    gaps = [place for place in range(max(counts)) if place not in counts]
    if gaps:
        problems.append(f"{family}: positions {', '.join(map(str, gaps))} are missing")
    return tuple(counts.get(place) for place in range(max(counts) + 1))


def _checked(
    spans: Mapping[Family, _Values], new: Mapping[Family, _Values], *, since_restart: bool, problems: list[str]
) -> CounterDelta:
    """Derive what an engine gives only by position, then refuse what cannot be."""
    accepted_at = _per_position(spans, Family.SPEC_ACCEPTED_PER_POSITION, problems)
    drafted_at = _per_position(spans, Family.SPEC_DRAFTED_PER_POSITION, problems)
    drafts = _total(spans, Family.SPEC_DRAFTS)
    drafted = _total(spans, Family.SPEC_DRAFT_TOKENS)
    accepted = _total(spans, Family.SPEC_ACCEPTED_TOKENS)
    # A family that is there but unreadable stays unknown: only an absent one is filled from the positions.
    if Family.SPEC_DRAFTS not in new and drafted_at:
        drafts = drafted_at[0]
    if Family.SPEC_DRAFT_TOKENS not in new:
        drafted = _sum(drafted_at)
    if Family.SPEC_ACCEPTED_TOKENS not in new:
        accepted = _sum(accepted_at)
    if accepted is not None and drafted is not None and accepted > drafted:
        problems.append(f"rejected: {accepted:g} accepted of {drafted:g} drafted tokens is impossible")
        accepted = accepted_at = None
    accepted_at = _possible_positions(accepted_at, drafts=drafts, accepted=accepted, problems=problems)
    length = _draft_length(accepted_at or drafted_at, drafts, drafted, accepted, problems=problems)
    return CounterDelta(
        drafts=drafts,
        draft_tokens=drafted,
        accepted_tokens=accepted,
        accepted_per_position=accepted_at,
        drafted_per_position=drafted_at,
        draft_tokens_k=length,
        generation_tokens=_total(spans, Family.GENERATION_TOKENS),
        prompt_tokens=_total(spans, Family.PROMPT_TOKENS),
        cached_prompt_tokens=_total(spans, Family.CACHED_PROMPT_TOKENS),
        decode_steps=_total(spans, Family.DECODE_STEPS),
        first_tokens=_total(spans, Family.FIRST_TOKENS),
        requests_finished=_total(spans, Family.REQUESTS_FINISHED),
        prefix_queries=_total(spans, Family.PREFIX_QUERIES),
        prefix_hits=_total(spans, Family.PREFIX_HITS),
        preemptions=_total(spans, Family.PREEMPTIONS),
        since_restart=since_restart,
        problems=tuple(problems),
    )


def _sum(counts: _Positions | None) -> float | None:
    if counts is None or any(count is None for count in counts):
        return None
    return sum(count for count in counts if count is not None)


def _possible_positions(
    counts: _Positions | None, *, drafts: float | None, accepted: float | None, problems: list[str]
) -> _Positions | None:
    """The per-position counts if they can be: at most one per draft, and never rising with depth."""
    if counts is None:
        return None
    known = [count for count in counts if count is not None]
    if any(deeper > nearer for nearer, deeper in pairwise(known)):
        problems.append("rejected: a deeper position accepted more than a nearer one")
        return None
    if drafts is not None and known and known[0] > drafts:
        problems.append(f"rejected: {known[0]:g} accepted at the first position of {drafts:g} drafts")
        return None
    total = _sum(counts)
    if accepted is not None and total is not None and total != accepted:
        problems.append(f"the positions add up to {total:g} accepted tokens, the total says {accepted:g}")
    return counts


def _draft_length(
    counts: _Positions | None,
    drafts: float | None,
    drafted: float | None,
    accepted: float | None,
    *,
    problems: list[str],
) -> int | None:
    """K from the number of positions, else from whole draft tokens per draft."""
    if counts is not None:
        length = len(counts)
        most = max((count for count in (drafted, accepted) if count is not None), default=None)
        if drafts and most is not None and most > length * drafts:
            problems.append(f"{most:g} tokens in {drafts:g} drafts need more than {length} positions: some are missing")
            return None
        return length
    per_draft = _ratio(drafted, drafts)
    return int(per_draft) if per_draft is not None and per_draft == int(per_draft) else None
