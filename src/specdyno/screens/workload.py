"""What `workload import` and `workload inspect` show in the terminal.

Belongs to the command line. What is not known is an empty cell, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType

from specdyno.report import spelling
from specdyno.screens.parts import line, table_of, title
from specdyno.workload.logs.survey import Lengths, Survey, Surveyed

PREDICTION = (
    "Overlap: words of the answers in runs of four or more that the own prompt, or an earlier answer of the class, "
    "also holds. It predicts how useful drafts from history are; it is a prediction from text, not a measurement."
)
_KEPT_LANGUAGES = 2


def imported(account: Mapping[str, Any], folder: Path) -> RenderableType:
    """What an import found, refused and wrote."""
    rows = [
        (name, spelling.count(found["requests"]), spelling.share(found["share"]), spelling.count(found["kept"]),
         str(found["max_tokens"]), found["max_tokens_from"])
        for name, found in account["classes"].items()
    ]  # fmt: skip
    sessions = account["sessions"]
    read = f"{spelling.count(account['requests'])} requests in {spelling.count(account['rows'])} rows"
    kept = f"{spelling.count(sessions['requests'])} requests, {spelling.count(sessions['kept'])} kept"
    lines = [
        f"{read} ({', '.join(account['formats'])}), {spelling.count(account['duplicates'])} exact duplicates",
        f"{spelling.count(sessions['count'])} sessions of {kept}",
    ]
    if account["redacted"] is not None:
        counts = ", ".join(f"{spelling.count(n)} {kind}" for kind, n in account["redacted"].items()) or "nothing found"
        lines.append(
            f"redacted in what was kept: {counts}. Read some rows before you pass them on: it cannot find everything"
        )
    columns = ("class", "requests", "share", "prompts kept", "max_tokens", "taken from")
    return Group(
        *(line(text) for text in lines), title("Classes"), table_of(columns, rows), *refused(account), line(""),
        line(f"written: {folder} (one prompt file per class, workload.yaml, import.json)"),
    )  # fmt: skip


def refused(account: Mapping[str, Any]) -> list[RenderableType]:
    """Rows that could not be used, by reason, with the lines of the first ones."""
    if not account["refused"] and not account["sessions"]["left_out"]:
        return []
    rows = [
        (
            spelling.count(one["rows"]),
            one["reason"],
            ", ".join(f"{Path(at['log']).name}:{at['line']}" for at in one["first"]),
        )
        for one in account["refused"]
    ]
    rows += [(spelling.count(n), f"session left out: {why}", "") for why, n in account["sessions"]["left_out"].items()]
    return [title("Rows that were not used"), table_of(("rows", "reason", "first lines"), rows)]


def inspected(found: Sequence[Survey]) -> RenderableType:
    """Classes, shares, lengths, turns, languages and predicted overlap of each source."""
    parts: list[RenderableType] = []
    for one in found:
        parts += [title(one.source), table_of(COLUMNS, [cells(part) for part in one.classes])]
        parts += [line(note, style="yellow") for note in one.notes]
        if one.account is not None:
            parts += refused(one.account)
    return Group(
        *parts,
        line(""),
        line("Lengths: median / 90 % quantile.", style="dim"),
        line(PREDICTION, style="dim"),
    )


COLUMNS = ("class", "requests", "share", "prompt", "answer", "turns", "languages", "overlap: prompt", "earlier")


def cells(part: Surveyed) -> tuple[str, ...]:
    """One class as text."""
    told = [one for one in part.languages[:_KEPT_LANGUAGES] if one[1] >= 0.01]
    shown = [f"{code} {spelling.share(share, 0)}" for code, share in told]
    return (
        part.name, spelling.count(part.requests), "" if part.share is None else spelling.share(part.share),
        lengths(part.prompt), lengths(part.answer), lengths(part.turns, unit=False), ", ".join(shown),
        "" if part.from_prompt is None else spelling.share(part.from_prompt, 0),
        "" if part.from_answers is None else spelling.share(part.from_answers, 0),
    )  # fmt: skip


def lengths(value: Lengths | None, *, unit: bool = True) -> str:
    """Median and 90 % quantile, and their unit."""
    if value is None:
        return ""
    text = " / ".join(spelling.count(one) for one in (value.middle, value.high))
    return f"{text} {value.unit}" if unit else text
