"""Prompt files to prompts: each usable row becomes a prompt, each other row a reason.

Owns reading. The shape of a row is detected row by row (`workload.rows`), so that mixed files work. Exact duplicates
are dropped and counted: a prompt that came twice in a boot would flatter drafts that learn from history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from specdyno.errors import PlanError, Problem
from specdyno.plan.schema import Plan, TrafficClass
from specdyno.workload import classes, packages
from specdyno.workload.prompts import Prompt, fingerprint
from specdyno.workload.rows import Asked, UnusableRow, asked

_HINT = 'Write JSON lines, e.g. {"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}]}'
_MAGIC = {
    b"PAR1": ("is a Parquet file", "Export it as JSON lines"),
    b"\x1f\x8b": ("is compressed with gzip", "Unpack it"),
    b"\x28\xb5\x2f\xfd": ("is compressed with Zstandard", "Unpack it"),
    b"PK\x03\x04": ("is a ZIP archive", "Unpack it"),
    b"SQLite format 3": ("is a SQLite database", "Export it as JSON lines"),
}


@dataclass(frozen=True, slots=True)
class ClassPrompts:
    """The distinct prompts of one class, in file order.

    `skipped` holds (line, reason); in a file that is one JSON list the number counts its entries, from 1.
    """

    prompts: tuple[Prompt, ...]
    skipped: tuple[tuple[int, str], ...] = ()
    duplicates: int = 0


def load_class(traffic_class: TrafficClass, base_dir: Path) -> ClassPrompts:
    """The prompts of a class: a built-in one, or a file relative to the plan's folder.

    Raises:
        PlanError: no such class or file, not a text file, or no usable row.
    """
    source = traffic_class.source
    if source.startswith(packages.PREFIX):
        return _collect(packages.prompt_rows(source), traffic_class=traffic_class, name=source)
    if source.startswith(classes.PREFIX):
        data, name = classes.read(source.removeprefix(classes.PREFIX)), source
    else:
        path = _path(source, base_dir)
        data, name = _read(path), str(path)
    return _collect(_rows(data, name), traffic_class=traffic_class, name=name)


def load_pools(plan: Plan, base_dir: Path) -> dict[str, ClassPrompts]:
    """The prompts of every class of a plan that holds prompts, by class name.

    Raises:
        PlanError: the problems of all classes at once.
    """
    pools: dict[str, ClassPrompts] = {}
    problems: list[Problem] = []
    for index, traffic_class in enumerate(plan.workload.classes):
        if traffic_class.sessions is not None:
            continue
        try:
            pools[traffic_class.name] = load_class(traffic_class, base_dir)
        except PlanError as error:
            place = f"workload.classes[{index}].prompts"
            problems += [Problem(place, problem.seen, problem.remedy) for problem in error.problems]
    if problems:
        raise PlanError(problems)
    return pools


def _refused(seen: str, remedy: str, line: int | None = None) -> PlanError:
    return PlanError([Problem("workload.classes", seen, remedy, line)])


def _path(source: str, base_dir: Path) -> Path:
    try:
        return base_dir / Path(source).expanduser()
    except RuntimeError as error:
        raise _refused(f"{source} names a home directory that does not exist", "Write the whole path") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        remedy = (
            f"Paths are relative to the plan; or use one of: {', '.join(classes.PREFIX + n for n in classes.BUILTIN)}"
        )
        raise _refused(f"there is no file {path}", remedy) from error
    except IsADirectoryError as error:
        raise _refused(f"{path} is a directory", "Name the prompt file in it") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refused(f"{path} cannot be read: {reason}", "Check its name and its permissions") from error


def _rows(data: bytes, name: str) -> Iterator[tuple[int, object]]:
    """Rows with their number from 1; a line that is no JSON is an `UnusableRow` in the place of the row."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    _refuse_binary(data, name)
    stripped = data.strip()
    if not stripped:
        raise _refused(f"{name} is empty", _HINT)
    if not any(line.lstrip().startswith((b"{", b"[")) for line in stripped.split(b"\n")):
        seen = f"{name} is neither JSON lines nor a JSON list (plain text, CSV?)"
        raise _refused(seen, f"{_HINT}: a prompt may hold line breaks, so a line of text is no prompt", 1)
    whole = _whole(stripped)
    if isinstance(whole, list):
        return iter(list(enumerate(whole, start=1)))
    if whole is not None:
        return iter([(1, whole)])
    return _lines(data)


def _refuse_binary(data: bytes, name: str) -> None:
    for magic, (seen, remedy) in _MAGIC.items():
        if data.startswith(magic):
            raise _refused(f"{name} {seen}", remedy)
    try:
        binary = "\0" in data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _refused(f"{name} is not UTF-8 text (byte {error.start})", "Save it as UTF-8 JSON lines", line) from error
    if binary:
        raise _refused(f"{name} holds binary data", _HINT)


def _whole(data: bytes) -> object:
    """The file as one JSON value; None where it is none, as with JSON lines."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _lines(data: bytes) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, orjson.loads(line)
        except orjson.JSONDecodeError as error:
            yield number, UnusableRow(f"is no JSON: {error.msg}")


def _collect(rows: Iterable[tuple[int, object]], *, traffic_class: TrafficClass, name: str) -> ClassPrompts:
    prompts: list[Prompt] = []
    skipped: list[tuple[int, str]] = []
    seen: set[str] = set()
    ids: set[str] = set()
    duplicates = 0
    for number, row in rows:
        try:
            prompt = _prompt(row, number=number, traffic_class=traffic_class, ids=ids)
        except UnusableRow as reason:
            skipped.append((number, str(reason)))
            continue
        if prompt.sha256 in seen:
            duplicates += 1
            continue
        seen.add(prompt.sha256)
        ids.add(prompt.id)
        prompts.append(prompt)
    if not prompts:
        first = f": line {skipped[0][0]} {skipped[0][1]}" if skipped else ""
        raise _refused(f"{name} holds no usable prompt{first}", _HINT)
    return ClassPrompts(tuple(prompts), tuple(skipped), duplicates)


def _prompt(row: object, *, number: int, traffic_class: TrafficClass, ids: set[str]) -> Prompt:
    if isinstance(row, UnusableRow):
        raise row
    found = asked(row)
    content = found.content
    try:
        sha256 = fingerprint(content)
    except TypeError as error:
        raise UnusableRow("is nested too deeply") from error
    return Prompt(
        id=_id(found, number=number, class_name=traffic_class.name, ids=ids),
        class_name=traffic_class.name,
        messages=tuple(content["messages"]) if "messages" in content else None,
        prompt=content.get("prompt"),
        tools=tuple(content["tools"]) if "tools" in content else None,
        tool_choice=content.get("tool_choice"),
        response_format=content.get("response_format"),
        max_tokens=traffic_class.max_tokens,
        sha256=sha256,
    )


def _id(found: Asked, *, number: int, class_name: str, ids: set[str]) -> str:
    """Unique within the plan: `class/own id`, or `class/line` where the row has no id or one that came before."""
    prefix = f"{class_name}/"
    own = prefix + found.id.removeprefix(prefix) if found.id is not None else f"{prefix}{number}"
    while own in ids:
        own = f"{own}@{number}"
    return own
