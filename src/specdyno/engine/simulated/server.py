"""The HTTP face of the simulated engine.

Owns routes, readiness and what a fault does to one exchange. Answers 503 until ready; drops a job when its client goes.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import signal
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from specdyno import __version__
from specdyno.engine.simulated import wire
from specdyno.engine.simulated.answers import Author
from specdyno.engine.simulated.faults import Fault
from specdyno.engine.simulated.metrics import Counters, Exposition
from specdyno.engine.simulated.prefixes import PrefixCache
from specdyno.engine.simulated.scheduler import Job, Scheduler, Step
from specdyno.engine.simulated.settings import Settings
from specdyno.engine.simulated.truth import uniform

_json = partial(web.json_response, dumps=lambda body: orjson.dumps(body).decode())


class Fate(StrEnum):
    """What becomes of one request because of a fault."""

    SERVED = "served"
    DIES = "dies"
    HTTP_500 = "http_500"
    HTTP_400 = "http_400"
    BREAKS = "breaks"
    HANGS = "hangs"


# In this order; the share of each is drawn on its own.
_SHARED_FATES = (
    (Fault.HTTP_500, Fate.HTTP_500),
    (Fault.HTTP_400, Fate.HTTP_400),
    (Fault.BREAK_STREAM, Fate.BREAKS),
    (Fault.HANG_STREAM, Fate.HANGS),
)


class Server:
    """Routes and state of one engine process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._faults = settings.faults
        self._requests = 0
        self._finished = 0
        self._ready = False
        self._prefixes = PrefixCache() if settings.flags["enable_prefix_caching"] else None
        self._author = Author(settings.truth, settings.faults)
        self._scheduler = Scheduler(settings, Counters(settings.draft_tokens))
        self._exposition = Exposition(
            settings.model,
            speculating=settings.speculation is not None,
            unreadable=Fault.NAN_METRICS in settings.faults,
        )

    def app(self) -> web.Application:
        """The application; its scheduler and readiness start with it."""
        app = web.Application(middlewares=[self._gate], client_max_size=64 * 1024**2)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/version", self._version),
                web.get("/server_info", self._server_info),
                web.get("/metrics", self._metrics),
                web.get("/v1/models", self._models),
                web.post("/v1/chat/completions", partial(self._generate, chat=True)),
                web.post("/v1/completions", partial(self._generate, chat=False)),
            ]
        )
        app.cleanup_ctx.append(self._background)
        return app

    async def _background(self, _: web.Application) -> Any:
        tasks = [asyncio.create_task(self._scheduler.run()), asyncio.create_task(self._become_ready())]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _become_ready(self) -> None:
        if Fault.BOOT_HANG not in self._faults:
            await asyncio.sleep(self._settings.truth.ready_delay_s * self._settings.time_scale)
            self._ready = True

    @web.middleware
    async def _gate(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not self._ready:
            return web.Response(status=503)
        key = self._settings.api_key
        sent = request.headers.get("Authorization", "")
        if key and request.path.startswith("/v1") and not hmac.compare_digest(sent.encode(), f"Bearer {key}".encode()):
            return _json({"error": "Unauthorized"}, status=401)
        try:
            return await handler(request)
        except wire.RefusedError as refused:
            return _json(refused.body(), status=refused.status)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, _: web.Request) -> web.Response:
        return _json({"version": __version__})

    async def _models(self, _: web.Request) -> web.Response:
        entry = {"id": self._settings.model, "object": "model", "owned_by": "specdyno", "root": self._settings.model}
        return _json({"object": "list", "data": [{**entry, "max_model_len": self._settings.flags["max_model_len"]}]})

    async def _server_info(self, _: web.Request) -> web.Response:
        """`speculative_config` under the keys of the flag, or null; `settings`: every other resolved flag, flat."""
        settings = self._settings
        return _json(
            {
                "engine": "simulated",
                "version": __version__,
                "model": settings.model,
                "speculative_config": settings.speculation.as_json() if settings.speculation else None,
                "settings": settings.flags,
            }
        )

    async def _metrics(self, _: web.Request) -> web.Response:
        if Fault.NO_METRICS in self._faults:
            raise web.HTTPNotFound
        text = self._exposition.render(self._scheduler.counters, self._scheduler.gauges())
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _generate(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        self._requests += 1
        fate = self._fate(self._requests)
        flags = self._settings.flags
        ask = wire.read_ask(
            await request.read(),
            chat=chat,
            header_class=request.headers.get("X-Specdyno-Class"),
            max_model_len=flags["max_model_len"],
        )
        if ask.model not in ("", self._settings.model):
            raise wire.RefusedError(404, "NotFoundError", f"The model `{ask.model}` does not exist.")
        if fate is Fate.HTTP_500:
            raise wire.RefusedError(500, "InternalServerError", "EngineCore encountered an issue")
        if fate is Fate.HTTP_400:
            raise wire.RefusedError(400, "BadRequestError", "refused on purpose")
        exchange = _Exchange(self._settings, request, ask, job=self._job(ask), fate=fate)
        self._scheduler.submit(exchange.job)
        try:
            return await exchange.answer(self._count_finished)
        finally:
            self._scheduler.abort(exchange.job)

    def _fate(self, ordinal: int) -> Fate:
        if self._faults.get(Fault.DIE_AFTER) == ordinal:
            return Fate.DIES
        for salt, (fault, fate) in enumerate(_SHARED_FATES):
            if uniform(self._settings.boot_seed, ordinal, salt) < self._faults.get(fault, 0.0):
                return fate
        return Fate.SERVED

    def _job(self, ask: wire.Ask) -> Job:
        settings, seed = self._settings, ask.prompt_seed
        class_name = settings.truth.class_of(seed, ask.class_name)
        answer = self._author.compose(seed, class_name, limits=ask.limits, tools=ask.tools)
        cached = self._prefixes.hits(ask.prompt) if self._prefixes else 0
        return Job(
            answer, class_name, seed ^ (settings.boot_seed << 16), prompt_tokens=ask.prompt_tokens, cached_tokens=cached
        )

    def _count_finished(self) -> None:
        self._finished += 1
        if self._faults.get(Fault.COUNTER_RESET) == self._finished:
            self._scheduler.counters = Counters(self._settings.draft_tokens)


class _Exchange:
    """One request on its way back to the client."""

    def __init__(self, settings: Settings, request: web.Request, ask: wire.Ask, *, job: Job, fate: Fate) -> None:
        self.job = job
        self._settings = settings
        self._request = request
        self._ask = ask
        self._fate = fate
        self._envelope = wire.Envelope(ask, job.answer, reasoning_field=settings.truth.reasoning_field)

    async def answer(self, on_finished: Callable[[], None]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        async for step in self.job.outputs():
            await self._meet_fate(step)
            if step.finished:
                on_finished()
            if not self._ask.stream:
                continue
            if step.first == 0:
                await response.prepare(self._request)
                await response.write(self._envelope.role())
            await response.write(self._envelope.step(step))
        if not self._ask.stream:
            return _json(self._envelope.whole(self._usage(), self._metrics()))
        if self._ask.include_usage and (counted := self._usage()) is not None:
            await response.write(self._envelope.closing(counted, self._metrics()))
        await response.write(wire.DONE)
        await response.write_eof()
        return response

    async def _meet_fate(self, step: Step) -> None:
        """Strikes before the step that reaches the middle of the answer is sent; never the first of several."""
        early = step.last < len(self.job.answer) / 2 or (step.first == 0 and not step.finished)
        if self._fate is Fate.SERVED or early:
            return
        if self._fate is Fate.DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fate is Fate.BREAKS and self._request.transport is not None:
            self._request.transport.close()
        await asyncio.Event().wait()  # ends when the client goes

    def _usage(self) -> dict[str, Any] | None:
        if Fault.NO_USAGE in self._settings.faults:
            return None
        cached = self.job.cached_tokens if self._settings.prompt_tokens_details else None
        return wire.usage(
            len(self.job.answer),
            prompt_tokens=self.job.prompt_tokens,
            cached_tokens=cached,
            reasoning=self.job.answer.reasoning,
        )

    def _metrics(self) -> dict[str, Any] | None:
        if self._settings.spec_metrics == "none":
            return None
        detailed = self._settings.spec_metrics == "detailed"
        report = wire.speculative_decoding(self.job.tally, draft_tokens=self._settings.draft_tokens, detailed=detailed)
        return {"speculative_decoding": report}
