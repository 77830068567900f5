"""Prompt files to prompts: each usable row becomes a prompt, each other row a reason.

Owns reading. The shape of a row is detected row by row (`workload.rows`), so that mixed files work.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from specdyno.plan.schema import Plan, TrafficClass
from specdyno.workload import classes, packages
from specdyno.workload.pools import Pool, Row, free_id, json_rows, pools_of, refused, sha256_of
from specdyno.workload.prompts import Prompt
from specdyno.workload.rows import asked

_HINT = 'Write JSON lines, e.g. {"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}]}'
_MAGIC = {
    b"PAR1": ("is a Parquet file", "Export it as JSON lines"),
    b"\x1f\x8b": ("is compressed with gzip", "Unpack it"),
    b"\x28\xb5\x2f\xfd": ("is compressed with Zstandard", "Unpack it"),
    b"PK\x03\x04": ("is a ZIP archive", "Unpack it"),
    b"SQLite format 3": ("is a SQLite database", "Export it as JSON lines"),
}


class ClassPrompts(Pool[Prompt]):
    """The distinct prompts of one class."""

    __slots__ = ()

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return self.usable


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
    return pools_of(plan, "prompts", lambda part: load_class(part, base_dir))


def _path(source: str, base_dir: Path) -> Path:
    try:
        return base_dir / Path(source).expanduser()
    except RuntimeError as error:
        raise refused(f"{source} names a home directory that does not exist", "Write the whole path") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        remedy = (
            f"Paths are relative to the plan; or use one of: {', '.join(classes.PREFIX + n for n in classes.BUILTIN)}"
        )
        raise refused(f"there is no file {path}", remedy) from error
    except IsADirectoryError as error:
        raise refused(f"{path} is a directory", "Name the prompt file in it") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise refused(f"{path} cannot be read: {reason}", "Check its name and its permissions") from error


def _rows(data: bytes, name: str) -> Iterator[Row]:
    data = data.removeprefix(b"\xef\xbb\xbf")
    _refuse_binary(data, name)
    stripped = data.strip()
    if not stripped:
        raise refused(f"{name} is empty", _HINT)
    if not any(line.lstrip().startswith((b"{", b"[")) for line in stripped.split(b"\n")):
        seen = f"{name} is neither JSON lines nor a JSON list (plain text, CSV?)"
        raise refused(seen, f"{_HINT}: a prompt may hold line breaks, so a line of text is no prompt", 1)
    return json_rows(data)


def _refuse_binary(data: bytes, name: str) -> None:
    for magic, (seen, remedy) in _MAGIC.items():
        if data.startswith(magic):
            raise refused(f"{name} {seen}", remedy)
    try:
        binary = "\0" in data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise refused(f"{name} is not UTF-8 text (byte {error.start})", "Save it as UTF-8 JSON lines", line) from error
    if binary:
        raise refused(f"{name} holds binary data", _HINT)


def _collect(rows: Iterable[Row], *, traffic_class: TrafficClass, name: str) -> ClassPrompts:
    found = ClassPrompts.of(rows, lambda row, number, taken: _prompt(row, number, traffic_class, taken=taken))
    return found.or_refused(name, what="prompt", hint=_HINT)


def _prompt(row: object, number: int, traffic_class: TrafficClass, *, taken: Container[str]) -> tuple[Prompt, str]:
    found = asked(row)
    content = found.content
    sha256 = sha256_of(content)
    prefix = f"{traffic_class.name}/"
    own = prefix + found.id.removeprefix(prefix) if found.id is not None else f"{prefix}{number}"
    prompt = Prompt(
        id=free_id(own, number, taken),
        class_name=traffic_class.name,
        messages=tuple(content["messages"]) if "messages" in content else None,
        prompt=content.get("prompt"),
        tools=tuple(content["tools"]) if "tools" in content else None,
        tool_choice=content.get("tool_choice"),
        response_format=content.get("response_format"),
        max_tokens=traffic_class.max_tokens,
        sha256=sha256,
    )
    return prompt, sha256
