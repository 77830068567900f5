"""One stretch of a log to numbers: what each request is, without its text.

Runs in worker processes, so what it returns is small and plain: arrays with one entry a request, and counts. Imports
little, because every worker starts with it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from specdyno.workload.logs.beginnings import STRANGE, Beginnings
from specdyno.workload.logs.classify import CLASSES, class_of, look
from specdyno.workload.logs.formats import is_result, requests
from specdyno.workload.logs.language import language_of
from specdyno.workload.logs.request import Refused, Request
from specdyno.workload.logs.walk import Walk, answer_key, walk

if TYPE_CHECKING:
    from specdyno.workload.logs.join import Results

LONGEST_ROW = 64 * 1024 * 1024
"""Bytes: a longer line is refused unread."""
SHOWN_LINES = 5
UNKNOWN = -1
NO_LANGUAGE = "unknown"
_ALL_LANGUAGES = (
    8 * 1024 * 1024
)  # bytes of a file; beyond, every sixteenth request stands for sixteen: telling takes long
_LONGEST_BLANK = 200
_MIX = 0x9E3779B97F4A7C15
_CODES = {name: code for code, name in enumerate(CLASSES)}


# One entry a request. `place` is the byte offset of the row in its file, `nth` the request's number within the row;
# `key` is the hash of what is asked, `open_key` that of the conversation with its answer (0: no answer).
COLUMNS = {
    "place": "q", "size": "q", "nth": "l", "kind": "b", "turn": "l", "prompt_tokens": "q", "output_tokens": "q",
    "prompt_characters": "q", "answer_characters": "q", "start_s": "d", "end_s": "d", "key": "q", "open_key": "q",
    "session": "q", "trace": "q", "prefix_end": "q",
}  # fmt: skip
Stated = tuple[str, str | None, float | None, float | None, tuple[str, ...], int | None, int]


@dataclass(slots=True)
class Facts:
    """What a stretch of a log holds. Unknown counts are -1, unknown times are 0.

    `columns` are arrays by the names of `COLUMNS`. `prefixes` are the hashes of the histories' answers; those of a
    request end at its `prefix_end`. `stated` counts what requests state: format, model, temperature, top_p, stop,
    limit, class. Languages of large logs are an estimate.
    """

    lines: int = 0
    rows: int = 0
    requests: int = 0
    joined: int = 0
    columns: dict[str, array[Any]] = field(default_factory=dict)
    prefixes: array[int] = field(default_factory=lambda: array("q"))
    stated: Counter[Stated] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    refused: dict[str, tuple[int, list[int]]] = field(default_factory=dict)  # reason: (rows, first lines)


def scan(data: bytes, *, start: int, results: Results | None = None, beginnings: Beginnings | None = None) -> Facts:
    """The facts of the whole lines in `data`, which begins at byte `start` of its file; lines count from 1.

    `beginnings` spares the reading of what rows repeat; it does not change what is found.
    """
    facts = Facts()
    found: list[tuple[Any, ...]] = []
    begin, number, blank, whole, rows = 0, 0, 0, len(data), memoryview(data)
    while begin < whole:
        end = data.find(b"\n", begin)
        end = whole if end < 0 else end
        number += 1
        if end - begin < _LONGEST_BLANK and (end == begin or data[begin:end].isspace()):
            blank += 1
        else:
            try:
                known = _known(beginnings, (data, begin, end), results) if beginnings is not None else None
                if known is None:
                    _row(facts, found, rows[begin:end], place=start + begin, results=results)
                else:
                    found.append((start + begin, end - begin, 0, *_columns(facts, start + begin, *known)))
            except Refused as reason:
                refuse(facts, str(reason), number)
            except STRANGE:
                refuse(facts, "has fields of an unexpected type", number)
        begin = end + 1
    facts.lines = number
    facts.rows = number - blank
    facts.requests = len(found)
    columns = zip(*found, strict=True) if found else (() for _ in COLUMNS)
    facts.columns = {name: array(code, column) for (name, code), column in zip(COLUMNS.items(), columns, strict=True)}
    return facts


def refuse(facts: Facts, reason: str, line: int) -> None:
    count, lines = facts.refused.get(reason, (0, []))
    facts.refused[reason] = (count + 1, [*lines, line] if len(lines) < SHOWN_LINES else lines)


def parsed(line: bytes | memoryview) -> Any:
    """A row of a log.

    Raises:
        Refused: it is no JSON, or no UTF-8.
    """
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        line = bytes(line)
        if b"\0" in line:
            raise Refused("holds binary data") from error
        try:
            line.decode()
        except UnicodeDecodeError:
            raise Refused("is not UTF-8 text") from error
        raise Refused("is cut off" if error.pos >= len(line.rstrip()) - 1 else "is no JSON") from error


def _row(facts: Facts, found: list[tuple[Any, ...]], line: memoryview, *, place: int, results: Results | None) -> None:
    row = parsed(bytes(line).removeprefix(b"\xef\xbb\xbf") if place == 0 else line)
    result = None
    if results is not None and isinstance(row, dict) and "custom_id" in row:
        if is_result(row) and results.asked(row["custom_id"]):
            facts.joined += 1
            return
        result = results.of(row["custom_id"])
    of_row = requests(row, result)
    if len(of_row) == 1:
        found.append((place, len(line), 0, *_request(facts, of_row[0], place)))
        return
    reason: Refused | None = None
    for number, request in enumerate(of_row):
        try:
            found.append((place, len(line), number, *_request(facts, request, place)))
        except Refused as why:
            reason = why
    if reason is not None:
        raise reason


def _known(
    beginnings: Beginnings, row: tuple[bytes, int, int], results: Results | None
) -> tuple[Request, Walk, bytes | None] | None:
    """A request and its tools as JSON out of a row (bytes from, to) without what is known; None: read it in full."""
    short = beginnings.shortened(*row)
    if short is None:
        return None
    try:
        value = orjson.loads(short.row)
        result = results.of(value["custom_id"]) if results is not None and "custom_id" in value else None
        (request,) = requests(value, result)
        if short.holds(request.messages, request.tools):
            found = walk(request, short.walk)
            if short.tools is None:
                return request, found, None
            request.tools = short.tools.tools
            return request, found, short.tools.dumped
    except (Refused, *STRANGE):
        pass  # the full row says why
    beginnings.lost()
    return None


def _request(facts: Facts, request: Request, place: int) -> tuple[Any, ...]:
    """The further columns of a request."""
    return _columns(facts, place, request, walk(request))


def _columns(facts: Facts, place: int, request: Request, found: Walk, tools: bytes | None = None) -> tuple[Any, ...]:
    seen = look(request, found)
    kind = _CODES[class_of(seen)]
    answer, length, open_key = request.answer, UNKNOWN, 0
    if answer is not None:
        calls, length = answer.get("tool_calls"), seen.answer_length
        if calls:
            length += sum(len(one["function"]["arguments"]) for one in calls)
        open_key = answer_key(found.key, answer.get("content") or "", calls)
    key = hash((found.key, tools or orjson.dumps(request.tools))) if request.tools else found.key
    facts.prefixes.extend(found.prefixes)
    limit = request.sampling.get
    stop = tuple(limit("stop") or ())
    stated = (request.format, request.model, limit("temperature"), limit("top_p"), stop, limit("max_tokens"), kind)
    facts.stated[stated] += 1
    weight = 1 if place < _ALL_LANGUAGES else 0 if place * _MIX >> 60 & 15 else 16
    if weight:
        facts.languages[language_of(found.question) or NO_LANGUAGE] += weight
    return (
        kind, found.turn, UNKNOWN if request.prompt_tokens is None else request.prompt_tokens,
        UNKNOWN if request.output_tokens is None else request.output_tokens, found.characters, length,
        request.start_s or 0.0, request.end_s or 0.0, key, open_key,
        0 if request.session is None else hash(request.session), 0 if request.trace is None else hash(request.trace),
        len(facts.prefixes),
    )  # fmt: skip
