"""A `/metrics` page, or two of one server, as a reading of acceptance."""

from __future__ import annotations

from dataclasses import replace

from specdyno.engine import counters
from specdyno.engine.reading.schema import Kind, Reading, checked, labelled_range
from specdyno.records.deltas import CounterDelta, difference
from specdyno.records.schema import CounterSample

_MEAN_GAUGES = ("spec_accept_length", "spec_decode_acceptance_length", "draft_mean_accept_len")
_RATE_GAUGES = ("spec_accept_rate", "spec_decode_draft_acceptance_rate", "draft_acceptance_rate")


def read(text: str) -> Reading | None:
    """One scrape: counts since the server started, its gauges as parts. None if it holds no counter of interest."""
    sample = counters.parse(text, stamp_ns=1, source="metrics")
    gauges = _from_gauges(text)
    if not sample.series and not gauges:
        return None
    start = CounterSample(0, "server start", (), sample.process_start)
    reading = _from_delta(difference(start, sample), "metrics, since server start", problems=sample.problems)
    if not gauges:
        return reading
    means = [part.mean_accepted_length for part in gauges if part.mean_accepted_length is not None]
    note = "gauges hold the last interval or a lifetime mean: kept apart from the counters"
    return replace(reading, notes=(*reading.notes, note), parts=gauges, length_range=labelled_range(means))


def read_pair(before: str, after: str) -> Reading:
    """Acceptance between two scrapes of one server's `/metrics`, the earlier first."""
    first = counters.parse(before, stamp_ns=0, source="metrics, first scrape")
    second = counters.parse(after, stamp_ns=1, source="metrics, second scrape")
    problems = (
        *(f"first scrape: {problem}" for problem in first.problems),
        *(f"second scrape: {problem}" for problem in second.problems),
    )
    return _from_delta(difference(first, second), "metrics, between two scrapes", problems=problems)


def _from_gauges(text: str) -> tuple[Reading, ...]:
    found: dict[str, dict[str, float]] = {}
    for series in counters.gauges(text):
        label = ", ".join(f"{name}={value}" for name, value in series.labels if name != "model_name")
        if series.value is not None:
            found.setdefault(label, {})[series.name] = series.value
    return tuple(
        checked(
            Reading(
                Kind.METRICS,
                "gauge (last interval or lifetime)",
                label,
                mean_accepted_length=next((values[name] for name in _MEAN_GAUGES if name in values), None),
                acceptance_rate=next((values[name] for name in _RATE_GAUGES if name in values), None),
                fields={name: f"{value:g}" for name, value in values.items()},
            )
        )
        for label, values in found.items()
    )


def _from_delta(delta: CounterDelta, source: str, *, problems: tuple[str, ...]) -> Reading:
    notes = []
    if delta.active is False:
        over = "" if delta.generation_tokens is None else f" over {delta.generation_tokens:.0f} tokens"
        notes.append(f"spec active: no (0 drafts{over})")
    if delta.since_restart:
        notes.append("since restart")
    return checked(
        Reading(
            Kind.METRICS,
            source,
            steps=delta.drafts,
            draft_tokens=delta.draft_tokens,
            accepted_tokens=delta.accepted_tokens,
            draft_tokens_k=delta.draft_tokens_k,
            joint={place: share for place, share in enumerate(delta.joint or ()) if share is not None},
            tokens_per_step=delta.tokens_per_step,
            coverage=delta.coverage,
            active=delta.active,
            notes=tuple(notes),
            problems=(*problems, *delta.problems),
        )
    )
