"""The validator's errors in words for the author of a plan: what was seen, what to do.

Owns the sentences and the search for the key that was meant. Values of `engine.env` and of `engine.api_key_env` are
never repeated: they may be secrets.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from specdyno.errors import Problem
from specdyno.plan import reference
from specdyno.plan.nodes import Document, Path, place
from specdyno.plan.spelling import quoted

_NOT_A = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
}
_BOUNDS = {
    "greater_than": ("too small", "Write a number above {gt:g}"),
    "greater_than_equal": ("too small", "Write a number from {ge:g} up"),
    "less_than": ("too large", "Write a number below {lt:g}"),
    "less_than_equal": ("too large", "Write a number up to {le:g}"),
}
_SECRET = ("engine.env", "engine.api_key_env")
_ITEM = re.compile(r"\[\d+\]")


def problems(errors: Sequence[Mapping[str, Any]], *, document: Document) -> list[Problem]:
    """Pydantic's errors (`ValidationError.errors()`) as problems with their lines."""
    return [_problem(error, document=document) for error in errors if not _echoes(error, document)]


def _echoes(error: Mapping[str, Any], document: Document) -> bool:
    """Says nothing of its own: parts that do not fit are told by `misfits`, and a list of bad entries is not empty."""
    kind = error["type"]
    return kind == "plan_misfits" or (kind == "too_short" and bool(_lookup(document.data, tuple(error["loc"]))))


def _problem(error: Mapping[str, Any], *, document: Document) -> Problem:
    path: Path = tuple(error["loc"])
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return _missing(path, document)
    if kind == "extra_forbidden":
        return _unknown(path, document)
    # Types that are a choice (a flag, one length or a list) put steps into the path that the file does not have.
    while path and path not in document.lines:
        path = path[:-1]
    seen, remedy = _seen_and_remedy(kind, context=context, path=path, document=document, message=error["msg"])
    return Problem(place(path), seen, remedy, document.line(path))


def _seen_and_remedy(
    kind: str, *, context: Mapping[str, Any], path: Path, document: Document, message: str
) -> tuple[str, str]:
    value, example = _shown(path, document), _example(path)
    if kind in _NOT_A:
        return _wrong_type(kind, value=value, example=example, scalar=path in document.written)
    if kind in _BOUNDS:
        word, remedy = _BOUNDS[kind]
        return f"{value} is {word}", remedy.format(**context)
    if kind == "enum":
        return _no_choice(value, choices=re.findall(r"'([^']*)'", context["expected"]))
    fixed = {
        "plan": (context.get("seen", ""), context.get("remedy", "")),
        "string_too_short": ("this is empty", example),
        "too_short": ("this is empty", example),
        "string_too_long": (f"{value} is too long", f"Use at most {context.get('max_length')} characters"),
        "string_pattern_mismatch": (
            f"{value} is no name",
            "Begin with a letter or digit; then also spaces, dots, dashes and underscores",
        ),
    }
    return fixed.get(kind, (f"{value} is refused: {message}", example))


def _wrong_type(kind: str, *, value: str, example: str, scalar: bool) -> tuple[str, str]:
    if kind == "string_type" and scalar and value != "nothing":
        return f"{value} is not text", f"Put it in quotes: {quoted(value)}"
    if value == "nothing":
        return f"nothing is written here, where {_NOT_A[kind]} belongs", f"{example or 'Fill it in'}, or remove the key"
    return f"{value} is not {_NOT_A[kind]}", example


def _no_choice(value: str, *, choices: list[str]) -> tuple[str, str]:
    near = difflib.get_close_matches(value.strip('"').lower(), choices, n=1)
    meant = f"Did you mean {near[0]}? " if near else ""
    return f"{value} is not known here", f"{meant}Use one of: {', '.join(choices)}"


def _shown(path: Path, document: Document) -> str:
    if place(path).startswith(_SECRET):
        return "this value"
    if path in document.written:
        value = _lookup(document.data, path)
        text = document.written[path]
        return "nothing" if value is None else quoted(text) if isinstance(value, str) else quoted(text)[1:-1]
    return "a list" if isinstance(_lookup(document.data, path), list) else "a mapping"


def _lookup(data: Any, path: Path) -> object:
    for step in path:
        data = data[step]
    return data


def _generic(path: Path) -> str:
    return _ITEM.sub("[]", place(path))


def _example(path: Path) -> str:
    """`Write e.g. ...` for the key at the path, or for the list that the path is an item of; may be empty."""
    generic = _generic(path)
    key = reference.keys().get(generic) or reference.keys().get(generic.removesuffix("[]"))
    if key is None and (part := reference.keys().get(f"{generic}[]")):
        key = part
    return f"Write e.g. {key.name}: {key.example}" if key and key.example else ""


def _missing(path: Path, document: Document) -> Problem:
    return Problem(place(path), "this key is missing", _example(path), document.line(path[:-1]))


def _unknown(path: Path, document: Document) -> Problem:
    name, parent = str(path[-1]), _generic(path[:-1])
    known = reference.children(parent)
    near = difflib.get_close_matches(_folded(name), known, n=1, cutoff=0.6)
    elsewhere = [key.path for key in reference.keys().values() if key.name == _folded(name)]
    if near:
        remedy = f"Did you mean {near[0]}?"
    elif elsewhere:
        remedy = f"It belongs at {elsewhere[0]}"
    else:
        remedy = f"Known here: {', '.join(known)}"
    return Problem(place(path), "there is no such key", remedy, document.line(path))


def _folded(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")
