"""Plain tables of a report: every figure that was measured, by load, class and arm.

Owns the shape of a table and which columns of figures there are. Cells are text, made safe to show; a figure's interval
is its second line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from specdyno.report import sentences, spelling
from specdyno.report.untrusted import sanitise
from specdyno.statistics.analysis import Analysis, ArmSummary
from specdyno.statistics.intervals import Estimate, Interval
from specdyno.statistics.measures import MEASURES

MIXED = "all, mixed"
PLACE = ("load", "class", "arm")
DASH = "\u2013"
_WriterOf = Callable[[str], spelling.Writer]


class Cell(NamedTuple):
    text: str
    small: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def table(title: str, columns: tuple[str, ...], rows: list[tuple[object, ...]]) -> Table:
    """A table from anything printable; every cell is made safe to show."""
    return Table(
        title,
        columns,
        tuple(tuple(part if isinstance(part, Cell) else Cell(text_of(part)) for part in row) for row in rows),
    )


def text_of(value: object) -> str:
    """A value of a plan, a setting or a fact, in words."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(text_of(part) for part in value) or "none"
    return sanitise(str(value))


def writer(measure: str) -> spelling.Writer:
    """How a level of this measure is written, by its unit in the registry."""
    known = MEASURES.get(measure)
    writers: dict[str, spelling.Writer] = {"s": spelling.seconds, "share": spelling.share}
    return writers.get(known.unit if known else "", spelling.plain)


def figure(value: Estimate | None, write: spelling.Writer) -> Cell:
    """An estimate with its interval and level below it; without one, the reason below."""
    if isinstance(value, Interval):
        below = f"{spelling.bounds(value, write)} ({spelling.exact_share(value.level)})"
        return Cell(spelling.estimate(value, write), below)
    reason = sanitise(value.reason) if value is not None else ""
    return Cell(spelling.NOT_MEASURED, "" if reason == spelling.NOT_MEASURED else reason)


def figures(analysis: Analysis) -> tuple[Table, ...]:
    """Everything by load, class and arm: totals, levels, differences from the baseline, latency, acceptance."""
    found = (_totals(analysis), _levels(analysis), _differences(analysis), _latency(analysis), _acceptance(analysis))
    return tuple(one for one in found if one.rows)


Key = tuple[str, str | None, str]  # load, class, arm


def _place(key: Key) -> tuple[str, str, str]:
    load, class_name, arm = key
    return load, class_name or MIXED, arm


def _ordered(keys: Iterable[Key], analysis: Analysis) -> list[Key]:
    """Loads, then classes with mixed traffic first, then arms, each in the order of the plan."""
    orders: tuple[tuple[str | None, ...], ...] = (analysis.loads, (None, *analysis.classes), analysis.arms)

    def rank(key: Key) -> tuple[int, ...]:
        return tuple(
            order.index(part) if part in order else len(order) for part, order in zip(key, orders, strict=True)
        )

    return sorted(dict.fromkeys(keys), key=rank)


def _grid(
    title: str, values: dict[tuple[Key, str], Estimate], analysis: Analysis, *, label: str, write: _WriterOf
) -> Table:
    # A quantile that no arm has enough requests for is no column.
    seen = {name for (_, name), value in values.items() if isinstance(value, Interval) or not _quantile(name)}
    measures = tuple(dict.fromkeys(name for _, name in values if name in seen))
    rows: list[tuple[object, ...]] = [
        (
            *_place(key),
            *(figure(values[key, name], write(name)) if (key, name) in values else DASH for name in measures),
        )
        for key in _ordered((key for key, _ in values), analysis)
    ]
    return table(title, (*PLACE, *(label.format(sentences.measure(name)) for name in measures)), rows)


def _quantile(name: str) -> bool:
    return name.rpartition("_")[2] in ("p95", "p99")


def _levels(analysis: Analysis) -> Table:
    values = {((one.load, one.class_name, one.arm), one.measure): one.value for one in analysis.levels}
    return _grid("What was measured", values, analysis, label="{}", write=writer)


def _differences(analysis: Analysis) -> Table:
    values = {((one.load, one.class_name, one.candidate), one.measure): one.ratio for one in analysis.contrasts}
    title = "Against the baseline (above 0 % is better; output length: longer)"
    return _grid(title, values, analysis, label="{}", write=lambda _: spelling.change)


def _totals(analysis: Analysis) -> Table:
    by_key = {(one.load, one.class_name, one.arm): one for one in analysis.summaries}
    rows: list[tuple[object, ...]] = []
    for key in _ordered(by_key, analysis):
        one = by_key[key]
        counts = (spelling.count(value) for value in (one.boots, one.requests, one.distinct_prompts))
        ended = (Cell(spelling.count(one.done), outcomes(one)), spelling.count(one.failed))
        tokens = (spelling.count(one.prompt_tokens), spelling.count(one.output_tokens))
        rows.append((*_place(key), *counts, *ended, *tokens, spelling.seconds(one.duration_s)))
    columns = (
        "boots",
        "requests",
        "distinct prompts",
        "done",
        "failed",
        "prompt tokens",
        "output tokens",
        "scored time",
    )
    return table("How much was measured", (*PLACE, *columns), rows)


def outcomes(summary: ArmSummary) -> str:
    """How the requests of one arm ended, in words."""
    known = {name.value: words for name, words in sentences.OUTCOMES.items()}
    return ", ".join(f"{number:,} {known.get(name, sanitise(name))}" for name, number in summary.outcomes if number)


def _latency(analysis: Analysis) -> Table:
    by_key = {(one.load, one.class_name, one.arm): one for one in analysis.summaries if one.latency_ms}
    stats = {key: {name: dict(values) for name, values in one.latency_ms} for key, one in by_key.items()}
    columns = [
        (name, statistic, f"{words}, {sentences.STATISTICS[statistic]}")
        for name, words in sentences.LATENCIES.items()
        for statistic in ("mean", "median", "p95", "p99")
        if any(statistic in of.get(name, {}) for of in stats.values())
    ]
    rows: list[tuple[object, ...]] = [
        (*_place(key), *(spelling.milliseconds(stats[key].get(name, {}).get(part)) for name, part, _ in columns))
        for key in _ordered(by_key, analysis)
    ]
    return table("Latency over requests", (*PLACE, *(words for _, _, words in columns)), rows)


def _acceptance(analysis: Analysis) -> Table:
    by_key = {(one.load, one.class_name, one.arm): one for one in analysis.curves}
    rows: list[tuple[object, ...]] = []
    for key in _ordered(by_key, analysis):
        one = by_key[key]
        shares = (figure(value, spelling.share) for value in (one.rate, one.coverage))
        lengths = (figure(value, spelling.plain) for value in (one.mean_accepted_length, one.tokens_per_step))
        counts = (spelling.count(value) for value in (one.drafted_steps, one.drafted_tokens, one.accepted_tokens))
        rows.append((*_place(key), *shares, *lengths, *counts, one.source))
    columns = ("acceptance rate", "draft coverage", "mean accepted length", "tokens per step")
    return table("Acceptance", (*PLACE, *columns, "drafted steps", "drafted tokens", "accepted tokens", "source"), rows)


def settings(analysis: Analysis) -> Table:
    """Resolved settings that differ from the baseline's, and whether speculation itself changes them."""
    rows: list[tuple[object, ...]] = [
        (name, arm, base, value, "consequence of speculation" if consequence else "a difference of its own")
        for name, arm, base, value, consequence in analysis.settings_differences
    ]
    return table("Settings that differ", ("setting", "arm", "baseline", "this arm", "kind"), rows)
