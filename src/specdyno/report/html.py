"""One self-contained page that works from disk: no script, no request, no font from elsewhere.

Lays out a `View`; decides no number and no sentence. The template escapes everything but the charts, which escape
their own text.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from specdyno.report import charts
from specdyno.report.speed import SpeedGroup
from specdyno.report.view import View

_HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(view: View) -> str:
    """The page as text; the same view gives the same bytes."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["tight"] = _tight
    groups = (*view.speed_decides, *view.speed_explores)
    speed_axis = charts.forest_axis(groups)
    cost_axis = charts.explained_axis(view.explained) if view.explained else speed_axis
    longest = max((mark.draft_tokens or 1 for mark in view.marks), default=1)
    page = environment.get_template("page.html").render(
        view=view,
        policy=POLICY,
        css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        swatch=lambda mark: Markup(charts.swatch(mark)),  # noqa: S704 - charts escape their text
        strip=lambda row, gain: Markup(charts.forest_strip(row, speed_axis, minimum_gain=gain)),  # noqa: S704
        axis=lambda gain: Markup(charts.strip_axis(speed_axis, minimum_gain=gain)),  # noqa: S704
        cost_strip=lambda row: Markup(charts.explained_strip(row, cost_axis)),  # noqa: S704
        cost_axis=Markup(charts.strip_axis(cost_axis)),  # noqa: S704
        curve=lambda panel: Markup(charts.curve_panel(panel, longest=longest)),  # noqa: S704
        throughput=lambda panel: Markup(charts.throughput_panel(panel)),  # noqa: S704
        ladder=lambda panel: Markup(charts.ladder_panel(panel)),  # noqa: S704
        power=lambda panel: Markup(charts.power_panel(panel)),  # noqa: S704
        explored=_by_load(view.speed_explores),
        curves=[(load, list(group)) for load, group in groupby(view.curves, key=lambda panel: panel.load)],
        methods=_methods(view),
    )
    return "\n".join(line.rstrip() for line in page.splitlines() if line.strip()) + "\n"


def _by_load(groups: tuple[SpeedGroup, ...]) -> list[tuple[str, list[SpeedGroup]]]:
    return [(load, list(group)) for load, group in groupby(groups, key=lambda group: group.load)]


def _methods(view: View) -> list[tuple[str, str]]:
    """Legend: each method once, with its mark."""
    seen = {mark.method: Markup(charts.swatch(mark)) for mark in view.marks if mark.method is not None}  # noqa: S704
    return list(seen.items())


def _tight(text: str) -> str:
    """No line break between a number and its unit."""
    return text.replace(" %", "\u00a0%").replace("\u00a0% interval", "\u00a0%\u00a0interval")
