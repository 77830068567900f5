"""What is kept of a log, read again from its place: rows of prompt files and of session files.

Owns the shape of what is written; the readers of `workload.rows` and `workload.sessions` have the last word on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from specdyno.workload.logs.chains import Chain, Place
from specdyno.workload.logs.classify import code_share
from specdyno.workload.logs.formats import requests
from specdyno.workload.logs.join import Results
from specdyno.workload.logs.request import Refused, Request, text_of
from specdyno.workload.logs.scan import parsed
from specdyno.workload.rows import UnusableRow, asked
from specdyno.workload.sessions import collect_sessions

_KEPT_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")
_LONGEST_PAUSE_S = 3600.0


class Reader:
    """Reads requests again, by their place. Holds the file that it read last open until `close`."""

    def __init__(self, paths: Sequence[Path], results: Results | None) -> None:
        self._paths = paths
        self._results = results
        self._file: tuple[int, BinaryIO] | None = None

    def close(self) -> None:
        if self._file is not None:
            self._file[1].close()
            self._file = None

    def request(self, place: Place) -> Request:
        """The request at a place that the first reading found usable."""
        file, start, size, number = place
        log = self._opened(file)
        log.seek(start)
        line = log.read(size)
        row = parsed(line.removeprefix(b"\xef\xbb\xbf"))
        result = self._results.of(row["custom_id"]) if self._results is not None and "custom_id" in row else None
        return requests(row, result)[number]

    def _opened(self, file: int) -> BinaryIO:
        if self._file is None or self._file[0] != file:
            self.close()
            self._file = file, self._paths[file].open("rb")
        return self._file[1]

    def prompts(self, places: Sequence[Place]) -> Iterator[dict[str, Any]]:
        """Rows of a prompt file; those that its reader would refuse are left out."""
        for number, place in enumerate(places, start=1):
            row = prompt_row(self.request(place), number)
            try:
                asked(row)
            except UnusableRow:
                continue
            yield row

    def sessions(self, chains: Sequence[Chain], left_out: dict[str, int]) -> Iterator[dict[str, Any]]:
        """Rows of a session file; `left_out` counts those that cannot be replayed, by reason."""
        for number, chain in enumerate(chains, start=1):
            try:
                row = session_row(self.request(chain.last), chain, number)
            except Refused as reason:
                left_out[str(reason)] = left_out.get(str(reason), 0) + 1
                continue
            skipped = collect_sessions([(number, row)]).skipped
            if skipped:
                reason_text = "has messages in an order or a shape that cannot be replayed"
                left_out[reason_text] = left_out.get(reason_text, 0) + 1
                continue
            yield row


def prompt_row(request: Request, number: int) -> dict[str, Any]:
    """One line of a class's file: what is asked, and beside it the answer and how it was sampled."""
    row: dict[str, Any] = {"id": f"{number:06d}"}
    if request.messages is not None:
        row["messages"] = [_clean(message) for message in request.messages]
    else:
        row["prompt"] = request.prompt
    stated = {
        "tools": request.tools,
        "tool_choice": request.tool_choice,
        "response_format": request.response_format,
        "sampling": request.sampling or None,
        "output_tokens": request.output_tokens,
        "answer": _clean(request.answer) if request.answer is not None else None,
    }
    return row | {key: value for key, value in stated.items() if value is not None}


def session_row(request: Request, chain: Chain, number: int) -> dict[str, Any]:
    """A session out of its last request, which holds the whole talk.

    Raises:
        Refused: the talk cannot be replayed turn by turn.
    """
    if request.messages is None:
        raise Refused("is a bare prompt")
    talk = [_clean(message) for message in request.messages]
    system: list[str] = []
    while talk and talk[0]["role"] in ("system", "developer"):
        system.append(text_of(talk.pop(0)["content"]))
    if request.answer is not None:
        talk.append(_clean(request.answer))
    turns: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []
    for message in talk:
        if message["role"] != "assistant":
            said.append(message)
            continue
        if not said:
            raise Refused("has two answers in a row")
        turns.append({"phase": _phase(said, message), "messages": said, "recorded": message})
        said = []
    if said:
        turns.append({"phase": "turn", "messages": said})
    for place, pause_s in _pauses(chain).items():
        if place <= len(turns):
            turns[place - 1]["pause_s"] = round(pause_s, 3)
    row = {"id": f"{number:06d}", "turns": turns}
    return (
        row | ({"system": "\n\n".join(system)} if system else {}) | ({"tools": request.tools} if request.tools else {})
    )


def _pauses(chain: Chain) -> dict[int, float]:
    """Seconds between an answer and the next question, by turn, where the log has both times."""
    found = {}
    for (before, _, end), (turn, start, _) in zip(chain.times, chain.times[1:], strict=False):
        if turn == before + 1 and end and start >= end:
            found[turn] = min(start - end, _LONGEST_PAUSE_S)
    return found


def _phase(said: Sequence[Mapping[str, Any]], answer: Mapping[str, Any]) -> str:
    text = text_of(answer.get("content"))
    if answer.get("tool_calls"):
        return "tool_call"
    if code_share(text) >= 1 / 3:
        return "code"
    if said[-1]["role"] == "tool":
        return "tool_result_reading"
    if text[:1] in ("{", "["):
        return "structured"
    return "acknowledgement" if len(text) <= 60 else "chat"


def _clean(message: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that a server takes; a name that is null is none."""
    found = {key: message[key] for key in _KEPT_KEYS if message.get(key) is not None}
    return found if "content" in found else found | {"content": None}
