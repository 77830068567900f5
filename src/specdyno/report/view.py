"""What people will read, as text and shapes, before any medium: numbers and reasons become words here only.

Owns `View`, a pure function of records, analysis and verdict; page, terminal and Markdown only lay it out. Estimates
travel next to their text so that charts can draw them. Text that came from outside is already made safe to show as
text; each medium escapes it for its own markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdyno.records.schema import Finding, Severity, StudyRecords
from specdyno.report import (
    acceptance,
    headlines,
    memory,
    precision,
    provenance,
    sentences,
    speed,
    spelling,
    tables,
    traffic,
)
from specdyno.report.marks import Mark, mark_of, marks_of
from specdyno.report.untrusted import sanitise
from specdyno.statistics.analysis import Analysis
from specdyno.verdict.schema import CandidateVerdict, ObjectiveVerdict, Verdict


@dataclass(frozen=True, slots=True)
class GateView:
    name: str
    measure: str
    status: str
    value: str
    threshold: str


@dataclass(frozen=True, slots=True)
class CandidateView:
    mark: Mark
    decision: str
    sentence: str
    gain: str
    row: speed.SpeedRow
    gates: tuple[GateView, ...]


@dataclass(frozen=True, slots=True)
class ObjectiveView:
    name: str
    load: str
    measure: str
    decision: str
    headline: str
    details: tuple[str, ...]
    candidates: tuple[CandidateView, ...]


@dataclass(frozen=True, slots=True)
class FindingView:
    """All findings of one code and severity; each place once, with what was seen there."""

    severity: str
    severity_says: str
    says: str
    do: str
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlockView:
    number: int
    state: str  # complete, incomplete, void
    reason: str
    order: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class View:
    study: str
    outcome: str
    summary: str
    context: tuple[str, ...]  # target, engine, host, moment
    blocks_text: str
    objectives: tuple[ObjectiveView, ...]
    marks: tuple[Mark, ...]
    speed_decides: tuple[speed.SpeedGroup, ...]
    speed_explores: tuple[speed.SpeedGroup, ...]
    curves: tuple[acceptance.CurvePanel, ...]
    throughput: tuple[speed.ThroughputPanel, ...]
    explained: tuple[speed.ExplainedRow, ...]
    ladders: tuple[traffic.LadderPanel, ...]
    crossovers: tables.Table
    crossing_says: tuple[str, ...]
    phases: tuple[tables.Table, ...]
    arrivals: tuple[tables.Table, ...]
    power: tuple[precision.PowerPanel, ...]
    precision: tuple[tables.Table, ...]
    figures: tuple[tables.Table, ...]
    findings: tuple[FindingView, ...]
    settings: tables.Table
    blocks: tuple[BlockView, ...]
    boots: tables.Table
    memory: tables.Table
    provenance: tuple[tables.Table, ...]
    plan: tables.Table
    command: str
    words: tuple[tuple[str, str], ...]


def build(records: StudyRecords, analysis: Analysis, verdict: Verdict) -> View:
    """Everything that the report says, in the order of a page. Pure and deterministic."""
    known = marks_of(records, analysis)
    return View(
        study=sanitise(verdict.study),
        outcome=verdict.outcome.value,
        summary=headlines.summary(verdict),
        context=provenance.context(records),
        blocks_text=_blocks_text(verdict),
        objectives=tuple(_objective(part, verdict, analysis=analysis, marks=known) for part in verdict.objectives),
        marks=tuple(known.values()),
        speed_decides=tuple(speed.deciding_groups(analysis, verdict, known)),
        speed_explores=tuple(speed.exploratory_groups(analysis, verdict, known)),
        curves=tuple(acceptance.curve_panels(analysis, known)),
        throughput=tuple(speed.throughput(analysis, verdict, known)),
        explained=tuple(speed.explained(analysis, verdict, known)),
        ladders=tuple(traffic.ladder_panels(analysis, known)),
        crossovers=traffic.crossovers(analysis),
        crossing_says=traffic.crossing_sentences(analysis),
        phases=traffic.phases(analysis),
        arrivals=traffic.arrivals(analysis),
        power=precision.power_panels(verdict),
        precision=precision.tables(analysis, verdict),
        figures=tables.figures(analysis),
        findings=findings((*verdict.findings, *analysis.findings)),
        settings=tables.settings(analysis),
        blocks=tuple(_blocks(analysis, known)),
        boots=provenance.boots(records),
        memory=memory.of_study(records),
        provenance=provenance.origins(records, verdict.fingerprint),
        plan=provenance.plan(records.header),
        command=provenance.command(records.header),
        words=sentences.WORDS,
    )


def findings(all_of_them: Sequence[Finding]) -> tuple[FindingView, ...]:
    """Findings grouped by code and severity, the gravest first."""
    grouped: dict[tuple[Severity, str], list[Finding]] = {}
    for finding in dict.fromkeys(all_of_them):
        grouped.setdefault((finding.severity, finding.code.value), []).append(finding)
    gravest_first = list(reversed(Severity))
    views = []
    for (severity, _), group in sorted(grouped.items(), key=lambda item: gravest_first.index(item[0][0])):
        advice = sentences.FINDINGS[group[0].code]
        places = (sanitise(": ".join(part for part in (one.place, one.detail) if part)) for one in group)
        views.append(
            FindingView(
                severity.value,
                sentences.SEVERITIES[severity],
                advice.says,
                advice.do,
                tuple(dict.fromkeys(place for place in places if place)),
            )
        )
    return tuple(views)


def _blocks_text(verdict: Verdict) -> str:
    text = f"{spelling.plural(verdict.blocks_complete, 'complete block')}"
    if verdict.blocks_incomplete:
        text += f", {verdict.blocks_incomplete} incomplete or void"
    noun = "block" if verdict.looks == (1,) else "blocks"
    looks = ", ".join(str(look) for look in verdict.looks)
    return f"{text}; looks at {looks} {noun}." if looks else f"{text}."


def _objective(
    part: ObjectiveVerdict, verdict: Verdict, *, analysis: Analysis, marks: dict[str, Mark]
) -> ObjectiveView:
    return ObjectiveView(
        name=sanitise(part.objective),
        load=sanitise(part.load),
        measure=sentences.measure(part.measure),
        decision=part.decision.value,
        headline=headlines.headline(part, verdict),
        details=(*headlines.details(part, verdict), *traffic.reach(part, analysis)),
        candidates=tuple(_candidate(one, part, verdict=verdict, marks=marks) for one in part.candidates),
    )


def _candidate(
    one: CandidateVerdict, part: ObjectiveVerdict, *, verdict: Verdict, marks: dict[str, Mark]
) -> CandidateView:
    gates = tuple(
        GateView(
            sentences.gate(gate.name),
            sentences.measure(gate.measure),
            sentences.GATE_STATUSES[gate.status],
            headlines.gate_value(gate),
            headlines.gate_threshold(gate),
        )
        for gate in one.gates
    )
    primary, mark = headlines.primary(one), mark_of(one.candidate, marks)
    ratio = primary.ratio if primary is not None else speed.NO_RESULT
    return CandidateView(
        mark=mark,
        decision=one.decision.value,
        sentence=headlines.candidate_sentence(one, part, verdict),
        gain=headlines.gain(one),
        row=speed.speed_row(mark, ratio, one.decision.value),
        gates=gates,
    )


def _blocks(analysis: Analysis, marks: dict[str, Mark]) -> list[BlockView]:
    return [
        BlockView(
            block.index + 1,
            "void" if block.void else "complete" if block.complete else "incomplete",
            sanitise(block.reason),
            tuple(mark_of(name, marks) for name in block.order),
        )
        for block in analysis.blocks
    ]
