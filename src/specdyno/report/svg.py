"""The parts that charts are made of: strips, panels with their frame, marks, lines; SVG text by hand.

Owns sizes and shapes. Every piece of text is escaped here; colours come from the page's custom properties.
"""

from __future__ import annotations

from html import escape

from specdyno.report import spelling
from specdyno.report.axes import Axis
from specdyno.report.marks import Mark
from specdyno.statistics.intervals import AT_LEAST, AT_MOST, Interval

STRIP = 30
WIDTH, HEIGHT = 340, 236
LEFT, RIGHT, TOP, BOTTOM = 44, 304, 12, 200

PATHS = {
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
    path = f'<path class="mark" d="{PATHS[mark.shape]}"/>'
    return f'<svg class="swatch m{mark.style}" viewBox="-8 -8 16 16" aria-hidden="true">{path}</svg>'


def strip(body: str, says: str, *, height: int = STRIP) -> str:
    return f'<svg class="strip" role="img" width="100%" height="{height}"><title>{escape(says)}</title>{body}</svg>'


def panel_of(body: str, title: str, says: str) -> str:
    return (
        f'<svg class="panel" role="img" viewBox="0 0 {WIDTH} {HEIGHT}"><title>{escape(title)}</title>'
        f"<desc>{escape(says)}</desc>{body}</svg>"
    )


def frame(across: Axis, up: Axis, labels: list[str], caption: str, *, per_cent: bool = False) -> str:
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


def line_of(points: list[tuple[float, Interval, str]], up: Axis, mark: Mark, unit: str) -> str:
    path = " ".join(f"{x:g},{up.at(value.estimate)}" for x, value, _ in points)
    parts = [f'<polyline class="line" points="{path}"/>']
    for place, (x, value, text) in enumerate(points, start=1):
        says = f"{mark.arm}, {unit} {place}: {text}" if unit else text
        low, high, y = up.at(value.low), up.at(value.high), up.at(value.estimate)
        parts.append(
            f"<g><title>{escape(says)}</title>"
            f'<line class="whisker" x1="{x:g}" x2="{x:g}" y1="{low}" y2="{high}"/>'
            f'<path class="mark" transform="translate({x:g} {y}) scale(0.8)" d="{PATHS[mark.shape]}"/></g>'
        )
    return f'<g class="m{mark.style}">{"".join(parts)}</g>'


def end_labels(ends: list[tuple[float, float, Mark]], *, gap: float = 11.0) -> str:
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


def apart(across: Axis, lines: int) -> float:
    """Points of several lines at one place stand side by side, within a third of the way to the next place."""
    step = across.at(2) - across.at(1)
    return min(4.0, step / 3 / max(1, lines - 1))


def placed(place: float, mark: Mark, *, kind: str = "mark") -> str:
    path = PATHS[mark.shape]
    return f'<svg x="{place}%" y="{STRIP // 2}" overflow="visible"><path class="{kind}" d="{path}"/></svg>'


def whisker(value: Interval, axis: Axis) -> str:
    low, high, middle = axis.at(value.low), axis.at(value.high), STRIP / 2
    parts = [f'<line class="whisker" x1="{low}%" x2="{high}%" y1="{middle:g}" y2="{middle:g}"/>']
    for inside, place, arrow in (
        (axis.holds(value.low) and value.bound != AT_MOST, low, "M6 -4L0 0L6 4"),
        (axis.holds(value.high) and value.bound != AT_LEAST, high, "M-6 -4L0 0L-6 4"),
    ):
        path = "M0 -4V4" if inside else arrow
        parts.append(f'<svg x="{place}%" y="{middle:g}" overflow="visible"><path class="cap" d="{path}"/></svg>')
    return "".join(parts)
