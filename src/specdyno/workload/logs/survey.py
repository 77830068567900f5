"""What a set of prompts looks like, for `inspect`: an import, a built-in class, any file of prompts or sessions.

Knows lengths, turns and languages, and predicts how useful drafts from history would be: which part of an answer's
words lies in runs of at least four words that its own prompt, or an earlier answer of the same class, also holds. That
is a prediction from text, not a measurement: it knows no tokens, no engine and no draft length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from specdyno.errors import PlanError, Problem
from specdyno.plan.workload import TrafficClass
from specdyno.workload import classes, packages
from specdyno.workload.logs import folder
from specdyno.workload.logs.classify import CLASSES
from specdyno.workload.logs.language import language_of
from specdyno.workload.logs.request import Refused, text_of
from specdyno.workload.logs.tally import quantiles
from specdyno.workload.rows import by_reason
from specdyno.workload.sessions import ClassSessions, load_sessions
from specdyno.workload.sources import ClassPrompts, load_class

RUN = 4
"""Words: shorter runs are found in any two texts."""
_MOST = 1000
_WORDS_LOOKED_AT = 4000
_WORD = re.compile(r"\w+|[^\w\s]")
_PARTS = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Quantiles of a length, and in which unit. `known` counts the requests that have it."""

    low: float
    middle: float
    high: float
    known: int
    unit: str


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One class. None where it is not known; `share` and `requests` are those of the log where there was one.

    `from_prompt` and `from_answers` are fractions of words (see the module); `answers` counts what they rest on.
    """

    name: str
    requests: int
    kept: int
    share: float | None
    prompt: Lengths | None
    answer: Lengths | None
    turns: Lengths | None
    languages: tuple[tuple[str, float], ...]
    from_prompt: float | None = None
    from_answers: float | None = None
    answers: int = 0


@dataclass(frozen=True, slots=True)
class Survey:
    """What `inspect` shows of one source. `account` is that of an import, None elsewhere."""

    source: str
    classes: tuple[Surveyed, ...]
    skipped: tuple[tuple[str, tuple[int, ...]], ...] = ()  # reason, and the lines that cannot be used for it
    duplicates: int = 0
    account: Mapping[str, Any] | None = None


def survey(source: str) -> Survey:
    """Looks at an import's folder, at `builtin:NAME` or `package:NAME`, or at a file of prompts or sessions.

    Raises:
        PlanError: no such source, or nothing usable in it.
    """
    path = Path(source)
    if path.is_dir():
        return _of_folder(path)
    name = source.removeprefix(classes.PREFIX) if source.startswith(classes.PREFIX) else path.name.partition(".")[0]
    if source.startswith(classes.PREFIX):
        if name in classes.SESSIONS:
            return _surveyed_sessions(name, source)
        rows = _lines(classes.read(name))
    elif source.startswith(packages.PREFIX):
        return _surveyed_prompts(source.rpartition(":")[2], source, [])
    else:
        rows = _rows(path)
        if rows and isinstance(rows[0], dict) and isinstance(rows[0].get("turns"), list) and _speaks(rows[0]["turns"]):
            return _surveyed_sessions(name, source)
    return _surveyed_prompts(name, source, rows)


def _surveyed_sessions(name: str, source: str) -> Survey:
    found = load_sessions(source, Path())
    return Survey(source, (_of_sessions(name, found),), by_reason(found.skipped), found.duplicates)


def _surveyed_prompts(name: str, source: str, rows: Sequence[Any]) -> Survey:
    shown = re.sub(r"[^A-Za-z0-9 _.-]", "-", name).strip(" _.-")[:40] or "prompts"
    found = load_class(TrafficClass(name=shown, prompts=source, share=1.0, max_tokens=1), Path())
    return Survey(source, (_of_prompts(shown, found, rows),), by_reason(found.skipped), found.duplicates)


def _speaks(turns: Sequence[Any]) -> bool:
    return bool(turns) and isinstance(turns[0], dict) and "messages" in turns[0]


def _of_folder(path: Path) -> Survey:
    try:
        account = orjson.loads((path / folder.ACCOUNT).read_bytes())
        stated = account["classes"]
        found = [_logged(name, stated[name], path / f"{name}.jsonl") for name in CLASSES if name in stated]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        seen = f"is a folder without a readable {folder.ACCOUNT}"
        raise PlanError([Problem(str(path), seen, "Name a folder that `workload import` made, or a file")]) from error
    return Survey(str(path), tuple(found), account=account)


def _logged(name: str, stated: Mapping[str, Any], path: Path) -> Surveyed:
    """A class of an import: counts and lengths of the whole log, overlap and languages of what was kept."""
    rows = _lines(path.read_bytes()) if path.exists() else []
    from_prompt, from_answers, answers = _predicted(rows)
    return Surveyed(
        name, stated["requests"], stated["kept"], stated["share"],
        _stated(stated, "prompt_tokens", "prompt_characters"), _stated(stated, "output_tokens", "answer_characters"),
        _stated(stated, "turn", "turn"), _languages(_question(row) for row in rows), from_prompt, from_answers, answers,
    )  # fmt: skip


def _stated(stated: Mapping[str, Any], tokens: str, characters: str) -> Lengths | None:
    for key, unit in ((tokens, "turns" if tokens == "turn" else "tokens"), (characters, "characters")):
        found = stated.get(key)
        if found:
            return Lengths(found["p10"], found["p50"], found["p90"], found["known"], unit)
    return None


def _of_prompts(name: str, pool: ClassPrompts, rows: Sequence[Any]) -> Surveyed:
    found = pool.prompts
    asked: list[Mapping[str, Any]] = [
        {"messages": list(one.messages)} if one.messages is not None else {"prompt": one.prompt} for one in found
    ]
    kept = [row for row in rows if isinstance(row, dict)]
    from_prompt, from_answers, answers = _predicted(kept)
    return Surveyed(
        name, len(found), len(found), None,
        _lengths([len(_asked_text(row)) for row in asked], "characters"), _answer_lengths(kept),
        _lengths([1 + sum(m.get("role") == "assistant" for m in row.get("messages") or ()) for row in asked], "turns"),
        _languages(_question(row) for row in asked), from_prompt, from_answers, answers,
    )  # fmt: skip


def _of_sessions(name: str, found: ClassSessions) -> Surveyed:
    """Sessions: each answer's prompt is the whole talk before it, earlier answers are those of other sessions too."""
    requests: list[dict[str, Any]] = []
    for session in found.sessions:
        talk: list[Any] = [{"role": "system", "content": session.system}] if session.system else []
        for turn in session.turns:
            talk = [*talk, *turn.messages]
            requests.append({"messages": talk, "answer": turn.recorded})
            talk = [*talk, turn.recorded] if turn.recorded else talk
    from_prompt, from_answers, answers = _predicted(requests)
    return Surveyed(
        name, len(requests), len(found.sessions), None,
        _lengths([len(_asked_text(row)) for row in requests], "characters"), _answer_lengths(requests),
        _lengths([len(session.turns) for session in found.sessions], "turns"),
        _languages(_question(row) for row in requests), from_prompt, from_answers, answers,
    )  # fmt: skip


def _rows(path: Path) -> list[Any]:
    try:
        data = path.read_bytes()
    except OSError:
        return []  # its reader says what is wrong
    if data.lstrip()[:1] == b"[":
        try:
            return list(orjson.loads(data))
        except orjson.JSONDecodeError:
            pass
    return _lines(data)


def _lines(data: bytes) -> list[Any]:
    rows = []
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        try:
            rows.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            continue
    return rows


def _lengths(values: Sequence[int], unit: str) -> Lengths | None:
    if not values:
        return None
    low, middle, high = quantiles(Counter(values), _PARTS)
    return Lengths(low, middle, high, len(values), unit)


def _answer_lengths(rows: Sequence[Mapping[str, Any]]) -> Lengths | None:
    stated = [row["output_tokens"] for row in rows if isinstance(row.get("output_tokens"), int)]
    if stated:
        return _lengths(stated, "tokens")
    return _lengths([len(text) for text in map(_answer_text, rows) if text is not None], "characters")


def _languages(questions: Iterable[str]) -> tuple[tuple[str, float], ...]:
    counts = Counter(language_of(question) or "unknown" for question in questions)
    whole = counts.total()
    return tuple((code, count / whole) for code, count in counts.most_common())


def _asked_text(row: Mapping[str, Any]) -> str:
    if isinstance(row.get("messages"), list):
        return "\n".join(_message_text(message) for message in row["messages"] if isinstance(message, dict))
    return str(row.get("prompt") or "")


def _question(row: Mapping[str, Any]) -> str:
    messages = row["messages"] if isinstance(row.get("messages"), list) else []
    asked = [one for one in messages if isinstance(one, dict) and one.get("role") == "user"]
    return _message_text(asked[-1]) if asked else str(row.get("prompt") or "")


def _answer_text(row: Mapping[str, Any]) -> str | None:
    answer = row.get("answer")
    if isinstance(answer, str):
        return answer
    return _message_text(answer) if isinstance(answer, dict) else None


def _message_text(message: Mapping[str, Any]) -> str:
    """What a message says, with the arguments of its calls."""
    try:
        text = text_of(message.get("content"))
    except Refused:
        text = ""
    calls = message.get("tool_calls") or ()
    made = [call["function"] for call in calls if isinstance(call, dict) and isinstance(call.get("function"), dict)]
    return "\n".join([text, *(f"{one.get('name', '')} {one.get('arguments', '')}" for one in made)]) if made else text


def _predicted(rows: Sequence[Any]) -> tuple[float | None, float | None, int]:
    """Parts of the answers' words that lie in runs of the own prompt, and in runs of earlier answers; answers seen."""
    words = inside_prompt = inside_answers = answers = 0
    earlier: set[int] = set()
    for row in rows[:_MOST]:
        text = _answer_text(row) if isinstance(row, dict) else None
        said = _WORD.findall(text)[:_WORDS_LOOKED_AT] if text else []
        if not said:
            continue
        answers += 1
        words += len(said)
        runs = _runs(said)
        asked = _WORD.findall(_asked_text(row))
        inside_prompt += covered(runs, set(_runs(asked[-4 * _WORDS_LOOKED_AT :])))
        inside_answers += covered(runs, earlier)
        earlier.update(runs)
    if not answers:
        return None, None, 0
    return inside_prompt / words, (inside_answers / words if answers > 1 else None), answers


def _runs(words: Sequence[str]) -> list[int]:
    return [hash(tuple(words[i : i + RUN])) for i in range(len(words) - RUN + 1)]


def covered(runs: Sequence[int], known: set[int]) -> int:
    """How many words lie in at least one run that is known.

    >>> covered([1, 2, 3], {1})
    4
    """
    total, end = 0, 0
    for place, run in enumerate(runs):
        if run in known:
            total += place + RUN - max(place, end)
            end = place + RUN
    return total
