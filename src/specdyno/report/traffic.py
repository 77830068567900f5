"""What ladders and agent sessions show: where speculation stops paying, and what each phase and turn is like."""

from __future__ import annotations

from dataclasses import dataclass

from specdyno.report import spelling
from specdyno.report.marks import Mark, mark_of
from specdyno.report.tables import DASH, MIXED, Cell, Table, table
from specdyno.report.untrusted import sanitise
from specdyno.statistics.analysis import Analysis, Ladder, PhaseSummary, Trend
from specdyno.statistics.intervals import Estimate
from specdyno.statistics.phases import LATE

TRENDS = {
    Trend.CROSSES: "pays below, loses above",
    Trend.PAYS: "pays at every rung",
    Trend.LOSES: "loses at every rung",
    Trend.MIXED: "no single crossover",
    Trend.UNDECIDED: "too few blocks to say",
}


@dataclass(frozen=True, slots=True)
class LadderLine:
    mark: Mark
    points: tuple[tuple[int, Estimate], ...]  # concurrency, ratio
    crossover: float | None


@dataclass(frozen=True, slots=True)
class LadderPanel:
    ladder: str
    title: str
    lines: tuple[LadderLine, ...]


def ladder_panels(analysis: Analysis, marks: dict[str, Mark]) -> list[LadderPanel]:
    """One panel per ladder and class, the whole traffic first."""
    panels: dict[tuple[str, str | None], list[LadderLine]] = {}
    for one in analysis.ladders:
        points = tuple((rung.concurrency, rung.contrast.ratio) for rung in one.rungs)
        line = LadderLine(mark_of(one.candidate, marks), points, one.crossover)
        panels.setdefault((one.ladder, one.class_name), []).append(line)
    order = (None, *analysis.classes)
    found = sorted(panels.items(), key=lambda item: (item[0][0], order.index(item[0][1])))
    return [
        LadderPanel(sanitise(ladder), sanitise(name) if name else "all classes, mixed", tuple(lines))
        for (ladder, name), lines in found
    ]


def crossovers(analysis: Analysis) -> Table:
    """Above which concurrency speculation stops paying, per candidate and class."""
    rows: list[tuple[object, ...]] = [
        (one.ladder, one.class_name or MIXED, one.candidate, TRENDS[one.trend], _shown(one.pays_up_to), _crossing(one))
        for one in analysis.ladders
    ]
    columns = ("ladder", "class", "candidate", "over the ladder", "shown to pay up to", "stops paying at")
    return table("Where speculation stops paying (time per job, requests in flight)", columns, rows)


def crossing_sentences(analysis: Analysis) -> tuple[str, ...]:
    """One line per candidate for the whole traffic of each ladder, for the terminal."""
    return tuple(
        f"{sanitise(one.candidate)} over {sanitise(one.ladder)}: {TRENDS[one.trend]}"
        + (f", at {_crossing(one).text} in flight ({_crossing(one).small})" if one.crossover is not None else "")
        for one in analysis.ladders
        if one.class_name is None
    )


def _shown(rung: int | None) -> object:
    return DASH if rung is None else rung


def _crossing(one: Ladder) -> Cell:
    if one.crossover is None:
        return Cell(DASH)
    low = "below the first rung" if one.low is None else f"{one.low:.1f}"
    high = "beyond the last rung" if one.high is None else f"{one.high:.1f}"
    return Cell(f"{one.crossover:.1f}", f"{low} to {high} (95 %)")


def phases(analysis: Analysis) -> tuple[Table, ...]:
    """Agent sessions by phase, then by turn; none where no session was measured."""
    found = []
    for title, chosen in (
        ("Agent sessions by phase", [one for one in analysis.phases if one.phase is not None]),
        ("Agent sessions by turn", [one for one in analysis.phases if one.turn is not None]),
    ):
        if chosen:
            what = "phase" if chosen[0].phase is not None else "turn"
            columns = (
                "load", what, "arm", "turns", "failed", "output tokens", "TTFT", "TPOT", "time per turn",
                "prompt from the prefix cache", "mean accepted length",
            )  # fmt: skip
            ordered = sorted(chosen, key=lambda one: (one.load, one.turn or 0, _first(chosen, one)))
            found.append(table(title, columns, [_phase_row(one) for one in ordered]))
    return tuple(found)


def _first(chosen: list[PhaseSummary], one: PhaseSummary) -> tuple[int, int]:
    """The place of a phase by its first appearance, then of the arm."""
    names = list(dict.fromkeys(other.phase for other in chosen))
    arms = list(dict.fromkeys(other.arm for other in chosen))
    return names.index(one.phase), arms.index(one.arm)


def _phase_row(one: PhaseSummary) -> tuple[object, ...]:
    turn = None if one.turn is None else f"{one.turn + 1} and later" if one.turn == LATE else one.turn + 1
    return (
        one.load,
        one.phase or turn,
        one.arm,
        spelling.count(one.requests),
        spelling.count(one.requests - one.done),
        spelling.count(one.output_tokens),
        *(spelling.seconds(value) for value in (one.ttft_s, one.tpot_s, one.e2e_s)),
        spelling.share(one.cached_share),
        spelling.plain(one.mean_accepted_length),
    )
