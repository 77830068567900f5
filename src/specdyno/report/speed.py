"""Speed as rows and panels: the speed-ups that decide, those that explain, and throughput over draft length."""

from __future__ import annotations

from dataclasses import dataclass

from specdyno.report import headlines, sentences, spelling, tables
from specdyno.report.marks import Mark, mark_of
from specdyno.report.untrusted import sanitise
from specdyno.statistics.analysis import Analysis, Contrast
from specdyno.statistics.intervals import Estimate, Interval, Undefined
from specdyno.statistics.measures import MEASURES
from specdyno.verdict.schema import Verdict

NO_RESULT = Undefined("no result for this objective")
SPEED_MEASURES = ("output_tokens_per_s", "jobs_per_s", "time_per_job")


@dataclass(frozen=True, slots=True)
class SpeedRow:
    mark: Mark
    ratio: Estimate
    change: str  # "+11.8 %" or "not measured (reason)"
    times: str
    interval: str  # "+8.1 % to +15.6 %", empty where not measured
    level: str
    units: str  # "4 blocks"
    decision: str | None  # of the objective that this row decides


@dataclass(frozen=True, slots=True)
class SpeedGroup:
    title: str
    load: str
    class_name: str | None
    measure: str
    minimum_gain: float | None
    decides: bool
    rows: tuple[SpeedRow, ...]

    @property
    def level(self) -> str:
        """The level of all intervals of the group, empty where they differ."""
        levels = {row.level for row in self.rows if row.level}
        return levels.pop() if len(levels) == 1 else ""


@dataclass(frozen=True, slots=True)
class ThroughputPanel:
    """Values over draft length at one load; `points` of a method rise in K."""

    load: str
    measure: str
    unit: str
    baseline: Estimate | None
    series: tuple[tuple[tuple[Mark, Estimate], ...], ...]
    rows: tuple[tuple[str, str], ...]  # arm, value with interval


@dataclass(frozen=True, slots=True)
class ExplainedRow:
    mark: Mark
    load: str
    tokens_per_step: Estimate
    speed_up: Estimate
    tokens_text: str
    speed_text: str
    tokens_short: str
    speed_short: str
    cost_text: str  # derived: tokens per step / speed-up


def speed_row(mark: Mark, ratio: Estimate, decision: str | None) -> SpeedRow:
    """A speed-up in all its spellings."""
    defined = isinstance(ratio, Interval)
    if isinstance(ratio, Interval) and ratio.bound:
        # One side alone is no pair of columns: it is said in one phrase.
        return SpeedRow(
            mark, ratio, spelling.with_interval(ratio, spelling.change), "", "", "",
            spelling.plural(ratio.count, "block"), decision,
        )  # fmt: skip
    return SpeedRow(
        mark=mark,
        ratio=ratio,
        change=spelling.estimate(ratio, spelling.change),
        times=spelling.estimate(ratio, spelling.times) if defined else "",
        interval=spelling.bounds(ratio, spelling.change) if isinstance(ratio, Interval) else "",
        level=spelling.level(ratio) if isinstance(ratio, Interval) else "",
        units=spelling.plural(ratio.count, "block") if defined else "",
        decision=decision,
    )


def deciding_groups(analysis: Analysis, verdict: Verdict, marks: dict[str, Mark]) -> list[SpeedGroup]:
    groups = []
    for part in verdict.objectives:
        rows = []
        for one in part.candidates:
            gate = headlines.primary(one)
            ratio = gate.ratio if gate is not None else NO_RESULT
            rows.append(speed_row(mark_of(one.candidate, marks), ratio, one.decision.value))
        title = f"{sanitise(part.objective)}: {sentences.measure(part.measure)} at load {sanitise(part.load)}"
        groups.append(
            SpeedGroup(
                title, sanitise(part.load), None, sentences.measure(part.measure), part.minimum_gain, True, tuple(rows)
            )
        )
    judged = {part.load for part in verdict.objectives}
    groups += [
        _group(analysis, load, None, verdict=verdict, marks=marks) for load in analysis.loads if load not in judged
    ]
    return [group for group in groups if group.rows]


def exploratory_groups(analysis: Analysis, verdict: Verdict, marks: dict[str, Mark]) -> list[SpeedGroup]:
    groups = [
        _group(analysis, load, name, verdict=verdict, marks=marks)
        for load in analysis.loads
        for name in analysis.classes
    ]
    return [group for group in groups if group.rows]


def _group(
    analysis: Analysis, load: str, class_name: str | None, *, verdict: Verdict, marks: dict[str, Mark]
) -> SpeedGroup:
    name, chosen = speed_contrasts(analysis, verdict, load, class_name)
    shown = sanitise(class_name) if class_name is not None else None
    title = f"{sanitise(load)}, {shown or 'mixed traffic'}: {sentences.measure(name)}"
    rows = tuple(speed_row(mark_of(one.candidate, marks), one.ratio, None) for one in chosen)
    return SpeedGroup(title, sanitise(load), shown, sentences.measure(name), None, False, rows)


def speed_contrasts(
    analysis: Analysis, verdict: Verdict, load: str, class_name: str | None
) -> tuple[str, list[Contrast]]:
    """The measure of speed that a load is judged by (else the first measured), and its contrasts."""
    judged = [part.measure for part in verdict.objectives if part.load == load]
    here = [one for one in analysis.contrasts if one.load == load and one.class_name == class_name]
    for name in (*judged, *SPEED_MEASURES):
        chosen = [one for one in here if one.measure == name]
        if any(isinstance(one.ratio, Interval) for one in chosen):
            return name, chosen
    first = next((one.measure for one in here if one.measure in (*judged, *SPEED_MEASURES)), SPEED_MEASURES[0])
    return first, [one for one in here if one.measure == first]


def throughput(analysis: Analysis, verdict: Verdict, marks: dict[str, Mark]) -> list[ThroughputPanel]:
    panels = []
    for load in analysis.loads:
        here = [one for one in analysis.levels if one.load == load and one.class_name is None]
        judged = [part.measure for part in verdict.objectives if part.load == load]
        present = [name for name in (*SPEED_MEASURES[:1], *judged) if any(one.measure == name for one in here)]
        for name in list(dict.fromkeys(present))[:1]:
            values = {one.arm: one.value for one in here if one.measure == name}
            by_method: dict[int, list[tuple[Mark, Estimate]]] = {}
            for arm, value in values.items():
                mark = mark_of(arm, marks)
                if mark.draft_tokens is not None:
                    by_method.setdefault(mark.style, []).append((mark, value))
            series = tuple(tuple(sorted(line, key=lambda p: p[0].draft_tokens or 0)) for line in by_method.values())
            write = tables.writer(name)
            unit = MEASURES[name].unit if name in MEASURES else ""
            rows = tuple((sanitise(arm), spelling.with_interval(value, write)) for arm, value in values.items())
            base = values.get(analysis.arms[0]) if analysis.arms else None
            panels.append(ThroughputPanel(sanitise(load), sentences.measure(name), unit, base, series, rows))
    return panels


def explained(analysis: Analysis, verdict: Verdict, marks: dict[str, Mark]) -> list[ExplainedRow]:
    rows = []
    for load in (name for name in analysis.loads if name not in analysis.paced_loads):
        steps = {one.arm: one.tokens_per_step for one in analysis.curves if one.load == load and one.class_name is None}
        for one in speed_contrasts(analysis, verdict, load, None)[1]:
            tokens = steps.get(one.candidate, Undefined("no acceptance recorded"))
            both = isinstance(tokens, Interval) and isinstance(one.ratio, Interval) and one.ratio.estimate > 0
            cost = spelling.plain(tokens.estimate / one.ratio.estimate, 2) if both else spelling.NOT_MEASURED  # type: ignore[union-attr]
            rows.append(
                ExplainedRow(
                    mark_of(one.candidate, marks),
                    sanitise(load),
                    tokens,
                    one.ratio,
                    spelling.with_interval(tokens, spelling.plain),
                    spelling.with_interval(one.ratio, spelling.times),
                    spelling.estimate(tokens, spelling.plain),
                    spelling.estimate(one.ratio, spelling.times),
                    cost,
                )
            )
    return rows
