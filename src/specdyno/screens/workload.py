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
from specdyno.workload.rows import named_lines

PREDICTION = (
    "Own prompt, earlier: words of the answers in runs of four or more that the own prompt, or an earlier answer of "
    "the class, also holds. This overlap predicts how useful drafts from history are; it is a prediction from text, "
    "not a measurement."
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
    """Classes, shares, lengths, turns, languages and predicted overlap of each source, and the rows of no use."""
    parts: list[RenderableType] = []
    for one in found:
        parts += [title(one.source), table_of(TRAFFIC, [traffic(part) for part in one.classes]), line("")]
        parts.append(table_of(TEXTS, [texts(part) for part in one.classes]))
        parts += skipped(one)
        if one.account is not None:
            parts += refused(one.account)
    return Group(
        *parts,
        line(""),
        line("Lengths: median / 90 % quantile.", style="dim"),
        line(PREDICTION, style="dim"),
    )


def skipped(found: Survey) -> list[RenderableType]:
    """Rows of a file that cannot be used, by reason, with their lines."""
    parts: list[RenderableType] = []
    if found.skipped:
        rows = [(spelling.count(len(lines)), reason, named_lines(lines, MOST_LINES)) for reason, lines in found.skipped]
        parts += [title("Rows that cannot be used"), table_of(("rows", "reason", "where"), rows)]
    if found.duplicates:
        parts.append(line(f"{spelling.plural(found.duplicates, 'exact duplicate')}, each asked once only"))
    return parts


TRAFFIC = ("class", "requests", "share", "turns", "languages")
TEXTS = ("class", "prompt", "answer", "own prompt", "earlier")
MOST_LINES = 1000


def traffic(part: Surveyed) -> tuple[str, ...]:
    """How much of one class there is."""
    told = [one for one in part.languages[:_KEPT_LANGUAGES] if one[1] >= 0.01]
    shown = [f"{code} {spelling.share(share, 0)}" for code, share in told]
    share = "" if part.share is None else spelling.share(part.share)
    return part.name, spelling.count(part.requests), share, lengths(part.turns, unit=False), ", ".join(shown)


def texts(part: Surveyed) -> tuple[str, ...]:
    """How long its texts are, and which part of the answers was there before."""
    overlaps = ("" if value is None else spelling.share(value, 0) for value in (part.from_prompt, part.from_answers))
    return part.name, lengths(part.prompt), lengths(part.answer), *overlaps


def lengths(value: Lengths | None, *, unit: bool = True) -> str:
    """Median and 90 % quantile, and their unit."""
    if value is None:
        return ""
    text = " / ".join(spelling.count(one) for one in (value.middle, value.high))
    return f"{text} {value.unit}" if unit else text
