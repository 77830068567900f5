"""The pool of a class: the distinct usable rows of its source, and an account of the others.

Owns the walk over numbered rows: each usable row becomes a prompt or a session, each other row a reason. Exact
duplicates are dropped and counted: what came twice in a boot would flatter drafts that learn from history.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

import orjson

from specdyno.errors import PlanError, Problem
from specdyno.plan.schema import Plan, TrafficClass
from specdyno.workload.prompts import fingerprint
from specdyno.workload.rows import UnusableRow

Row = tuple[int, object]  # its number from 1; an `UnusableRow` in the place of the row says why it is none


class Identified(Protocol):
    @property
    def id(self) -> str: ...


Item = TypeVar("Item", bound=Identified)
AnyPool = TypeVar("AnyPool", bound="Pool[Any]")
Reader = Callable[[object, int, Container[str]], tuple[Item, str]]


@dataclass(frozen=True, slots=True)
class Pool(Generic[Item]):
    """`usable` in the order of the source; `skipped` holds (line, reason).

    In a file that is one JSON list the number counts its entries, from 1.
    """

    usable: tuple[Item, ...]
    skipped: tuple[tuple[int, str], ...] = ()
    duplicates: int = 0

    @classmethod
    def of(cls, rows: Iterable[Row], read: Reader[Item]) -> Self:
        """What `read` makes of rows: from a row, its number and the ids that are taken to an item and its SHA-256.

        A row that `read` refuses with `UnusableRow` is skipped.
        """
        usable: dict[str, Item] = {}
        skipped: list[tuple[int, str]] = []
        seen: set[str] = set()
        duplicates = 0
        for number, row in rows:
            try:
                if isinstance(row, UnusableRow):
                    raise row
                item, sha256 = read(row, number, usable.keys())
            except UnusableRow as reason:
                skipped.append((number, str(reason)))
                continue
            if sha256 in seen:
                duplicates += 1
                continue
            seen.add(sha256)
            usable[item.id] = item
        return cls(tuple(usable.values()), tuple(skipped), duplicates)

    def or_refused(self, source: str, *, what: str, hint: str) -> Self:
        """This pool; a `PlanError` with the first reason where it is empty."""
        if not self.usable:
            first = "".join(f": line {line} {why}" for line, why in self.skipped[:1])
            raise refused(f"{source} holds no usable {what}{first}", hint)
        return self


def pools_of(
    plan: Plan, key: Literal["prompts", "sessions"], load: Callable[[TrafficClass], AnyPool]
) -> dict[str, AnyPool]:
    """The pools of the classes of a plan that state `key`, by class name.

    Raises:
        PlanError: the problems of all classes at once.
    """
    pools: dict[str, AnyPool] = {}
    problems: list[Problem] = []
    for index, part in enumerate(plan.workload.classes):
        if getattr(part, key) is None:
            continue
        try:
            pools[part.name] = load(part)
        except PlanError as error:
            place = f"workload.classes[{index}].{key}"
            problems += [Problem(place, problem.seen, problem.remedy) for problem in error.problems]
    if problems:
        raise PlanError(problems)
    return pools


def json_rows(data: bytes) -> Iterator[Row]:
    """Rows of JSON lines, of one JSON list, or of a single JSON value."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        whole = orjson.loads(data.strip())
    except orjson.JSONDecodeError:
        return _lines(data)
    return iter(enumerate(whole if isinstance(whole, list) else [whole], start=1))


def _lines(data: bytes) -> Iterator[Row]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, orjson.loads(line)
        except orjson.JSONDecodeError as error:
            yield number, UnusableRow(f"is no JSON: {error.msg}")


def sha256_of(content: Mapping[str, Any]) -> str:
    """The fingerprint of a row's content; `UnusableRow` where JSON libraries cannot follow it."""
    try:
        return fingerprint(content)
    except TypeError as error:
        raise UnusableRow("is nested too deeply") from error


def free_id(wanted: str, number: int, taken: Container[str]) -> str:
    while wanted in taken:
        wanted = f"{wanted}@{number}"
    return wanted


def refused(seen: str, remedy: str, line: int | None = None) -> PlanError:
    return PlanError([Problem("workload.classes", seen, remedy, line)])
