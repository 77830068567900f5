"""Continuous batching on one clock: every iteration advances all running requests.

Owns the order in which requests are admitted and the durations of iterations. An iteration lasts as the truth says for
the number running and the share of them that has a draft, plus the prefill of the requests that came in. Deadlines are
absolute, so that late wake-ups do not add up.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from specdyno.engine.simulated.answers import Answer
from specdyno.engine.simulated.faults import Fault
from specdyno.engine.simulated.metrics import Counters, Gauges
from specdyno.engine.simulated.settings import Settings

# A process that was suspended or starved makes up this much of the lost time and no more.
_LONGEST_CATCH_UP_S = 0.5


class Step(NamedTuple):
    """Tokens `first` to `last` (exclusive) of an answer came out of one iteration."""

    first: int
    last: int
    finished: bool


@dataclass(slots=True)
class SpecTally:
    """Drafts of one request, in order, counted before trimming; drafted steps only."""

    accepted: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Job:
    """One request inside the engine."""

    answer: Answer
    class_name: str
    seed: int
    """Decides its acceptance draws."""
    prompt_tokens: int
    cached_tokens: int
    arrived_s: float = field(default_factory=time.monotonic)
    emitted: int = 0
    steps: int = 0
    last_output_s: float = 0.0
    ended: bool = False
    tally: SpecTally = field(default_factory=SpecTally)
    outbox: asyncio.Queue[Step] = field(default_factory=asyncio.Queue)

    async def outputs(self) -> AsyncIterator[Step]:
        """Steps as they come out, the last one with `finished`."""
        while True:
            step = await self.outbox.get()
            yield step
            if step.finished:
                return


class Scheduler:
    """Runs jobs until cancelled."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self.counters = counters
        self._truth = settings.truth
        self._draft_tokens = 0 if Fault.SPEC_INACTIVE in settings.faults else settings.draft_tokens
        self._scale = settings.time_scale * settings.truth.boot_factor(settings.boot_seed)
        self._noise = Random(settings.boot_seed + 1)  # noqa: S311 - a simulation, no secret
        self._max_running: int = settings.flags["max_num_seqs"]
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._work = asyncio.Event()

    def submit(self, job: Job) -> None:
        """Queue a job; its steps come out of `job.outputs()`."""
        self._waiting.append(job)
        self._work.set()

    def abort(self, job: Job) -> None:
        """Drop a job whose client has gone; nothing happens to one that has finished."""
        if not job.ended:
            self._end(job, "abort")

    def gauges(self) -> Gauges:
        return Gauges(
            running=sum(not job.ended for job in self._running), waiting=sum(not job.ended for job in self._waiting)
        )

    async def run(self) -> None:
        """Iterate for ever; waits without load when there is nothing to do."""
        deadline_s = time.monotonic()
        while True:
            self._admit()
            if not self._running:
                self._work.clear()
                await self._work.wait()
                deadline_s = time.monotonic()
                continue
            drafts = {job: self._draft(job) for job in self._running}
            # The loop's own clock ticks in milliseconds under uvloop; steps can be shorter.
            deadline_s = max(deadline_s, time.monotonic() - _LONGEST_CATCH_UP_S) + self._iteration_s(drafts)
            await asyncio.sleep(max(0.0, deadline_s - time.monotonic()))
            self._advance(drafts, deadline_s)

    def _admit(self) -> None:
        self._running = [job for job in self._running if not job.ended]
        while self._waiting and len(self._running) < self._max_running:
            job = self._waiting.popleft()
            if not job.ended:
                self._running.append(job)

    def _draft(self, job: Job) -> tuple[int, int]:
        """Proposed and accepted tokens of the job's coming step; the first token comes from the prefill."""
        if job.emitted == 0 or self._draft_tokens == 0:
            return 0, 0
        return self._truth.draft(job.class_name, job.seed, step=job.steps, draft_tokens=self._draft_tokens)

    def _iteration_s(self, drafts: dict[Job, tuple[int, int]]) -> float:
        drafted = sum(proposed > 0 for proposed, _ in drafts.values())
        step_s = self._truth.step_s(len(drafts), drafted_share=drafted / len(drafts), draft_tokens=self._draft_tokens)
        fresh_tokens = sum(job.prompt_tokens - job.cached_tokens for job in drafts if job.emitted == 0)
        jitter = math.exp(self._truth.noise * self._noise.gauss(0.0, 1.0))
        return (step_s * jitter + fresh_tokens * self._truth.prefill_ms_per_token / 1000.0) * self._scale

    def _advance(self, drafts: dict[Job, tuple[int, int]], now_s: float) -> None:
        tokens = 0
        for job, (proposed, accepted) in drafts.items():
            if job.ended:
                continue
            first = job.emitted
            if first == 0:
                job.emitted = 1
                tokens += job.prompt_tokens - job.cached_tokens
                waited_s = max(0.0, now_s - job.arrived_s)
                self.counters.count_prefill(
                    prompt_tokens=job.prompt_tokens, cached_tokens=job.cached_tokens, waited_s=waited_s
                )
            else:
                self._decode(job, proposed, accepted, took_s=now_s - job.last_output_s)
            tokens += job.emitted - first
            job.last_output_s = now_s
            finished = job.emitted >= len(job.answer)
            if finished:
                self._end(job, job.answer.finish_reason)
            job.outbox.put_nowait(Step(first, job.emitted, finished))
        self.counters.iteration_tokens.observe(tokens)

    def _decode(self, job: Job, proposed: int, accepted: int, *, took_s: float) -> None:
        emitted = min(1 + accepted, len(job.answer) - job.emitted)
        self.counters.count_decode(proposed=proposed, accepted=accepted, emitted=emitted, took_s=took_s)
        job.emitted += emitted
        job.steps += 1
        if proposed:
            job.tally.drafted.append(proposed)
            job.tally.accepted.append(accepted)

    def _end(self, job: Job, reason: str) -> None:
        job.ended = True
        # vLLM counts a tool call as an ordinary stop: the parser that names it sits outside the engine.
        self.counters.finished["stop" if reason == "tool_calls" else reason] += 1
        self.counters.whole_request.observe(max(0.0, time.monotonic() - job.arrived_s))
