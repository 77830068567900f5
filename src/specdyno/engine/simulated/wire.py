"""The OpenAI-compatible wire as vLLM speaks it: what a request asks and what goes back.

Owns the JSON shapes only; times and sockets belong to `server` and `scheduler`. A prompt token is four characters of
the prompt's text. Beside the usual keys a body may carry `specdyno_class`, the class of traffic it belongs to.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import orjson

from specdyno.engine.simulated.answers import Answer, Limits
from specdyno.engine.simulated.scheduler import SpecTally, Step

DONE = b"data: [DONE]\n\n"
CHARACTERS_PER_TOKEN = 4
_COMPLETION_TOKENS = 16  # what /v1/completions writes unless told otherwise
_ordinals = count(1)


class RefusedError(Exception):
    """The request is answered with this status and an error object."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        self.status = status
        self.kind = kind
        super().__init__(message)

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.kind, "param": None, "code": self.status}}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, read."""

    chat: bool
    model: str
    prompt: str
    stream: bool
    include_usage: bool
    limits: Limits
    tools: list[dict[str, Any]]
    class_name: str | None
    id: str = field(default_factory=lambda: f"{next(_ordinals):08d}")

    @property
    def prompt_seed(self) -> int:
        return int.from_bytes(hashlib.blake2b(self.prompt.encode(), digest_size=8).digest(), "big")

    @property
    def prompt_tokens(self) -> int:
        return max(1, -(-len(self.prompt) // CHARACTERS_PER_TOKEN))


def read_ask(raw: bytes, *, chat: bool, header_class: str | None, max_model_len: int) -> Ask:
    """A request body.

    Raises:
        RefusedError: 400 with the reason.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _bad(f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise _bad("the body must be a JSON object")
    if body.get("n") not in (None, 1):
        raise _bad("n must be 1")
    prompt = _chat_prompt(body.get("messages")) if chat else _plain_prompt(body.get("prompt"))
    room = max_model_len - max(1, -(-len(prompt) // CHARACTERS_PER_TOKEN))
    stop = body.get("stop") or ()
    named = body.get("specdyno_class") or header_class
    return Ask(
        chat=chat,
        model=str(body.get("model", "")),
        prompt=prompt,
        stream=bool(body.get("stream")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        limits=Limits(
            max_tokens=_max_tokens(body, room, default=room if chat else min(room, _COMPLETION_TOKENS)),
            min_tokens=int(body.get("min_tokens") or 0),
            ignore_eos=bool(body.get("ignore_eos")),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
        ),
        tools=(body.get("tools") or []) if chat and body.get("tool_choice") != "none" else [],
        class_name=str(named) if named else None,
    )


def _bad(message: str) -> RefusedError:
    return RefusedError(400, "BadRequestError", message)


def _max_tokens(body: dict[str, Any], room: int, *, default: int) -> int:
    asked = body.get("max_completion_tokens") or body.get("max_tokens")
    asked = default if asked is None else asked
    if not isinstance(asked, int) or asked < 1:
        raise _bad(f"max_tokens must be at least 1, got {asked}")
    if asked > room:
        raise _bad(f"max_tokens is too large: {asked}; the prompt leaves room for {room} tokens")
    return asked


def _chat_prompt(messages: Any) -> str:
    if not isinstance(messages, list) or not messages:
        raise _bad("messages must be a list with at least one message")
    lines = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content)
        if not isinstance(message, dict) or not isinstance(content, str | None):
            raise _bad("a message needs a role and a content")
        calls = orjson.dumps(message["tool_calls"]).decode() if message.get("tool_calls") else ""
        lines.append(f"{message.get('role', 'user')}: {content or ''}{calls}\n")
    return "".join(lines)


def _plain_prompt(prompt: Any) -> str:
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return " ".join(f"{token:03d}" for token in prompt)
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str) or not prompt:
        raise _bad("prompt must be one string or one list of token ids")
    return prompt


def usage(job_tokens: int, *, prompt_tokens: int, cached_tokens: int | None, reasoning: int) -> dict[str, Any]:
    """The usage object; `cached_tokens` None leaves its detail out."""
    counted: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + job_tokens,
        "completion_tokens": job_tokens,
    }
    if cached_tokens is not None:
        counted["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
    if reasoning:
        counted["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return counted


def speculative_decoding(tally: SpecTally, *, draft_tokens: int, detailed: bool) -> dict[str, Any]:
    """The per-request acceptance object, with vLLM's names."""
    steps, accepted, drafted = len(tally.accepted), sum(tally.accepted), sum(tally.drafted)
    report: dict[str, Any] = {
        "mean_acceptance_length": 1.0 + accepted / steps if steps else 1.0,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "acceptance_histogram": [tally.accepted.count(number) for number in range(draft_tokens + 1)],
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": draft_tokens,
    }
    if detailed and steps:
        report |= {"per_step_accepted": tally.accepted, "per_step_drafted": tally.drafted}
    return report


class Envelope:
    """Wraps parts of one answer into events and bodies of its endpoint."""

    def __init__(self, ask: Ask, answer: Answer, *, reasoning_field: str) -> None:
        self._ask = ask
        self._answer = answer
        self._reasoning_field = reasoning_field
        kind, prefix = ("chat.completion", "chatcmpl") if ask.chat else ("text_completion", "cmpl")
        self._kind = kind
        self._head = {"id": f"{prefix}-{ask.id}", "created": int(time.time()), "model": ask.model}

    def role(self) -> bytes:
        """The empty first chunk of a chat stream; nothing for completions."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, None) if self._ask.chat else b""

    def step(self, step: Step) -> bytes:
        """One event with the tokens of one step."""
        reason = self._answer.finish_reason if step.finished else None
        if not self._ask.chat:
            return self._chunk({"text": self._text(step.first, step.last)}, reason)
        return self._chunk({"delta": self._delta(step)}, reason)

    def closing(self, counted: dict[str, Any], metrics: dict[str, Any] | None) -> bytes:
        """The usage chunk: no choices."""
        return self._event({"choices": [], "usage": counted}, metrics)

    def whole(self, counted: dict[str, Any] | None, metrics: dict[str, Any] | None) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        end = len(self._answer)
        part: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": self._answer.finish_reason}
        if self._ask.chat:
            part["message"] = {"role": "assistant", "content": None, **self._delta(Step(0, end, finished=True))}
        else:
            part["text"] = self._text(0, end)
        body = {**self._head, "object": self._kind, "choices": [part], "usage": counted}
        return body if metrics is None else {**body, "metrics": metrics}

    def _delta(self, step: Step) -> dict[str, Any]:
        if self._answer.tool is not None:
            return {"tool_calls": [self._call(step)]}
        border = self._answer.reasoning
        delta: dict[str, Any] = {}
        if step.first < border:
            delta[self._reasoning_field] = self._text(step.first, min(step.last, border))
        if step.last > border:
            delta["content"] = self._text(max(step.first, border), step.last)
        return delta

    def _call(self, step: Step) -> dict[str, Any]:
        function = {"arguments": self._text(step.first, step.last)}
        if step.first > 0:
            return {"index": 0, "function": function}
        opening = {"index": 0, "id": f"call_{self._ask.id}", "type": "function"}
        return {**opening, "function": {"name": self._answer.tool, **function}}

    def _text(self, first: int, last: int) -> str:
        return "".join(self._answer.pieces[first:last])

    def _chunk(self, part: dict[str, Any], reason: str | None) -> bytes:
        return self._event({"choices": [{"index": 0, **part, "logprobs": None, "finish_reason": reason}]})

    def _event(self, parts: dict[str, Any], metrics: dict[str, Any] | None = None) -> bytes:
        kind = "chat.completion.chunk" if self._ask.chat else self._kind
        event = {**self._head, "object": kind, **parts}
        if metrics is not None:
            event["metrics"] = metrics
        return b"data: " + orjson.dumps(event) + b"\n\n"
