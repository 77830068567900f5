"""Charts as SVG text, written by hand: no library, no script, themed by the page's custom properties.

Strips are one row high and as wide as their cell (positions in percent, so that lines and letters keep their size on a
narrow screen); panels are small multiples with a view box. Colour says the method, shape says it again. Every chart has
a title and a description, every mark a tooltip, and the page puts the same numbers in a table beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from specdyno.report import spelling
from specdyno.report.acceptance import CurveLine, CurvePanel
from specdyno.report.axes import Axis, draft_axis, linear_ticks, ratio_axis, ratio_ticks, value_axis
from specdyno.report.marks import Mark
from specdyno.report.precision import PowerPanel
from specdyno.report.speed import ExplainedRow, SpeedGroup, SpeedRow, ThroughputPanel
from specdyno.report.svg import (
    BOTTOM,
    LEFT,
    PATHS,
    RIGHT,
    TOP,
    apart,
    end_labels,
    frame,
    line_of,
    panel_of,
    placed,
    strip,
    swatch,
    whisker,
)
from specdyno.report.traffic import LadderPanel
from specdyno.statistics.intervals import Interval

__all__ = ["swatch"]

MOST_LINES = 5


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
    return strip("".join(parts), f"Speed-up, logarithmic. {note}.", height=22)


def forest_strip(row: SpeedRow, axis: Axis, *, minimum_gain: float | None) -> str:
    """One speed-up with its interval. Ends beyond the axis carry an arrow."""
    body = _guides(axis, minimum_gain)
    says = f"{row.mark.arm}: {row.change}"
    if isinstance(row.ratio, Interval):
        says += f", {row.level} {row.interval}, {row.units}"
        body += whisker(row.ratio, axis) + placed(axis.at(row.ratio.estimate), row.mark)
    return strip(f'<g class="m{row.mark.style}">{body}</g>', says)


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
        body += placed(axis.at(row.tokens_per_step.estimate), row.mark, kind="mark open")
    if isinstance(row.speed_up, Interval):
        body += placed(axis.at(row.speed_up.estimate), row.mark)
    says = f"{row.mark.arm}: tokens per step {row.tokens_text}; speed-up {row.speed_text}"
    return strip(f'<g class="m{row.mark.style}">{body}</g>', says)


def curve_panel(panel: CurvePanel, *, longest: int) -> str:
    """Joint acceptance over position, one line per arm, whiskers for intervals. `longest` is the page's largest K."""
    across = draft_axis(longest, first=1, start=LEFT, end=RIGHT)
    up = Axis(0.0, 1.0, BOTTOM, TOP, (0.0, 0.25, 0.5, 0.75, 1.0))
    body = frame(across, up, [spelling.exact_share(tick) for tick in up.ticks], "position in the draft")
    ends = []
    drawn = longest_of_each_method(panel.lines)
    step = apart(across, len(drawn))
    for index, line in enumerate(drawn):
        dodge = step * (index - (len(drawn) - 1) / 2)
        points = [
            (across.at(place) + dodge, value, spelling.with_interval(value, spelling.share))
            for place, value in enumerate(line.joint, start=1)
            if isinstance(value, Interval)
        ]
        body += line_of(points, up, line.mark, "position")
        if points:
            ends.append((points[-1][0], up.at(points[-1][1].estimate), line.mark))
    body += end_labels(ends)
    says = f"Lines: {', '.join(line.mark.arm for line in drawn)}. The table below has every number."
    return panel_of(body, f"Joint acceptance by position: {panel.title}, load {panel.load}", says)


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


def throughput_panel(panel: ThroughputPanel) -> str:
    """A rate over draft length; the band is the baseline with its interval."""
    values = [panel.baseline, *(value for line in panel.series for _, value in line)]
    if not any(isinstance(value, Interval) for value in values):
        return ""
    longest = max((mark.draft_tokens or 0 for line in panel.series for mark, _ in line), default=1)
    across = draft_axis(longest, first=0, start=LEFT, end=RIGHT)
    up = value_axis(values, start=BOTTOM, end=TOP)
    body = frame(across, up, [f"{tick:g}" for tick in up.ticks], "draft tokens, K (0: baseline)")
    if isinstance(panel.baseline, Interval):
        body += _band(panel.baseline, up, across.at(0))
    ends = []
    step = apart(across, len(panel.series))
    for index, line in enumerate(panel.series):
        dodge = step * (index - (len(panel.series) - 1) / 2)
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
            body += line_of(points, up, line[0][0], "")
            ends.append((points[-1][0], up.at(points[-1][1].estimate), line[-1][0]))
    body += end_labels(ends)
    says = "; ".join(f"{arm} {text}" for arm, text in panel.rows)
    return panel_of(body, f"{panel.measure} over draft length, load {panel.load}", says)


def ladder_panel(panel: LadderPanel) -> str:
    """Speed-up over concurrency, both logarithmic, one line per candidate; 1x is the baseline."""
    rungs = sorted({n for line in panel.lines for n, _ in line.points})
    ratios = [ratio for line in panel.lines for _, ratio in line.points]
    if not any(isinstance(ratio, Interval) for ratio in ratios):
        return ""
    room = (rungs[-1] / rungs[0]) ** 0.06
    across = Axis(rungs[0] / room, rungs[-1] * room, LEFT, RIGHT, tuple(float(n) for n in rungs), ratio=True)
    percent = ratio_axis(ratios)
    up = replace(percent, start=BOTTOM, end=TOP)
    body = frame(across, up, [f"{tick:g}{spelling.TIMES}" for tick in up.ticks], "requests in flight")
    body += f'<line class="one" x1="{LEFT}" x2="{RIGHT}" y1="{up.at(1.0)}" y2="{up.at(1.0)}"/>'
    ends = []
    step = min(4.0, 12.0 / max(1, len(panel.lines)))
    for index, line in enumerate(panel.lines):
        dodge = step * (index - (len(panel.lines) - 1) / 2)
        points = [
            (
                across.at(n) + dodge,
                ratio,
                f"{line.mark.arm}, {n} in flight: {spelling.with_interval(ratio, spelling.plain)}",
            )
            for n, ratio in line.points
            if isinstance(ratio, Interval)
        ]
        body += line_of(points, up, line.mark, "")
        if points:
            ends.append((points[-1][0], up.at(points[-1][1].estimate), line.mark))
    body += end_labels(ends)
    says = f"Lines: {', '.join(line.mark.arm for line in panel.lines)}. The table below has every crossing."
    return panel_of(body, f"Speed-up over concurrency: {panel.title}, ladder {panel.ladder}", says)


def power_panel(panel: PowerPanel) -> str:
    """The chance of a promote over the true gain; the dashed line is 80 %."""
    gains = [point.true_gain for point in panel.points]
    ticks = linear_ticks(gains[0], gains[-1])
    across = Axis(gains[0], gains[-1], LEFT + 4, RIGHT, ticks)
    up = Axis(0.0, 1.0, BOTTOM, TOP, (0.0, 0.25, 0.5, 0.75, 1.0))
    body = frame(across, up, [spelling.exact_share(tick) for tick in up.ticks], "true gain", per_cent=True)
    body += f'<line class="minimum" x1="{LEFT}" x2="{RIGHT}" y1="{up.at(0.8)}" y2="{up.at(0.8)}"/>'
    path = " ".join(f"{across.at(point.true_gain)},{up.at(point.promote)}" for point in panel.points)
    body += f'<polyline class="line" points="{path}"/>'
    for point, (gain, chance, blocks) in zip(panel.points, panel.rows, strict=True):
        says = f"true gain {gain}: promoted in {chance}, {blocks} blocks on average"
        x, y = across.at(point.true_gain), up.at(point.promote)
        body += f'<g><title>{escape(says)}</title><circle class="mark" cx="{x}" cy="{y}" r="3.5"/></g>'
    return panel_of(f'<g class="m0">{body}</g>', f"Chance of a promote over the true gain: {panel.title}", panel.says)


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
    body = frame(across, up, [f"{tick:g}{spelling.TIMES}" for tick in up.ticks], "draft tokens, K")
    body += f'<line class="one" x1="{LEFT}" x2="{RIGHT}" y1="{up.at(1.0)}" y2="{up.at(1.0)}"/>'
    for mark, points in lines:
        places = [(across.at(k), up.at(value)) for k, value, _ in points]
        path = " ".join(f"{x:g},{y}" for x, y in places)
        parts = [f'<polyline class="line" points="{path}"/>']
        for (x, y), (k, value, trained) in zip(places, points, strict=True):
            tip = f"{mark.arm}, K {k}: {value:g}{spelling.TIMES}{'' if trained else ', beyond its training'}"
            kind = "mark" if trained else "mark open"
            shape = f'<path class="{kind}" transform="translate({x:g} {y}) scale(0.8)" d="{PATHS[mark.shape]}"/>'
            parts.append(f"<g><title>{escape(tip)}</title>{shape}</g>")
        body += f'<g class="m{mark.style}">{"".join(parts)}</g>'
    return panel_of(body, title, says)


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


def _band(value: Interval, up: Axis, x: float) -> str:
    top, bottom, y = up.at(value.high), up.at(value.low), up.at(value.estimate)
    says = f"baseline: {spelling.with_interval(value, spelling.plain)}"
    return (
        f"<g><title>{escape(says)}</title>"
        f'<rect class="band" x="{LEFT}" width="{RIGHT - LEFT}" y="{top}" height="{max(1.0, bottom - top):g}"/>'
        f'<line class="one" x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}"/>'
        f'<g class="m0"><line class="whisker" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>'
        f'<path class="mark" transform="translate({x} {y}) scale(0.8)" d="{PATHS["bar"]}"/></g>'
        f'<text class="caption base" x="{LEFT + 2}" y="{top - 4:g}">baseline</text></g>'
    )
