"""Plain tables of a report: every figure, every boot, where it was measured, and the plan in force.

Owns which columns there are. Cells are text, made safe to show; a figure's interval is its second line.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from specdyno.records.schema import BootRecord, StudyHeader, StudyRecords
from specdyno.report import numbers, sentences
from specdyno.report.untrusted import sanitise
from specdyno.statistics.analysis import Analysis, ArmSummary, Curve
from specdyno.statistics.intervals import Estimate, Interval


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


def writer(measure: str) -> numbers.Writer:
    """How a level of this measure is written, by the unit in its name."""
    if measure.endswith("_per_s"):
        return numbers.plain
    if measure.startswith("failed"):
        return numbers.share
    if any(word in measure for word in ("time", "tpot", "ttft", "itl", "e2el", "stall", "gap")):
        return numbers.seconds
    return numbers.plain


def figure(value: Estimate | None, write: numbers.Writer) -> Cell:
    """An estimate with its interval and level below it."""
    if isinstance(value, Interval):
        return Cell(write(value.estimate), f"{numbers.bounds(value, write)} ({numbers.exact_share(value.level)})")
    return Cell(numbers.absent(value))


def everything(analysis: Analysis) -> Table:
    """One row per arm, load and class: totals, rates, latency, acceptance, speed-up."""
    measures = tuple(dict.fromkeys(one.measure for one in analysis.levels))
    levels = {(one.arm, one.load, one.class_name, one.measure): one.value for one in analysis.levels}
    ratios = {(one.candidate, one.load, one.class_name, one.measure): one.ratio for one in analysis.contrasts}
    curves = {(one.arm, one.load, one.class_name): one for one in analysis.curves}
    compared = tuple(dict.fromkeys(one.measure for one in analysis.contrasts))
    rows: list[tuple[object, ...]] = []
    for one in analysis.summaries:
        key = (one.arm, one.load, one.class_name)
        rows.append(
            (
                *_totals(one),
                *(figure(levels.get((*key, name)), writer(name)) for name in measures),
                *(figure(ratios[(*key, name)], numbers.change) if (*key, name) in ratios else "" for name in compared),
                *_latencies(one),
                *_acceptance(curves.get(key)),
            )
        )
    columns = (
        *("arm", "load", "class", "boots", "requests", "done", "failed", "distinct prompts", "output tokens", "scored"),
        *(sentences.measure(name) for name in measures),
        *(f"gain in {sentences.measure(name)}" for name in compared),
        *("TTFT, median", "TPOT, mean", "TPOT, 95th percentile", "gap between chunks, mean"),
        *("acceptance rate", "mean accepted length", "draft coverage", "tokens per step"),
    )
    return table("Every figure", columns, rows)


def _totals(one: ArmSummary) -> tuple[object, ...]:
    return (
        *(one.arm, one.load, one.class_name or "all, mixed"),
        *(numbers.count(value) for value in (one.boots, one.requests)),
        *(Cell(numbers.count(one.done), outcomes(one)), numbers.count(one.failed)),
        numbers.count(one.distinct_prompts),
        *(numbers.count(one.output_tokens), numbers.seconds(one.duration_s)),
    )


def _latencies(one: ArmSummary) -> Iterator[str]:
    stats = {name: dict(values) for name, values in one.latency_ms}
    for name, statistic in (("ttft", "median"), ("tpot", "mean"), ("tpot", "p95"), ("itl", "mean")):
        yield numbers.milliseconds(stats.get(name, {}).get(statistic))


def _acceptance(curve: Curve | None) -> Iterator[Cell]:
    if curve is None:
        yield from (Cell("\u2013"),) * 4
        return
    for value, write in (
        (curve.rate, numbers.share),
        (curve.mean_accepted_length, numbers.plain),
        (curve.coverage, numbers.share),
        (curve.tokens_per_step, numbers.plain),
    ):
        yield figure(value, write)


def settings(analysis: Analysis) -> Table:
    """Resolved settings that differ from the baseline's, and whether speculation itself changes them."""
    rows: list[tuple[object, ...]] = [
        (name, arm, base, value, "consequence of speculation" if consequence else "a difference of its own")
        for name, arm, base, value, consequence in analysis.settings_differences
    ]
    return table("Settings that differ", ("setting", "arm", "baseline", "this arm", "kind"), rows)


def boots(records: StudyRecords) -> Table:
    """Every boot, scored or not, in the order of its start."""
    rows: list[tuple[object, ...]] = []
    for boot in sorted(records.boots, key=lambda one: one.id):
        ready = None if boot.ready_ns is None else (boot.ready_ns - boot.started_ns) / 1e9
        row = (boot.block + 1, boot.position + 1, boot.arm, boot.attempt + 1, boot.status.value, numbers.seconds(ready))
        rows.append((*row, numbers.size(boot.memory_bytes), boot.log_path, boot.failure))
    columns = ("block", "place", "arm", "attempt", "status", "ready after", "memory", "log", "failure")
    return table("Boots", columns, rows)


def outcomes(summary: ArmSummary) -> str:
    """How the requests of one arm ended, in words."""
    known = {name.value: words for name, words in sentences.OUTCOMES.items()}
    return ", ".join(f"{number:,} {known.get(name, sanitise(name))}" for name, number in summary.outcomes if number)


def provenance(records: StudyRecords, fingerprint: dict[str, Any]) -> tuple[Table, ...]:
    """Where and with what it was measured: the study, the host, each arm as its engine reports it."""
    header = records.header
    rows: list[tuple[object, ...]] = [
        ("measured", numbers.moment(header.created_unix_ns)),
        ("plan, SHA-256", header.plan_sha256),
        *((f"scored requests per window, {load}", number) for load, number in sorted(header.sizing.items())),
        *flatten(header.provenance),
    ]
    first_boots: dict[str, BootRecord] = {}
    for boot in records.boots:
        if boot.identity is not None:
            first_boots.setdefault(boot.arm, boot)
    return (
        table("Study and host", ("what", "value"), rows),
        _engines(first_boots),
        _commands(first_boots),
        _resolved(first_boots),
        table(
            "Fingerprint: the verdict holds where all of this is equal", ("what", "value"), list(flatten(fingerprint))
        ),
    )


def _engines(first_boots: dict[str, BootRecord]) -> Table:
    rows: list[tuple[object, ...]] = []
    for arm, boot in first_boots.items():
        if (one := boot.identity) is not None:
            rows.append((arm, one.engine, one.version, one.model, one.method, one.draft_tokens, one.draft, one.source))
    columns = ("arm", "engine", "version", "model", "method in force", "K in force", "draft", "read from")
    return table("Engines as they report themselves", columns, rows)


def _commands(first_boots: dict[str, BootRecord]) -> Table:
    rows: list[tuple[object, ...]] = [
        (arm, shlex.join(boot.command)) for arm, boot in first_boots.items() if boot.command
    ]
    return table("Commands that started the engines", ("arm", "command"), rows)


def _resolved(first_boots: dict[str, BootRecord]) -> Table:
    """Settings over all arms, one column each."""
    arms = tuple(first_boots)
    settings_of = {arm: boot.identity.settings for arm, boot in first_boots.items() if boot.identity is not None}
    names = sorted({name for values in settings_of.values() for name in values})
    rows: list[tuple[object, ...]] = [
        (name, *(settings_of[arm].get(name, "not reported") for arm in arms)) for name in names
    ]
    return table("Resolved settings", ("setting", *arms), rows)


def plan(header: StudyHeader) -> Table:
    """Every value in force, and whether the plan's author wrote it or it is the default."""
    try:
        written = yaml.safe_load(header.plan_yaml) if header.plan_yaml else None
    except yaml.YAMLError:
        written = None
    known = {place for place, _ in flatten(written)} if isinstance(written, dict) else None
    rows: list[tuple[object, ...]] = [
        (place, value, "" if known is None else "plan" if _is_written(place, known) else "default")
        for place, value in flatten(header.plan)
    ]
    return table("The plan in force", ("key", "value", "from"), rows)


def _is_written(place: str, known: set[str]) -> bool:
    return any(
        place == one or one.startswith((f"{place}.", f"{place}[")) or place.startswith(f"{one}[") for one in known
    )


def flatten(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Key paths and their values, as a plan names its places: `candidates[1].draft_tokens`."""
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from flatten(part, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(part, dict | list | tuple) for part in value):
        for index, part in enumerate(value):
            yield from flatten(part, f"{place}[{index}]")
    else:
        yield sanitise(place), "none" if value in ({}, [], ()) else value


def command(header: StudyHeader) -> str:
    """What measures the same again, on the same host, from the study's own plan."""
    study = sanitise(str(header.plan.get("study", "study"))).replace(" ", "-")
    return f"specdyno run plan.yaml --out {shlex.quote(study)}"
