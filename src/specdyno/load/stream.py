"""Raw bytes to a request's facts, after the timed part.

Owns the reading of server-sent events and of plain JSON answers, each event parsed; `load.template` reads most of a
stream at less cost, to the same facts. A chunk is an event that carried text; it may hold
none, one or many tokens, and tokens come from `usage` alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from specdyno.engine.reading.per_request import spec_steps
from specdyno.records.schema import Outcome, SpecSteps

_REASONING_KEYS = ("reasoning_content", "reasoning")
# An event with nothing beyond these cannot report acceptance; it is most of a stream, and looking closer costs most.
_PLAIN = frozenset({"id", "object", "created", "model", "choices", "system_fingerprint", "service_tier", "usage"})
_PLAIN_CHOICE = frozenset({"index", "delta", "text", "logprobs", "finish_reason", "stop_reason", "token_ids"})
_BROKEN_REASONS = frozenset({"abort", "error"})


@dataclass(slots=True)
class Answer:
    """What one answer said. `chunk_ns[i]` is the stamp of the read that completed the data of the i-th text event."""

    chunk_ns: list[int] = field(default_factory=list)
    chunk_chars: list[int] = field(default_factory=list)
    text: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    spec: SpecSteps | None = None
    error: str = ""
    ended: bool = False  # [DONE] was seen


def read_stream(reads: Iterable[tuple[int, bytes]]) -> Answer:
    """The events of a stream given as (stamp in ns, bytes) reads, in order, each event parsed.

    Events may be split over reads at any byte; an event is stamped by the read that completed its data. Line ends may
    be LF or CRLF, also split over reads; comments and unknown fields are skipped. A data line that is whole JSON is an
    event of its own, whether or not a blank line follows; other data lines are joined up to the next blank line.
    """
    assembly = Assembly()
    for stamp_ns, data in reads:
        assembly.feed(data, stamp_ns)
    return assembly.finish()


def read_whole(body: bytes, stamp_ns: int) -> Answer:
    """A non-streamed JSON answer as one chunk."""
    answer = Assembly()
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer.answer.error = "the answer is not JSON"
        return answer.finish()
    if not isinstance(payload, dict):
        answer.answer.error = "the answer is not a JSON object"
        return answer.finish()
    answer.add_payload(payload, stamp_ns)
    answer.answer.ended = True
    return answer.finish()


def outcome(answer: Answer) -> Outcome:
    """How a fully received answer ended; without its last event (usage or [DONE]) it is broken."""
    if answer.error or answer.finish_reason in _BROKEN_REASONS or not (answer.ended or answer.usage is not None):
        return Outcome.BROKEN_STREAM
    if answer.finish_reason == "length":
        return Outcome.CUT_AT_LIMIT
    if answer.finish_reason is not None:
        return Outcome.FINISHED
    return Outcome.BROKEN_STREAM


class Assembly:
    """Collects the parts of an answer; text pieces are joined once."""

    def __init__(self) -> None:
        self.answer = Answer()
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: dict[int, dict[str, Any]] = {}
        self._rest = b""  # of a line
        self._unfinished: list[bytes] = []  # data lines that are no JSON by themselves
        self._stamp_ns = 0

    @property
    def between(self) -> bool:
        """Whether the next byte begins an event."""
        return not (self._rest or self._unfinished)

    def feed(self, data: bytes, stamp_ns: int) -> None:
        self._stamp_ns = stamp_ns
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._add_line(line, stamp_ns)

    def _add_line(self, line: bytes, stamp_ns: int) -> None:
        if line.startswith(b"data:"):
            data = line[5:].strip()
            if self._unfinished or not self._add_data(data, stamp_ns):
                self._unfinished.append(data)
        elif not line.strip():
            self._end_event(stamp_ns)

    def _end_event(self, stamp_ns: int) -> None:
        if not self._unfinished:
            return
        if not self._add_data(b"\n".join(self._unfinished), stamp_ns):
            self.answer.error = self.answer.error or "an event of the stream is not JSON"
        self._unfinished = []

    def _add_data(self, data: bytes, stamp_ns: int) -> bool:
        """False where the data is not whole."""
        if data == b"[DONE]":
            self.answer.ended = True
        elif data:
            try:
                payload = orjson.loads(data)
            except orjson.JSONDecodeError:
                return False
            if isinstance(payload, dict):
                self.add_payload(payload, stamp_ns)
        return True

    def add_payload(self, payload: dict[str, Any], stamp_ns: int) -> None:
        if payload.get("error"):
            self.answer.error = _error_text(payload["error"])
        if isinstance(payload.get("usage"), dict):
            self.answer.usage = payload["usage"]
        choices = payload.get("choices")
        characters, plain = 0, payload.keys() <= _PLAIN
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                characters += self._add_choice(choice)
                plain = plain and choice.keys() <= _PLAIN_CHOICE
        if characters:
            self.answer.chunk_ns.append(stamp_ns)
            self.answer.chunk_chars.append(characters)
        if not plain and (spec := spec_steps(payload)) is not None:
            self.answer.spec = spec

    def _add_choice(self, choice: dict[str, Any]) -> int:
        if choice.get("finish_reason"):
            self.answer.finish_reason = str(choice["finish_reason"])
        part = choice.get("delta") or choice.get("message")
        if not isinstance(part, dict):
            part = {"content": choice.get("text")}
        characters = _append(self.text, part.get("content"))
        for key in _REASONING_KEYS:
            if part.get(key):
                characters += _append(self.reasoning, part[key])
                break
        calls = part.get("tool_calls")
        if not calls:
            return characters
        for place, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                characters += self._add_call(call, place)
        return characters

    def _add_call(self, call: dict[str, Any], place: int) -> int:
        index = call.get("index") if isinstance(call.get("index"), int) else place
        known = self.call(int(index or 0))
        known["id"] = call.get("id") or known["id"]
        function = call.get("function") if isinstance(call.get("function"), dict) else {}
        characters = 0
        for key in ("name", "arguments"):
            piece = (function or {}).get(key)
            if isinstance(piece, dict | list):
                piece = orjson.dumps(piece).decode()
            if isinstance(piece, str) and piece:
                known[key] += piece
                characters += len(piece)
        return characters

    def call(self, index: int) -> dict[str, Any]:
        """The tool call of this index so far."""
        return self.calls.setdefault(index, {"id": None, "name": "", "arguments": ""})

    def finish(self) -> Answer:
        """The answer of all that was fed, an open event included. Nothing can be fed after it."""
        self._add_line(self._rest, self._stamp_ns)
        self._end_event(self._stamp_ns)
        self.answer.text = "".join(self.text)
        self.answer.reasoning = "".join(self.reasoning)
        self.answer.tool_calls = [call for _, call in sorted(self.calls.items())]
        return self.answer


def _append(pieces: list[str], piece: object) -> int:
    if not isinstance(piece, str) or not piece:
        return 0
    pieces.append(piece)
    return len(piece)


def _error_text(error: object) -> str:
    if isinstance(error, dict):
        return str(error.get("message") or error)[:500]
    return str(error)[:500]
