"""Rows of logs, and imports of them, for the tests of the import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from specdyno.errors import PlanError
from specdyno.workload.logs.importing import import_logs

LOGS = Path(__file__).parents[2] / "data" / "logs"
ANSWER = "It was a fine time: we swam every morning, and in the evening there was music at the harbour."


def chat(question: str = "How was your holiday?", answer: str | None = ANSWER, **keys: Any) -> dict[str, Any]:
    given_answer = {"response": {"choices": [{"message": {"role": "assistant", "content": answer}}]}} if answer else {}
    return {"messages": [{"role": "user", "content": question}], **given_answer, **keys}


def log(folder: Path, *rows: Any, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_bytes(b"".join(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows))
    return path


def account_of(folder: Path, *rows: Any, **how: Any) -> dict[str, Any]:
    return import_logs([log(folder, *rows)], folder / "out", **how).account


def refusal(folder: Path, *paths: Path) -> str:
    with pytest.raises(PlanError) as caught:
        import_logs(paths, folder / "out")
    assert not (folder / "out").exists()
    assert not list(folder.glob(".import-*"))
    return str(caught.value)


def reasons(account: dict[str, Any]) -> dict[str, tuple[int, list[int]]]:
    return {one["reason"]: (one["rows"], [at["line"] for at in one["first"]]) for one in account["refused"]}


def jsonl(path: Path) -> list[Any]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def talk(turns: int, *, topic: str) -> list[Any]:
    """The requests of one conversation, each with the whole history."""
    history: list[Any] = []
    rows = []
    for n in range(turns):
        history = [*history, {"role": "user", "content": f"Question {n} about {topic}?"}]
        said = {
            "role": "assistant",
            "content": f"Answer {n} about {topic}, long enough to be no acknowledgement at all.",
        }
        times = {"start_time": 1000.0 + 60 * n, "end_time": 1010.0 + 60 * n}
        rows.append({"messages": history, "response": {"choices": [{"message": said}]}, **times})
        history = [*history, said]
    return rows
