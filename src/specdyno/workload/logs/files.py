"""Log files as lines: told apart by content, unpacked where gzip packed them, lists spread to one entry a line.

Owns what is refused as a whole file, and the cutting of a file into stretches of whole lines.
"""

from __future__ import annotations

import gzip
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from specdyno.errors import PlanError, Problem
from specdyno.workload.logs.scan import LONGEST_ROW

_HINT = "Give JSON lines: an OpenAI batch, LiteLLM, Langfuse, OpenTelemetry GenAI, vLLM or chat log"
_MAGIC = {
    b"PAR1": "is a Parquet file", b"\x28\xb5\x2f\xfd": "is compressed with Zstandard",
    b"PK\x03\x04": "is a ZIP archive", b"SQLite format 3": "is a SQLite database", b"BZh": "is compressed with bzip2",
    b"\xfd7zXZ": "is compressed with xz", b"\xff\xfe": "is UTF-16 text", b"\xfe\xff": "is UTF-16 text",
}  # fmt: skip
_LISTS = ("observations", "data", "requests", "logs", "rows")
_HEAD = 1024 * 1024
_BLOCK = 4 * 1024 * 1024
_LARGEST_VALUE = 512 * 1024 * 1024
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Log:
    """A log as lines in `path`, which may be a copy; `entries` where a line is an entry of a list."""

    name: str
    path: Path
    entries: bool = False


@dataclass(frozen=True, slots=True)
class Stretch:
    """Whole lines of a file. `usable` is False for a line that is longer than any row may be."""

    start: int
    size: int
    usable: bool = True


def logs(paths: Sequence[Path], folder: Path) -> list[Log]:
    """The files to read; copies go to `folder`.

    Raises:
        PlanError: the problems of all files at once.
    """
    found: list[Log] = []
    problems: list[Problem] = []
    for number, path in enumerate(paths):
        try:
            found.append(_log(path, folder / f"log-{number}.jsonl"))
        except PlanError as error:
            problems += error.problems
        except OSError as error:
            problems.append(Problem(str(path), f"cannot be read: {error.strerror or error}", "Check its permissions"))
    if problems:
        raise PlanError(problems)
    return found


def _refused(path: Path, seen: str, remedy: str) -> PlanError:
    return PlanError([Problem(str(path), seen, remedy)])


def _log(path: Path, copy: Path) -> Log:
    if not path.exists():
        raise _refused(path, "there is no such file", "Check its name")
    if path.is_dir():
        raise _refused(path, "is a directory", "Name the log files in it")
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(path, "rb") as packed, copy.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, _BLOCK)
        except (EOFError, zlib.error) as error:
            raise _refused(path, "is a gzip file that is cut off", f"Unpack what is there: zcat {path}") from error
        return _log_as_lines(path, copy, copy.with_suffix(".spread"))
    return _log_as_lines(path, path, copy)


def _log_as_lines(named: Path, path: Path, copy: Path) -> Log:
    with path.open("rb") as file:
        head = file.read(_HEAD).removeprefix(b"\xef\xbb\xbf")
    for magic, seen in _MAGIC.items():
        if head.startswith(magic):
            raise _refused(
                named, seen, "Save it as UTF-8" if "UTF" in seen else "Unpack it, or export it as JSON lines"
            )
    text = head.lstrip()
    if not text:
        raise _refused(named, "is empty", _HINT)
    if b"\0" in head[:4096] and text[:1] not in (b"{", b"["):
        raise _refused(named, "holds binary data", _HINT)
    if not any(line.lstrip()[:1] in (b"{", b"[") for line in head.split(b"\n")):
        raise _refused(named, "holds no JSON (plain text, CSV?)", _HINT)
    if text.startswith(b"["):
        with path.open("rb") as file, copy.open("wb") as spread:
            _spread(file, spread)
        return Log(str(named), copy, entries=True)
    listed = _one_value(path)
    if listed is None:
        return Log(str(named), path)
    with copy.open("wb") as spread:
        spread.writelines(orjson.dumps(entry) + b"\n" for entry in listed)
    return Log(str(named), copy, entries=True)


def _one_value(path: Path) -> list[Any] | None:
    """The entries of a file that is one JSON object; None where it is JSON lines."""
    with path.open("rb") as file:
        first = file.readline(LONGEST_ROW).removeprefix(b"\xef\xbb\xbf")
        rest = file.read(_HEAD).lstrip()
    alone = _is_json(first)
    if (rest if alone else rest.startswith(b"{")) or path.stat().st_size > _LARGEST_VALUE:
        return None
    try:
        value = orjson.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    for key in _LISTS:
        if isinstance(value.get(key), list) and value[key]:
            return list(value[key])
    return None if alone else [value]


def _is_json(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def _spread(file: BinaryIO, into: BinaryIO) -> None:
    """Each entry of a list on a line of its own. Reads in blocks; an entry that is cut off is written as it is."""
    held, depth, place = b"", 0, 0
    start: int | None = None
    while block := file.read(_BLOCK):
        held += block
        unfinished = len(held)
        while match := _TOKEN.search(held, place):
            token = match.group()
            if token == b'"':  # a text that the next block ends: the search begins again at its opening quote
                unfinished = match.start()
                break
            place = match.end()
            if token in (b"{", b"["):
                depth += 1
                start = match.start() if depth == 2 else start
            elif token in (b"}", b"]"):
                depth -= 1
                if depth == 1 and start is not None:
                    into.write(_line(held[start:place]))
                    start = None
            elif depth == 1:
                into.write(_line(token))
        keep = unfinished if start is None else start
        held, place = held[keep:], unfinished - keep
        start = None if start is None else 0
    if start is not None:
        into.write(_line(held))


def _line(entry: bytes) -> bytes:
    try:
        return orjson.dumps(orjson.loads(entry)) + b"\n"
    except orjson.JSONDecodeError:
        return entry.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"


def stretches(path: Path, size: int) -> Iterator[Stretch]:
    """A file cut into stretches of about `size` bytes, each of whole lines."""
    whole, start = path.stat().st_size, 0
    with path.open("rb") as file:
        while start < whole:
            middle = min(start + size, whole)
            file.seek(middle)
            tail = file.readline(LONGEST_ROW)
            if len(tail) < LONGEST_ROW or tail.endswith(b"\n"):
                yield Stretch(start, middle + len(tail) - start)
                start = middle + len(tail)
                continue
            # No end of line came: first the whole lines before it, then the long line alone, unread.
            file.seek(start)
            last = file.read(size).rfind(b"\n") + 1
            if last:
                yield Stretch(start, last)
            file.seek(middle)
            while (rest := file.readline(_BLOCK)) and not rest.endswith(b"\n"):
                pass
            yield Stretch(start + last, file.tell() - start - last, usable=False)
            start = file.tell()
