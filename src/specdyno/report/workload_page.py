"""A workload drawn: shares, lengths, overlap and languages of each class, on a page of its own."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from specdyno.report import spelling
from specdyno.report.axes import Axis
from specdyno.report.html import POLICY
from specdyno.report.svg import strip
from specdyno.report.untrusted import sanitise
from specdyno.workload.logs.survey import Lengths, Survey, Surveyed
from specdyno.workload.rows import named_lines

_HERE = Path(__file__).parent
_TICKS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
_HALF = 15
MOST_LINES = 100


def render(found: Sequence[Survey]) -> str:
    """A self-contained page; the same surveys give the same bytes."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    axis = _axis(found)
    page = environment.get_template("workload.html").render(
        policy=POLICY,
        css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        sources=[(sanitise(one.source), [_row(part, axis) for part in one.classes], _refused(one)) for one in found],
        axis=Markup(_axis_strip(axis)),  # noqa: S704 - charts escape their text
    )
    return "\n".join(line.rstrip() for line in page.splitlines() if line.strip()) + "\n"


def _row(part: Surveyed, axis: Axis) -> dict[str, object]:
    """The cells of one class: charts beside the numbers they show; None where a thing is not known."""
    return {
        "name": sanitise(part.name),
        "requests": spelling.count(part.requests),
        "share": None
        if part.share is None
        else (spelling.share(part.share), _bar(part.share, f"{part.name}: share", 1)),
        "prompt": _spread(part.prompt, axis, f"{part.name}, prompt", 1),
        "answer": _spread(part.answer, axis, f"{part.name}, answer", 2),
        "turns": None if part.turns is None else " / ".join(f"{one:g}" for one in _values(part.turns)),
        "languages": ", ".join(
            f"{code} {spelling.share(share, 0)}" for code, share in part.languages[:4] if share >= 0.01
        ),
        "overlap": [
            (name, spelling.share(value, 0), _bar(value, f"{part.name}: overlap with {name}", style))
            for name, value, style in (("its prompt", part.from_prompt, 3), ("earlier answers", part.from_answers, 4))
            if value is not None
        ],
        "answers": spelling.count(part.answers),
    }


def _refused(one: Survey) -> list[tuple[str, str, str]]:
    """Rows of no use: how many, why, and where the first are."""
    found = [
        (spelling.count(len(lines)), sanitise(reason), named_lines(lines, MOST_LINES)) for reason, lines in one.skipped
    ]
    if one.account is not None:
        found += [
            (
                spelling.count(entry["rows"]),
                sanitise(str(entry["reason"])),
                ", ".join(sanitise(f"{Path(at['log']).name}:{at['line']}") for at in entry["first"]),
            )
            for entry in one.account["refused"]
        ]
    return found


def _values(value: Lengths) -> tuple[float, float, float]:
    return value.low, value.middle, value.high


def _axis(found: Sequence[Survey]) -> Axis:
    """One logarithmic scale for all lengths of the page."""
    lengths = [length for one in found for part in one.classes for length in (part.prompt, part.answer) if length]
    values = [max(value, 1.0) for length in lengths for value in _values(length)] or [1.0]
    low, high = min(values) / 1.3, max(*values, 10 * min(values)) * 1.3
    return Axis(low, high, 0.0, 100.0, tuple(float(tick) for tick in _TICKS if low <= tick <= high), ratio=True)


def _axis_strip(axis: Axis) -> str:
    parts = ['<line class="axis" x1="0" x2="100%" y1="0.5" y2="0.5"/>']
    for tick in axis.ticks:
        place = axis.at(tick)
        anchor = "start" if place < 6 else "end" if place > 94 else "middle"
        parts.append(f'<line class="axis" x1="{place}%" x2="{place}%" y1="0" y2="5"/>')
        parts.append(f'<text x="{place}%" y="17" text-anchor="{anchor}">{tick:,.0f}</text>')
    return strip("".join(parts), "Length, logarithmic", height=22)


def _spread(value: Lengths | None, axis: Axis, what: str, style: int) -> dict[str, object] | None:
    """The 10 to 90 % range as a line, the median as a dot."""
    if value is None:
        return None
    low, middle, high = (axis.at(max(one, 1.0)) for one in _values(value))
    text = " / ".join(spelling.count(one) for one in _values(value))
    grid = "".join(
        f'<line class="grid" x1="{axis.at(tick)}%" x2="{axis.at(tick)}%" y1="0" y2="100%"/>' for tick in axis.ticks
    )
    body = (
        f'{grid}<g class="m{style}"><line class="way" x1="{low}%" x2="{high}%" y1="{_HALF}" y2="{_HALF}"/>'
        f'<circle class="mark" cx="{middle}%" cy="{_HALF}" r="5"/></g>'
    )
    says = f"{what}: {text} {value.unit} (10 %, 50 %, 90 %)"
    return {"chart": Markup(strip(body, sanitise(says))), "text": text, "unit": value.unit,  # noqa: S704
            "known": spelling.count(value.known)}  # fmt: skip


def _bar(part: float, what: str, style: int) -> Markup:
    width = round(100 * min(max(part, 0.0), 1.0), 2)
    body = (
        '<rect class="band" x="0" width="100%" y="9" height="12" rx="2"/>'
        f'<g class="m{style}"><rect class="mark" x="0" width="{width}%" y="9" height="12" rx="2"/></g>'
    )
    return Markup(strip(body, f"{sanitise(escape(what, quote=False))} {spelling.share(part, 1)}"))  # noqa: S704
