"""Arrival traces: the times at which somebody else's requests came.

Owns three formats, told apart by their content: Azure's CSV (`TIMESTAMP, ContextTokens, GeneratedTokens`), BurstGPT's
CSV (`Timestamp` in seconds, `Request tokens`, `Response tokens`) and Mooncake's JSON lines (`timestamp` in
milliseconds, `input_length`, `output_length`). Times are used; lengths are shown and never become text or acceptance.
Rows are read one by one, so a large file costs two numbers a row.
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from specdyno.errors import PlanError, Problem
from specdyno.plan.schema import Plan

_SHOWN_REASONS = 100
_LONGEST_LINE = 1_000_000  # characters: a longer line is no row of a trace
_HINT = "Use an Azure or BurstGPT CSV with its header, or Mooncake JSON lines"

Row = tuple[float, int | None, int | None]  # seconds, prompt tokens, output tokens


@dataclass(frozen=True, slots=True)
class Trace:
    """Arrival times in seconds from the first one on, rising."""

    source: str
    format: str
    times_s: tuple[float, ...]
    prompt_tokens: float | None  # mean over the rows that state it
    output_tokens: float | None
    skipped: int = 0
    reasons: tuple[tuple[int, str], ...] = ()  # (line, reason) of the first rows that cannot be used
    unsorted: int = 0  # rows that came before the one above them, and were put in order

    def __str__(self) -> str:
        span = self.times_s[-1] - self.times_s[0]
        parts = [f"{len(self.times_s)} arrivals over {span:.0f} s ({self.format})"]
        lengths = [
            f"{mean:.0f} {words}"
            for mean, words in ((self.prompt_tokens, "prompt tokens"), (self.output_tokens, "output tokens"))
            if mean is not None
        ]
        if lengths:
            parts.append(f"of {' and '.join(lengths)} each in the mean: only its times are used")
        if self.skipped:
            line, reason = self.reasons[0]
            parts.append(f"{self.skipped} rows cannot be used, first: line {line}, {reason}")
        if self.unsorted:
            parts.append(f"{self.unsorted} rows were out of order and were sorted")
        return "; ".join(parts)


class _UnusableRow(Exception):  # noqa: N818 - a verdict on one row; the file goes on
    """The message is the reason."""


def load_traces(plan: Plan, base_dir: Path) -> dict[str, Trace]:
    """The trace of each load that replays one, by load name; paths are relative to `base_dir`.

    Raises:
        PlanError: the problems of all traces at once.
    """
    traces: dict[str, Trace] = {}
    problems: list[Problem] = []
    for index, load in enumerate(plan.loads):
        if load.trace is None:
            continue
        try:
            traces[load.name] = read_trace(base_dir / Path(load.trace).expanduser())
        except PlanError as error:
            problems += [Problem(f"loads[{index}].trace", one.seen, one.remedy, one.line) for one in error.problems]
    if problems:
        raise PlanError(problems)
    return traces


def read_trace(path: Path) -> Trace:
    """The arrival times of a trace file.

    Raises:
        PlanError: no such file, no known format, or fewer than two usable rows.
    """
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            head = file.read(_LONGEST_LINE)
            file.seek(0)
            form, rows = _rows(_short_lines(file), head, path)
            return _collected(path, form, rows)
    except FileNotFoundError as error:
        raise _refused(f"there is no file {path}", "Paths are relative to the plan") from error
    except IsADirectoryError as error:
        raise _refused(f"{path} is a directory", "Name the trace file in it") from error
    except (OSError, ValueError) as error:
        raise _refused(f"{path} cannot be read: {error}", "Check its name and its permissions") from error


def _refused(seen: str, remedy: str) -> PlanError:
    return PlanError([Problem("loads", seen, remedy)])


def _short_lines(file: Any) -> Iterator[str]:
    """Lines of bearable length: what a longer one holds beyond it is dropped, and the row is then unusable."""
    while line := file.readline(_LONGEST_LINE):
        if not line.endswith("\n"):
            while (rest := file.readline(_LONGEST_LINE)) and not rest.endswith("\n"):
                pass
        yield line


def _rows(lines: Iterator[str], head: str, path: Path) -> tuple[str, Iterator[tuple[int, Row | _UnusableRow]]]:
    """The format and the numbered rows; a row that cannot be used is its reason."""
    first = next((line for line in head.splitlines() if line.strip()), "")
    if first.lstrip().startswith("{"):
        return "Mooncake", _numbered(enumerate(lines, start=1), _mooncake)
    names = {name.strip().strip('"').lower() for name in first.split(",")}
    known: dict[str, tuple[set[str], Callable[[Mapping[str, str]], Row]]] = {
        "Azure": ({"timestamp", "contexttokens", "generatedtokens"}, _azure),
        "BurstGPT": ({"timestamp", "request tokens", "response tokens"}, _burst_gpt),
    }
    for form, (columns, read) in known.items():
        if columns <= names:
            return form, _numbered(_table(lines), read)
    seen = f"{path} is no arrival trace (it begins: {first[:60]!r})" if first else f"{path} is empty"
    raise _refused(seen, _HINT)


def _table(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(lines)
    names = [name.strip().lower() for name in next(row for row in reader if row)]
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield reader.line_num, {"": f"is no CSV: {error}"}
            continue
        if cells:
            yield reader.line_num, dict(zip(names, (cell.strip() for cell in cells), strict=False))


def _numbered(rows: Iterator[tuple[int, Any]], read: Callable[[Any], Row]) -> Iterator[tuple[int, Row | _UnusableRow]]:
    for number, row in rows:
        if isinstance(row, str) and not row.strip():
            continue
        try:
            yield number, read(row)
        except _UnusableRow as reason:
            yield number, reason


def _azure(row: Mapping[str, str]) -> Row:
    text = _cell(row, "timestamp")
    # Seven digits of a second, which Python's parser does not take.
    head, dot, tail = text.partition(".")
    digits = tail[: len(tail) - len(tail.lstrip("0123456789"))] if dot else ""
    zone = tail[len(digits) :]
    try:
        moment = datetime.fromisoformat(head + zone)
    except ValueError:
        raise _UnusableRow(f"has no time in {text[:40]!r}") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    seconds = moment.timestamp() + (float(f"0.{digits}") if digits else 0.0)
    return seconds, _length(row.get("contexttokens")), _length(row.get("generatedtokens"))


def _burst_gpt(row: Mapping[str, str]) -> Row:
    lengths = _length(row.get("request tokens")), _length(row.get("response tokens"))
    return _seconds(_cell(row, "timestamp")), *lengths


def _mooncake(line: str) -> Row:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _UnusableRow(f"is no JSON: {error.msg}") from None
    if not isinstance(row, dict) or "timestamp" not in row:
        raise _UnusableRow("has no timestamp")
    return _seconds(row["timestamp"]) / 1000.0, _length(row.get("input_length")), _length(row.get("output_length"))


def _cell(row: Mapping[str, str], name: str) -> str:
    if "" in row:
        raise _UnusableRow(row[""])
    if not row.get(name):
        raise _UnusableRow(f"has no {name}")
    return row[name]


def _seconds(value: Any) -> float:
    try:
        seconds = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise _UnusableRow(f"has no time in {str(value)[:40]!r}")
    return seconds


def _length(value: Any) -> int | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if math.isfinite(number) and number >= 0 else None


@dataclass(slots=True)
class _Mean:
    total: int = 0
    count: int = 0

    def add(self, value: int | None) -> None:
        if value is not None:
            self.total, self.count = self.total + value, self.count + 1

    @property
    def value(self) -> float | None:
        return self.total / self.count if self.count else None


def _collected(path: Path, form: str, rows: Iterator[tuple[int, Row | _UnusableRow]]) -> Trace:
    times = array("d")
    prompt_tokens, output_tokens = _Mean(), _Mean()
    reasons: list[tuple[int, str]] = []
    skipped = unsorted = 0
    for number, row in rows:
        if isinstance(row, _UnusableRow):
            skipped += 1
            if len(reasons) < _SHOWN_REASONS:
                reasons.append((number, str(row)))
            continue
        unsorted += bool(times) and row[0] < times[-1]
        times.append(row[0])
        prompt_tokens.add(row[1])
        output_tokens.add(row[2])
    if len(times) < 2:
        first = f": line {reasons[0][0]} {reasons[0][1]}" if reasons else ""
        raise _refused(f"{path} holds {len(times)} usable arrivals, and a window needs two{first}", _HINT)
    ordered = sorted(times)
    return Trace(
        source=str(path),
        format=form,
        times_s=tuple(time - ordered[0] for time in ordered),
        prompt_tokens=prompt_tokens.value,
        output_tokens=output_tokens.value,
        skipped=skipped,
        reasons=tuple(reasons),
        unsorted=unsorted,
    )
