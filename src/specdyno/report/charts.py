"""Charts as SVG text, written by hand: no library, no script, themed by the page's custom properties.

Strips are one row high and as wide as their cell (positions in percent, so that lines and letters keep their size on a
narrow screen); panels are small multiples with a view box. Colour says the method, shape says it again. Every chart has
a title and a description, every mark a tooltip, and the page puts the same numbers in a table beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from specdyno.report import spelling
from specdyno.report.acceptance import CurveLine, CurvePanel
from specdyno.report.axes import Axis, draft_axis, linear_ticks, ratio_axis, ratio_ticks, value_axis
from specdyno.report.marks import Mark
from specdyno.report.precision import PowerPanel
from specdyno.report.speed import ExplainedRow, SpeedGroup, SpeedRow, ThroughputPanel
from specdyno.statistics.intervals import Interval

STRIP = 30
MOST_LINES = 5
WIDTH, HEIGHT = 340, 236
LEFT, RIGHT, TOP, BOTTOM = 44, 304, 12, 200

_PATHS = {
    "circle": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    "square": "M-4.5 -4.5h9v9h-9z",
    "diamond": "M0 -6L6 0L0 6L-6 0z",
    "triangle": "M0 -5.8L5.6 4.4H-5.6z",
    "cross": "M-5 -2.8L-2.8 -5L0 -2.2L2.8 -5L5 -2.8L2.2 0L5 2.8L2.8 5L0 2.2L-2.8 5L-5 2.8L-2.2 0z",
    "plus": "M-1.8 -5.5h3.6v3.7h3.7v3.6h-3.7v3.7h-3.6v-3.7h-3.7v-3.6h3.7z",
    "star": "M0 -6.2L1.8 -2L6.2 -1.8L2.8 1L4 5.4L0 2.9L-4 5.4L-2.8 1L-6.2 -1.8L-1.8 -2z",
    "bar": "M-1.6 -6h3.2v12h-3.2z",
}


def swatch(mark: Mark) -> str:
    """The mark of an arm, for legends and tables."""
    path = f'<path class="mark" d="{_PATHS[mark.shape]}"/>'
    return f'<svg class="swatch m{mark.style}" viewBox="-8 -8 16 16" aria-hidden="true">{path}</svg>'


def forest_axis(groups: tuple[SpeedGroup, ...]) -> Axis:
    """One scale for all speed-ups of a page, so that any two rows can be compared by eye."""
    marks = [1.0, *(1 + group.minimum_gain for group in groups if group.minimum_gain is not None)]
    return ratio_axis((row.ratio for group in groups for row in group.rows), marks)


def strip_axis(axis: Axis, *, minimum_gain: float | None = None) -> str:
    """The ticks that stand below a column of strips."""
    parts = ['<line class="axis" x1="0" x2="100%" y1="0.5" y2="0.5"/>']
    for tick in axis.ticks:
        place = axis.at(tick)
        anchor = "start" if place < 4 else "end" if place > 96 else "middle"
        parts.append(f'<line class="axis" x1="{place}%" x2="{place}%" y1="0" y2="5"/>')
        parts.append(f'<text x="{place}%" y="17" text-anchor="{anchor}">{tick:g}{spelling.TIMES}</text>')
    note = "1\u00d7 is the baseline"
    if minimum_gain is not None:
        note += f"; the dashed line is the minimum gain, {spelling.exact_share(minimum_gain)}"
    return _strip("".join(parts), f"Speed-up, logarithmic. {note}.", height=22)


def forest_strip(row: SpeedRow, axis: Axis, *, minimum_gain: float | None) -> str:
    """One speed-up with its interval. Ends beyond the axis carry an arrow."""
    body = _guides(axis, minimum_gain)
    says = f"{row.mark.arm}: {row.change}"
    if isinstance(row.ratio, Interval):
        says += f", {row.level} {row.interval}, {row.units}"
        body += _whisker(row.ratio, axis) + _placed(axis.at(row.ratio.estimate), row.mark)
    return _strip(f'<g class="m{row.mark.style}">{body}</g>', says)


def explained_axis(rows: tuple[ExplainedRow, ...]) -> Axis:
    return ratio_axis([part for row in rows for part in (row.tokens_per_step, row.speed_up)])


def explained_strip(row: ExplainedRow, axis: Axis) -> str:
    """Tokens per step (open mark) and the speed-up (filled mark); the way between them is the cost of a step."""
    body = _guides(axis, None)
    both = [part for part in (row.tokens_per_step, row.speed_up) if isinstance(part, Interval)]
    if len(both) == 2:
        first, second = (axis.at(part.estimate) for part in both)
        body += f'<line class="way" x1="{first}%" x2="{second}%" y1="15" y2="15"/>'
    if isinstance(row.tokens_per_step, Interval):
        body += _placed(axis.at(row.tokens_per_step.estimate), row.mark, kind="mark open")
    if isinstance(row.speed_up, Interval):
        body += _placed(axis.at(row.speed_up.estimate), row.mark)
    says = f"{row.mark.arm}: tokens per step {row.tokens_text}; speed-up {row.speed_text}"
    return _strip(f'<g class="m{row.mark.style}">{body}</g>', says)


def curve_panel(panel: CurvePanel, *, longest: int) -> str:
    """Joint acceptance over position, one line per arm, whiskers for intervals. `longest` is the page's largest K."""
    across = draft_axis(longest, first=1, start=LEFT, end=RIGHT)
    up = Axis(0.0, 1.0, BOTTOM, TOP, (0.0, 0.25, 0.5, 0.75, 1.0))
    body = _frame(across, up, [spelling.exact_share(tick) for tick in up.ticks], "position in the draft")
    ends = []
    drawn = longest_of_each_method(panel.lines)
    apart = _apart(across, len(drawn))
    for index, line in enumerate(drawn):
        dodge = apart * (index - (len(drawn) - 1) / 2)
        points = [
            (across.at(place) + dodge, value, spelling.with_interval(value, spelling.share))
            for place, value in enumerate(line.joint, start=1)
            if isinstance(value, Interval)
        ]
        body += _line(points, up, line.mark, "position")
        if points:
            ends.append((points[-1][0], up.at(points[-1][1].estimate), line.mark))
    body += _end_labels(ends)
    says = f"Lines: {', '.join(line.mark.arm for line in drawn)}. The table below has every number."
    return _panel(body, f"Joint acceptance by position: {panel.title}, load {panel.load}", says)


def longest_of_each_method(lines: tuple[CurveLine, ...]) -> tuple[CurveLine, ...]:
    """All lines while they can be told apart, else the longest draft of each method: the shorter ones lie upon it."""
    if len(lines) <= MOST_LINES:
        return lines
    longest: dict[str | None, CurveLine] = {}
    for line in lines:
        kept = longest.get(line.mark.method)
        if kept is None or len(line.joint) > len(kept.joint):
            longest[line.mark.method] = line
    return tuple(longest.values())


def _apart(across: Axis, lines: int) -> float:
    """Points of several lines at one place stand side by side, within a third of the way to the next place."""
    step = across.at(2) - across.at(1)
    return min(4.0, step / 3 / max(1, lines - 1))


def throughput_panel(panel: ThroughputPanel) -> str:
    """A rate over draft length; the band is the baseline with its interval."""
    values = [panel.baseline, *(value for line in panel.series for _, value in line)]
    if not any(isinstance(value, Interval) for value in values):
        return ""
    longest = max((mark.draft_tokens or 0 for line in panel.series for mark, _ in line), default=1)
    across = draft_axis(longest, first=0, start=LEFT, end=RIGHT)
    up = value_axis(values, start=BOTTOM, end=TOP)
    body = _frame(across, up, [f"{tick:g}" for tick in up.ticks], "draft tokens, K (0: baseline)")
    if isinstance(panel.baseline, Interval):
        body += _band(panel.baseline, up, across.at(0))
    ends = []
    apart = _apart(across, len(panel.series))
    for index, line in enumerate(panel.series):
        dodge = apart * (index - (len(panel.series) - 1) / 2)
        points = [
            (
                across.at(mark.draft_tokens or 0) + dodge,
                value,
                f"{mark.arm}: {spelling.with_interval(value, spelling.plain)}",
            )
            for mark, value in line
            if isinstance(value, Interval)
        ]
        if points:
            body += _line(points, up, line[0][0], "")
            ends.append((points[-1][0], up.at(points[-1][1].estimate), line[-1][0]))
    body += _end_labels(ends)
    says = "; ".join(f"{arm} {text}" for arm, text in panel.rows)
    return _panel(body, f"{panel.measure} over draft length, load {panel.load}", says)


def power_panel(panel: PowerPanel) -> str:
    """The chance of a promote over the true gain; the dashed line is 80 %."""
    gains = [point.true_gain for point in panel.points]
    ticks = linear_ticks(gains[0], gains[-1])
    across = Axis(gains[0], gains[-1], LEFT + 4, RIGHT, ticks)
    up = Axis(0.0, 1.0, BOTTOM, TOP, (0.0, 0.25, 0.5, 0.75, 1.0))
    body = _frame(across, up, [spelling.exact_share(tick) for tick in up.ticks], "true gain", per_cent=True)
    body += f'<line class="minimum" x1="{LEFT}" x2="{RIGHT}" y1="{up.at(0.8)}" y2="{up.at(0.8)}"/>'
    path = " ".join(f"{across.at(point.true_gain)},{up.at(point.promote)}" for point in panel.points)
    body += f'<polyline class="line" points="{path}"/>'
    for point, (gain, chance, blocks) in zip(panel.points, panel.rows, strict=True):
        says = f"true gain {gain}: promoted in {chance}, {blocks} blocks on average"
        x, y = across.at(point.true_gain), up.at(point.promote)
        body += f'<g><title>{escape(says)}</title><circle class="mark" cx="{x}" cy="{y}" r="3.5"/></g>'
    return _panel(f'<g class="m0">{body}</g>', f"Chance of a promote over the true gain: {panel.title}", panel.says)


def sweep_panel(
    lines: Sequence[tuple[Mark, Sequence[tuple[int, float, bool]]]],
    title: str,
    says: str,
    *,
    longest: int,
    span: tuple[float, float],
) -> str:
    """Single numbers over draft length, no intervals: (K, speed-up, whether the draft was trained that far)."""
    across = draft_axis(longest, first=0, start=LEFT, end=RIGHT)
    low, high = min(span[0], 1.0) * 0.95, max(span[1], 1.0) * 1.03
    up = Axis(low, high, BOTTOM, TOP, ratio_ticks(low, high), ratio=True)
    body = _frame(across, up, [f"{tick:g}{spelling.TIMES}" for tick in up.ticks], "draft tokens, K")
    body += f'<line class="one" x1="{LEFT}" x2="{RIGHT}" y1="{up.at(1.0)}" y2="{up.at(1.0)}"/>'
    for mark, points in lines:
        places = [(across.at(k), up.at(value)) for k, value, _ in points]
        path = " ".join(f"{x:g},{y}" for x, y in places)
        parts = [f'<polyline class="line" points="{path}"/>']
        for (x, y), (k, value, trained) in zip(places, points, strict=True):
            tip = f"{mark.arm}, K {k}: {value:g}{spelling.TIMES}{'' if trained else ', beyond its training'}"
            kind = "mark" if trained else "mark open"
            shape = f'<path class="{kind}" transform="translate({x:g} {y}) scale(0.8)" d="{_PATHS[mark.shape]}"/>'
            parts.append(f"<g><title>{escape(tip)}</title>{shape}</g>")
        body += f'<g class="m{mark.style}">{"".join(parts)}</g>'
    return _panel(body, title, says)


def _strip(body: str, says: str, *, height: int = STRIP) -> str:
    return f'<svg class="strip" role="img" width="100%" height="{height}"><title>{escape(says)}</title>{body}</svg>'


def _guides(axis: Axis, minimum_gain: float | None) -> str:
    parts = [
        f'<line class="grid" x1="{axis.at(tick)}%" x2="{axis.at(tick)}%" y1="0" y2="100%"/>'
        for tick in axis.ticks
        if tick != 1
    ]
    one = axis.at(1.0)
    parts.append(f'<line class="one" x1="{one}%" x2="{one}%" y1="0" y2="100%"/>')
    if minimum_gain is not None:
        place = axis.at(1 + minimum_gain)
        parts.append(f'<line class="minimum" x1="{place}%" x2="{place}%" y1="0" y2="100%"/>')
    return "".join(parts)


def _whisker(value: Interval, axis: Axis) -> str:
    low, high, middle = axis.at(value.low), axis.at(value.high), STRIP / 2
    parts = [f'<line class="whisker" x1="{low}%" x2="{high}%" y1="{middle:g}" y2="{middle:g}"/>']
    for inside, place, arrow in (
        (axis.holds(value.low), low, "M6 -4L0 0L6 4"),
        (axis.holds(value.high), high, "M-6 -4L0 0L-6 4"),
    ):
        path = "M0 -4V4" if inside else arrow
        parts.append(f'<svg x="{place}%" y="{middle:g}" overflow="visible"><path class="cap" d="{path}"/></svg>')
    return "".join(parts)


def _placed(place: float, mark: Mark, *, kind: str = "mark") -> str:
    path = _PATHS[mark.shape]
    return f'<svg x="{place}%" y="{STRIP // 2}" overflow="visible"><path class="{kind}" d="{path}"/></svg>'


def _panel(body: str, title: str, says: str) -> str:
    return (
        f'<svg class="panel" role="img" viewBox="0 0 {WIDTH} {HEIGHT}"><title>{escape(title)}</title>'
        f"<desc>{escape(says)}</desc>{body}</svg>"
    )


def _frame(across: Axis, up: Axis, labels: list[str], caption: str, *, per_cent: bool = False) -> str:
    parts = []
    for tick, label in zip(up.ticks, labels, strict=True):
        y = up.at(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:g}" text-anchor="end">{escape(label)}</text>')
    for tick in across.ticks:
        x = across.at(tick)
        parts.append(f'<text x="{x}" y="{BOTTOM + 16}" text-anchor="middle">{_tick(tick, per_cent)}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{RIGHT}" y1="{BOTTOM}" y2="{BOTTOM}"/>')
    middle = (LEFT + RIGHT) / 2
    parts.append(f'<text class="caption" x="{middle:g}" y="{HEIGHT - 4}" text-anchor="middle">{escape(caption)}</text>')
    return "".join(parts)


def _tick(value: float, per_cent: bool) -> str:  # noqa: FBT001 - one of two spellings
    return escape(spelling.exact_share(value)) if per_cent else f"{value:g}"


def _line(points: list[tuple[float, Interval, str]], up: Axis, mark: Mark, unit: str) -> str:
    path = " ".join(f"{x:g},{up.at(value.estimate)}" for x, value, _ in points)
    parts = [f'<polyline class="line" points="{path}"/>']
    for place, (x, value, text) in enumerate(points, start=1):
        says = f"{mark.arm}, {unit} {place}: {text}" if unit else text
        low, high, y = up.at(value.low), up.at(value.high), up.at(value.estimate)
        parts.append(
            f"<g><title>{escape(says)}</title>"
            f'<line class="whisker" x1="{x:g}" x2="{x:g}" y1="{low}" y2="{high}"/>'
            f'<path class="mark" transform="translate({x:g} {y}) scale(0.8)" d="{_PATHS[mark.shape]}"/></g>'
        )
    return f'<g class="m{mark.style}">{"".join(parts)}</g>'


def _band(value: Interval, up: Axis, x: float) -> str:
    top, bottom, y = up.at(value.high), up.at(value.low), up.at(value.estimate)
    says = f"baseline: {spelling.with_interval(value, spelling.plain)}"
    return (
        f"<g><title>{escape(says)}</title>"
        f'<rect class="band" x="{LEFT}" width="{RIGHT - LEFT}" y="{top}" height="{max(1.0, bottom - top):g}"/>'
        f'<line class="one" x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}"/>'
        f'<g class="m0"><line class="whisker" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>'
        f'<path class="mark" transform="translate({x} {y}) scale(0.8)" d="{_PATHS["bar"]}"/></g>'
        f'<text class="caption base" x="{LEFT + 2}" y="{top - 4:g}">baseline</text></g>'
    )


def _end_labels(ends: list[tuple[float, float, Mark]], *, gap: float = 11.0) -> str:
    """The draft length beside the last point of each line; labels that would overlap are moved apart."""
    parts: list[str] = []
    taken: list[tuple[float, float]] = []
    for x, y, mark in sorted(ends, key=lambda end: end[1]):
        while any(abs(x - other_x) < 28 and y - other_y < gap for other_x, other_y in taken):
            y += 1  # noqa: PLW2901 - moved down until it is free
        taken.append((x, y))
        label = mark.arm.removeprefix(f"{mark.method}-")
        parts.append(f'<text class="end m{mark.style}" x="{x + 4:g}" y="{y - 7:g}">{escape(label)}</text>')
    return "".join(parts)
