"""What ladders, open loops and agent sessions show: crossovers, rates and queues, and each phase and turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from specdyno.report import spelling
from specdyno.report.marks import Mark, mark_of
from specdyno.report.tables import DASH, MIXED, Cell, Table, figure, table
from specdyno.report.untrusted import sanitise
from specdyno.statistics.analysis import Analysis, Ladder, OpenWindow, PhaseSummary, Trend
from specdyno.statistics.intervals import Estimate, Interval
from specdyno.statistics.measures import LARGEST_RATE
from specdyno.statistics.phases import LATE
from specdyno.verdict.schema import Decision, ObjectiveVerdict
from specdyno.verdict.settings import ladders_of

TRENDS = {
    Trend.CROSSES: "pays below, loses above",
    Trend.PAYS: "pays at every rung",
    Trend.LOSES: "loses at every rung",
    Trend.MIXED: "no single crossover",
    Trend.UNDECIDED: "too few blocks to say",
}


_OPEN = (
    "load", "arm", "boots", "offered per s", "sent per s", "achieved per s", "sends late, 95 %", "in flight",
    "queue grew", "met the service level",
)  # fmt: skip
_SEARCH = ("load", "arm", "block", "rates tried, in order (share that met the service level)", "largest rate")


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
        (one.ladder, one.class_name or MIXED, one.candidate, _trend(one), _shown(one.pays_up_to), _crossing(one))
        for one in analysis.ladders
    ]
    columns = ("ladder", "class", "candidate", "over the ladder", "shown to pay up to", "stops paying at")
    return table("Where speculation stops paying (time per job, requests in flight)", columns, rows)


def crossing_sentences(analysis: Analysis) -> tuple[str, ...]:
    """One line per candidate for the whole traffic of each ladder, for the terminal."""
    return tuple(
        f"{sanitise(one.candidate)} over {sanitise(one.ladder)}: {_trend(one)}"
        + (f", at {_crossing(one).text} in flight ({_crossing(one).small})" if one.crossover is not None else "")
        for one in analysis.ladders
        if one.class_name is None
    )


def reach(objective: ObjectiveVerdict, analysis: Analysis) -> tuple[str, ...]:
    """How far a promote reaches over the ladders of the plan: of all traffic, or of the classes of its scope."""
    chosen = next((part for part in objective.candidates if part.candidate == objective.recommended), None)
    if objective.decision is not Decision.PROMOTE or chosen is None:
        return ()
    classes = chosen.scope.classes if chosen.scope is not None and chosen.scope.classes else None
    found = ladders_of(chosen.candidate, classes, analysis)
    names = (f"{one.ladder}, class {one.class_name}" if one.class_name else one.ladder for one in found)
    return tuple(f"Over {sanitise(name)}: {_range_of(one)}." for name, one in zip(names, found, strict=True))


def _range_of(one: Ladder) -> str:
    """Up to which concurrency it is shown to pay, and what is known above."""
    if one.pays_up_to is None:
        return "not shown to pay at any number of requests in flight"
    beyond = "above that it is not" if one.pays_up_to < one.rungs[-1].concurrency else "nothing was measured above"
    return f"shown to pay up to {one.pays_up_to} in flight, {beyond}"


def _trend(one: Ladder) -> str:
    """What the means say, and whether the interval of every rung says so too."""
    ratios = [rung.contrast.ratio for rung in one.rungs]
    sure = [isinstance(ratio, Interval) and not ratio.low <= 1 <= ratio.high for ratio in ratios]
    if one.trend in (Trend.PAYS, Trend.LOSES) and not all(sure):
        return f"{TRENDS[one.trend]} in the mean, not shown at {sure.count(False)} of {len(sure)}"
    return TRENDS[one.trend]


def _shown(rung: int | None) -> object:
    return DASH if rung is None else rung


def _crossing(one: Ladder) -> Cell:
    if one.crossover is None:
        return Cell(DASH)
    low = "below the first rung" if one.low is None else f"{one.low:.1f}"
    high = "beyond the last rung" if one.high is None else f"{one.high:.1f}"
    return Cell(f"{one.crossover:.1f}", f"{low} to {high} (95 %)")


def phases(analysis: Analysis) -> tuple[Table, ...]:
    """Agent sessions by phase, then by turn, for each load; none where no session was measured."""
    found = []
    for load in dict.fromkeys(one.load for one in analysis.phases):
        mine = [one for one in analysis.phases if one.load == load]
        for what, chosen in (
            ("phase", [one for one in mine if one.phase is not None]),
            ("turn", [one for one in mine if one.turn is not None]),
        ):
            columns = (
                what, "arm", "turns", "output tokens", "TTFT", "TPOT", "time per turn", "prompt from the prefix cache",
                "mean accepted length", "acceptance rate",
            )  # fmt: skip
            if chosen:
                ordered = sorted(chosen, key=lambda one: (one.turn or 0, _first(chosen, one)))
                title = f"Agent sessions by {what}, load {load}"
                found.append(table(title, columns, [_phase_row(one) for one in ordered]))
    return tuple(found)


def arrivals(analysis: Analysis) -> tuple[Table, ...]:
    """What open loops were offered and what came of it, then the steps of each search; none without an open loop."""
    loads = [one for one in analysis.open_windows if not one.search]
    steps = [one for one in analysis.open_windows if one.search]
    found = []
    if loads:
        cells = dict.fromkeys((one.load, one.arm) for one in loads)
        rows = [_arrival_row([one for one in loads if (one.load, one.arm) == cell]) for cell in cells]
        found.append(table("Open loops: means over boots", _OPEN, rows))
    if steps:
        boots = dict.fromkeys((one.load, one.arm, one.block) for one in steps)
        rows = [_search_row([o for o in steps if (o.load, o.arm, o.block) == boot], analysis) for boot in boots]
        found.append(table("Searches for the largest rate, requests per second", _SEARCH, rows))
    return tuple(found)


def _arrival_row(boots: Sequence[OpenWindow]) -> tuple[object, ...]:
    """Means over boots where every boot has the value; the lateness is the largest."""
    first, grew = boots[0], Counter(one.saturated for one in boots)
    unknown = f", not known in {grew['unknown']}" if grew["unknown"] else ""
    rates = (_mean_of([getattr(one, f"{what}_per_s") for one in boots]) for what in ("offered", "sent", "achieved"))
    return (
        first.load,
        first.arm,
        len(boots),
        *(spelling.plain(rate) for rate in rates),
        spelling.seconds(max(one.late_p95_s for one in boots)),
        spelling.plain(_mean_of([one.in_flight for one in boots])),
        f"in {grew['yes']} of {len(boots)}{unknown}",
        DASH if first.attained is None else spelling.share(_mean_of([one.attained for one in boots])),
    )


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _search_row(steps: Sequence[OpenWindow], analysis: Analysis) -> tuple[object, ...]:
    first = steps[0]
    tried = (
        f"{spelling.plain(one.planned_per_s)} {'carried' if one.carried else 'not carried'} "
        f"({spelling.share(one.attained, 0)}{', queue grew' if one.saturated == 'yes' else ''})"
        for one in steps
    )
    return first.load, first.arm, first.block + 1, "; ".join(tried), _edge(first, analysis)


def _edge(step: OpenWindow, analysis: Analysis) -> str:
    """The largest rate of one boot, or what is known of it."""
    for one in analysis.levels:
        if (one.arm, one.load, one.measure, one.class_name) == (step.arm, step.load, LARGEST_RATE, None):
            known, bounds = dict(one.by_block), {block: sides for block, *sides in one.bounds}
            if step.block in known:
                return spelling.plain(known[step.block])
            low, high = bounds.get(step.block, (None, None))
            if low is not None:
                return f"above {spelling.plain(low)}"
            if high is not None:
                return f"below {spelling.plain(high)}"
    return spelling.NOT_MEASURED


def _first(chosen: list[PhaseSummary], one: PhaseSummary) -> tuple[int, int]:
    """The place of a phase by its first appearance, then of the arm."""
    names = list(dict.fromkeys(other.phase for other in chosen))
    arms = list(dict.fromkeys(other.arm for other in chosen))
    return names.index(one.phase), arms.index(one.arm)


def _accepted(value: Estimate, write: spelling.Writer) -> Cell:
    """As `figure`, without the level: it stands in the note above, and the table is wide."""
    if not isinstance(value, Interval):
        return figure(value, write)
    return Cell(write(value.estimate), spelling.bounds(value, write))


def _phase_row(one: PhaseSummary) -> tuple[object, ...]:
    turn = None if one.turn is None else f"{one.turn + 1} and later" if one.turn == LATE else one.turn + 1
    failed = one.requests - one.done
    return (
        one.phase or turn,
        one.arm,
        Cell(spelling.count(one.requests), f"{spelling.count(failed)} failed" if failed else ""),
        spelling.count(one.output_tokens),
        *(spelling.seconds(value) for value in (one.ttft_s, one.tpot_s, one.e2e_s)),
        spelling.share(one.cached_share),
        *(
            Cell(DASH) if not one.joint else _accepted(value, write)
            for value, write in ((one.mean_accepted_length, spelling.plain), (one.rate, spelling.share))
        ),
    )
