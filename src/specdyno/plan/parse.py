"""A plan file to a `Plan`, or every mistake in it at once.

Owns reading and the collection of problems; promises that nothing but `PlanError` comes out of any text. The words
stand in `plan.wording`, the rules between parts in `plan.misfits`.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from specdyno.errors import PlanError, Problem
from specdyno.plan import wording
from specdyno.plan.misfits import Parts, misfits
from specdyno.plan.nodes import Document, Path, compose
from specdyno.plan.schema import Candidate, Experiment, Load, Objective, Plan, TrafficClass

Part = TypeVar("Part", bound=BaseModel)
_STEP = re.compile(r"\[(\d+)\]|\.?([^.\[]+)")
_SECRET = re.compile(r"token|key|secret|password|credential", re.IGNORECASE)


def read(path: FilePath | str) -> tuple[Plan, str]:
    """The plan in a file and its text.

    Raises:
        PlanError: the file cannot be read, or holds mistakes; all of them, each with its line.
    """
    path = FilePath(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise PlanError([_unreadable(path, error)], source=str(path)) from error
    return parse(text, str(path)), text


def parse(text: str, source: str = "") -> Plan:
    """The plan in a text; `source` names the text in the error.

    Raises:
        PlanError: every mistake at once, in the order of the lines.
    """
    document = compose(text)
    if not document.problems and not isinstance(document.data, dict):
        remedy = "Start with `study: name`; `specdyno init` writes a plan to start from"
        document.refuse((), f"the file holds {_kind(document.data)}, not a mapping of keys", remedy)
    if not isinstance(document.data, dict):
        raise PlanError(document.problems, source=source)
    plan, problems = _judge(document)
    if plan is None or problems:
        raise PlanError(problems, source=source)
    return plan


def in_force(plan: Plan) -> list[tuple[str, str, bool]]:
    """Every key path of the plan, its value as text, and whether the value is the default of that key.

    Durations read as in the file, other values as JSON. Values of environment variables whose names sound like a
    secret are not shown.
    """
    return _in_force(plan, prefix="")


def _unreadable(path: FilePath, error: Exception) -> Problem:
    if isinstance(error, FileNotFoundError):
        return Problem("", f"there is no file {path}", "`specdyno init` writes a plan")
    if isinstance(error, IsADirectoryError):
        return Problem("", f"{path} is a directory", f"Name the file, e.g. {path / 'plan.yaml'}")
    if isinstance(error, UnicodeDecodeError):
        line = error.object[: error.start].count(b"\n") + 1
        return Problem("", f"byte {error.start} is not UTF-8", "Save the plan as UTF-8 text", line)
    reason = getattr(error, "strerror", None) or str(error)
    return Problem("", f"{path} cannot be read: {reason}", "Check its name and its permissions")


def _kind(data: object) -> str:
    return "a list" if isinstance(data, list) else "a single value"


def _judge(document: Document) -> tuple[Plan | None, list[Problem]]:
    problems = {(found.place, found.seen): found for found in document.problems}
    plan = None
    try:
        plan = Plan.model_validate(document.data)
    except ValidationError as errors:
        found = wording.problems(errors.errors(include_url=False), document=document)
        found += [_with_line(misfit, document) for misfit in misfits(_parts(document.data))]
        # The first complaint about a place stands: what was refused as YAML has no value left to be judged.
        taken = {problem.place for problem in document.problems if problem.place}
        problems |= {(one.place, one.seen): one for one in found if one.place not in taken}
    return plan, sorted(problems.values(), key=lambda one: (one.line or 0, one.place))


def _with_line(problem: Problem, document: Document) -> Problem:
    steps: Path = tuple(int(index) if index else name for index, name in _STEP.findall(problem.place))
    return Problem(problem.place, problem.seen, problem.remedy, document.line(steps))


def _parts(data: Any) -> Parts:
    workload = _mapping(data.get("workload"))
    written = {"classes": _list(workload.get("classes")), "loads": _list(data.get("loads"))}
    classes, loads = _readable(TrafficClass, written["classes"]), _readable(Load, written["loads"])
    read = {"classes": len(classes), "loads": len(loads)}
    objectives = [_mapping(item).get("load") for item in _list(data.get("objectives"))]
    return Parts(
        flags=list(_mapping(_mapping(data.get("engine")).get("args"))),
        body_keys=list(_mapping(_mapping(workload.get("sampling")).get("extra_body"))),
        candidates=_readable(Candidate, data.get("candidates")),
        classes=classes,
        loads=loads,
        objectives=_readable(Objective, data.get("objectives")),
        whole=frozenset(key for key, count in read.items() if count == len(written[key]) > 0),
        names={
            "workload.classes": _names(written["classes"]),
            "loads": _names(written["loads"]),
            "objectives": _names(data.get("objectives")),
        },
        rungs=[rung for item in written["loads"] for rung in _rungs(_mapping(item))],
        objective_loads={index: name for index, name in enumerate(objectives) if isinstance(name, str)},
        looks=_looks(data.get("experiment", {})),
    )


def _rungs(load: dict[str, Any]) -> list[str | None]:
    """Names of the loads that an entry stands for, as far as they can be read."""
    name, ladder = load.get("name"), load.get("ladder")
    if not isinstance(name, str):
        return [None]
    return [f"{name}@{step}" for step in ladder] if isinstance(ladder, list) else [name]


def _looks(data: object) -> tuple[int, ...]:
    try:
        return Experiment.model_validate({"looks": _mapping(data)["looks"]}).looks
    except (KeyError, ValidationError):
        return ()


def _mapping(data: object) -> dict[str, Any]:
    return data if isinstance(data, dict) else {}


def _list(data: object) -> list[Any]:
    return data if isinstance(data, list) else []


def _readable(model: type[Part], data: object) -> dict[int, Part]:
    parts = {}
    for index, item in enumerate(_list(data)):
        with suppress(ValidationError):
            parts[index] = model.model_validate(item)
    return parts


def _names(data: object) -> list[str | None]:
    names = [_mapping(item).get("name") for item in _list(data)]
    return [name if isinstance(name, str) else None for name in names]


def _in_force(part: BaseModel, *, prefix: str) -> list[tuple[str, str, bool]]:
    rows: list[tuple[str, str, bool]] = []
    dumped = part.model_dump(mode="json")
    for name, key in type(part).model_fields.items():
        value, path = getattr(part, name), f"{prefix}{name}"
        if isinstance(value, BaseModel):
            rows += _in_force(value, prefix=f"{path}.")
        elif isinstance(value, tuple) and value and all(isinstance(item, BaseModel) for item in value):
            for index, item in enumerate(value):
                rows += _in_force(item, prefix=f"{path}[{index}].")
        else:
            default = not key.is_required() and value == key.get_default(call_default_factory=True)
            rows.append((path, _text(path, dumped[name]), default))
    return rows


def _text(path: str, value: Any) -> str:
    if path == "engine.env":
        value = {name: "(not shown)" if _SECRET.search(name) else text for name, text in value.items()}
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
