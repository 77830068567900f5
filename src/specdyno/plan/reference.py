"""Every key of a plan, read from the schema: path, how it is written, default, meaning.

Messages, the template of `specdyno init`, `check` and the table in `docs/plan.md` all come from here, so that none
of them can know a key that the others do not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from specdyno.plan.schema import Plan
from specdyno.plan.spelling import duration_text


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `path` is generic: `candidates[].draft_tokens`. `default` is None where the key must be written."""

    path: str
    written: str
    default: str | None
    meaning: str
    example: str
    leaf: bool

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2].removesuffix("[]")


@cache
def keys() -> dict[str, Key]:
    """All keys by generic path, in the order of the schema, the parts before their own keys."""
    schema = Plan.model_json_schema()
    return {key.path: key for key in _keys(schema, definitions=schema["$defs"], prefix="")}


def children(path: str) -> list[str]:
    """Names of the keys that may stand directly under a generic path; the empty path is the plan itself."""
    prefix = f"{path}." if path else ""
    return [
        key.name for key in keys().values() if key.path.startswith(prefix) and "." not in key.path.removeprefix(prefix)
    ]


def table() -> str:
    """The Markdown table of `docs/plan.md`."""
    rows = ["| key | written as | default | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{key.path}` | {key.written} | {f'`{key.default}`' if key.default is not None else '—'} | {key.meaning} |"
        for key in keys().values()
        if key.leaf
    ]
    return "\n".join(rows) + "\n"


def _keys(schema: dict[str, Any], *, definitions: dict[str, Any], prefix: str) -> list[Key]:
    found = []
    for name, entry in schema["properties"].items():
        here = _resolved(entry, definitions)
        items = _resolved(here.get("items", {}), definitions)
        inner = here if "properties" in here else items if "properties" in items else None
        path = f"{prefix}{name}[]" if inner is items else f"{prefix}{name}"
        found.append(
            Key(
                path=path,
                written=_written(here, definitions),
                default=_default(here, required=name in schema.get("required", [])),
                meaning=here.get("description", ""),
                example=str(here.get("examples", [""])[0]),
                leaf=inner is None,
            )
        )
        if inner is not None:
            found += _keys(inner, definitions=definitions, prefix=f"{path}.")
    return found


def _resolved(entry: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in entry:
        return entry
    return {**definitions[entry["$ref"].rpartition("/")[2]], **entry}


_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "object": "mapping",
}


def _written(entry: dict[str, Any], definitions: dict[str, Any]) -> str:
    here = _resolved(entry, definitions)
    if "anyOf" in here:
        return " or ".join(_written(option, definitions) for option in here["anyOf"])
    if "enum" in here:
        return ", ".join(f"`{value}`" for value in here["enum"])
    if here.get("type") == "array":
        inner = _written(here["items"], definitions)
        return f"list of {inner.replace('whole number', 'whole numbers', 1).replace('text', 'texts', 1)}"
    return str(here.get("written") or _WORDS[here["type"]])


def _default(entry: dict[str, Any], *, required: bool) -> str | None:
    if required:
        return None
    value = entry.get("default", {} if entry.get("type") == "object" else None)
    if entry.get("written") == "duration" and isinstance(value, int | float):
        return duration_text(float(value))
    options = entry.get("anyOf", [entry])
    if any(option.get("written") == "share" for option in options) and isinstance(value, int | float):
        return share_text(value)
    return json.dumps(value, ensure_ascii=False)


def share_text(value: float) -> str:
    """A share as a percentage, if that reads back to the same number.

    >>> share_text(0.005), share_text(1 / 3)
    ('0.5%', '0.3333333333333333')
    """
    percent = f"{value * 100:g}"
    return f"{percent}%" if float(percent) / 100.0 == value else repr(value)
