"""Agent sessions in flight: each goes turn by turn, with its own answers in its history.

Owns how a history is made. It holds what the engine said (content and tool calls, reasoning dropped) or the recorded
answers, as the plan says. Results of the script's tools get the ids of the engine's calls in order; where the engine
left no call to answer, the recorded one stands in its place and is counted in the row (`supplied`). A session ends at
its first turn that fails. Pauses are waited for between turns and count in no latency.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from specdyno.load import pacing
from specdyno.load.window import Desk, Endpoint, Hooks, Job, SessionTurn, WindowRun, run_desk
from specdyno.plan.schema import History, Sessions
from specdyno.records.schema import RequestRecord
from specdyno.workload.draw import DrawnSession
from specdyno.workload.prompts import Prompt, fingerprint
from specdyno.workload.sessions import Turn

Message = Mapping[str, Any]


async def run_sessions(
    endpoint: Endpoint, sessions: Sequence[DrawnSession], *, concurrency: int, manner: Sessions, hooks: Hooks
) -> WindowRun:
    """Every session once, `concurrency` in flight, in list order; `manner` says whose answers and how long pauses are.

    A turn's place in the window's list is the number of turns before it, whether they were sent or not. Otherwise as
    `run_window`.
    """
    firsts = list(itertools.accumulate((len(one.session.turns) for one in sessions), initial=0))

    async def drive(desk: Desk) -> None:
        queue = iter(range(len(sessions)))

        async def agent() -> None:
            for place in queue:
                if desk.stopped():
                    return
                await _replay(desk, sessions[place], first=firsts[place], manner=manner)

        await pacing.together([agent() for _ in range(min(concurrency, len(sessions)))])

    return await run_desk(endpoint, drive, hooks=hooks)


async def _replay(desk: Desk, drawn: DrawnSession, *, first: int, manner: Sessions) -> None:
    talk = Talk(drawn.session.system, history=manner.history)
    ended_ns = 0
    for number, turn in enumerate(drawn.session.turns):
        if number:
            await pacing.wait_until(ended_ns + int(turn.pause_s * manner.pace * 1e9))
        if desk.stopped():
            return
        supplied = talk.ask(turn)
        job = Job(_prompt(drawn, number, talk.messages), SessionTurn(drawn.id, number, turn.phase, supplied))
        raw, kept = await desk.exchange(job, first + number, prepared=desk.endpoint.prepare(job))
        ended_ns, row = raw.ended_ns, await asyncio.shield(kept)
        if not row.outcome.done:
            return
        talk.answer(row, turn)


def _prompt(drawn: DrawnSession, number: int, messages: Sequence[Message]) -> Prompt:
    content = {"messages": list(messages), "tools": list(drawn.session.tools) if drawn.session.tools else None}
    return Prompt(
        id=f"{drawn.id}/{number}",
        class_name=drawn.class_name,
        messages=tuple(messages),
        prompt=None,
        tools=drawn.session.tools or None,
        tool_choice=None,
        response_format=None,
        max_tokens=drawn.max_tokens,
        sha256=fingerprint(content),
    )


@dataclass(slots=True)
class Talk:
    """The messages of one session so far."""

    system: str | None
    history: History = History.ENGINE
    messages: list[Message] = field(default_factory=list)
    _answer: RequestRecord | None = None
    _recorded: Message | None = None

    def __post_init__(self) -> None:
        if self.system:
            self.messages.append({"role": "system", "content": self.system})

    def ask(self, turn: Turn) -> int | None:
        """Add the last answer and this turn's messages. Returns how many recorded parts stand in for the engine's."""
        supplied = None
        script = [dict(message) for message in turn.messages]
        if self._answer is not None:
            results = [message for message in script if message.get("role") == "tool"]
            said, supplied = self._said(self._answer, len(results))
            self.messages.append(said)
            for result, call in zip(results, said.get("tool_calls") or [], strict=False):
                result["tool_call_id"] = call["id"]
        self.messages += script
        return supplied

    def answer(self, row: RequestRecord, turn: Turn) -> None:
        """Keep the engine's answer to `turn`, and the recorded one, until the next turn shows what it must hold."""
        self._answer, self._recorded = row, turn.recorded

    def _said(self, row: RequestRecord, results: int) -> tuple[dict[str, Any], int | None]:
        """The assistant's message of the last turn, with exactly as many calls as the script has results."""
        recorded = dict(self._recorded) if self._recorded is not None else None
        if self.history is History.RECORDED and recorded is not None:
            return recorded, None
        calls = [_call(call, f"call_{row.turn}_{place}") for place, call in enumerate(row.tool_calls)]
        usable = [call for call in calls if _is_object(call["function"]["arguments"])][:results]
        missing = results - len(usable)
        stand_in = list((recorded or {}).get("tool_calls") or [])[len(usable) : results] if missing else []
        content = row.text or None
        supplied = len(stand_in)
        if content is None and not usable and not stand_in:  # an empty message is refused by many templates
            content = (recorded or {}).get("content") or ""
            supplied += 1
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if usable or stand_in:
            message["tool_calls"] = [*usable, *stand_in]
        return message, supplied


def _call(call: Mapping[str, Any], own_id: str) -> dict[str, Any]:
    function = {"name": call.get("name") or "", "arguments": call.get("arguments") or "{}"}
    return {"id": call.get("id") or own_id, "type": "function", "function": function}


def _is_object(arguments: str) -> bool:
    """A call that was cut off holds no JSON, and servers refuse a history with it."""
    try:
        return isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        return False
