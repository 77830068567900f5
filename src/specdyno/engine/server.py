"""A running engine: started, waited for, asked who it is, scraped, stopped.

Joins an adapter's knowledge with a process. `attach` does the same for a server that somebody else runs.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from specdyno.engine import counters, outside, process, tls
from specdyno.engine.base import Adapter, Answers, api_key, conceal
from specdyno.engine.external import ExternalAdapter
from specdyno.engine.llamacpp import LlamaCppAdapter
from specdyno.engine.outside import Caretaker, Tell
from specdyno.engine.sglang import SglangAdapter
from specdyno.engine.simulated.adapter import SimulatedAdapter
from specdyno.engine.trtllm import TrtllmAdapter
from specdyno.engine.vllm import VllmAdapter
from specdyno.errors import BlockedEngineError, EngineError
from specdyno.plan.schema import Arm, Engine, EngineKind, Target
from specdyno.records.schema import CounterSample, Identity

ADAPTERS: dict[EngineKind, type[Adapter]] = {
    EngineKind.VLLM: VllmAdapter,
    EngineKind.LLAMACPP: LlamaCppAdapter,
    EngineKind.SGLANG: SglangAdapter,
    EngineKind.TRTLLM: TrtllmAdapter,
    EngineKind.EXTERNAL: ExternalAdapter,
    EngineKind.SIMULATED: SimulatedAdapter,
}

_POLL_S = 0.1
_POLL_ELSEWHERE_S = 0.5
_HEALTH_TIMEOUT = aiohttp.ClientTimeout(total=5)
_QUESTION_TIMEOUT = aiohttp.ClientTimeout(total=30)


def adapter(engine: Engine, target: Target) -> Adapter:
    """The adapter of a plan's engine; raises PlanError where the plan holds flags that specdyno sets itself."""
    made = ADAPTERS[engine.kind](engine, target)
    made.refuse_owned_flags()
    return made


@dataclass(slots=True)
class Server:
    """One engine that answers, ours (`process` set) or somebody else's."""

    base_url: str
    adapter: Adapter
    session: aiohttp.ClientSession
    process: process.EngineProcess | None = None
    secret: str = field(default="", repr=False)  # the API key, which may show nowhere
    care: Caretaker | None = None  # set where others than this process run the engine
    interrupted: bool = False  # nobody may be asked anything any more, and no failure to stop may hide it

    async def identity(self) -> Identity:
        answers = {path: await self.ask(path) for path in self.adapter.questions}
        log = self.process.log_text() if self.process else ""
        return self.adapter.identity(Answers(answers, log))

    async def counters(self) -> tuple[CounterSample, str]:
        """The counters now, read and raw. An engine that does not answer gives a sample with a problem, no error."""
        source = f"{self.adapter.name} {self.adapter.metrics_path}"
        text = await self.ask(self.adapter.metrics_path)
        stamp_ns = time.monotonic_ns()
        if not isinstance(text, str):
            problem = f"{self.adapter.metrics_path} gave no text"
            return CounterSample(stamp_ns, source, (), problems=(problem,)), ""
        return counters.parse(text, stamp_ns=stamp_ns, source=source), text

    async def served_model(self, fallback: str) -> str:
        """The name under which requests must ask for the model."""
        return Answers({"/v1/models": await self.ask("/v1/models")}, "").served_model() or fallback

    async def healthy(self) -> bool:
        """Whether the engine says that it is ready."""
        try:
            async with self.session.get(self.base_url + self.adapter.ready_path, timeout=_HEALTH_TIMEOUT) as response:
                return response.status == 200
        except tls.Refused as error:
            raise tls.explained(error, self.base_url) from error
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def ready(self, *, within_s: float) -> bool:
        """Whether requests may be sent: by the plan's own command where it has one, else by the health page."""
        if self.care is not None and self.care.outside.ready:
            return await self.care.ready(within_s=within_s)
        healthy = await self.healthy()
        if self.care is not None:
            self.care.was_ready = self.care.was_ready or healthy
        return healthy

    async def stop(self) -> None:
        """End the engine and see that it is gone. BlockedEngineError where it is not."""
        try:
            if self.process is not None:
                await self.process.stop()
            if self.care is not None:
                await self._see_off(self.care)
        except BlockedEngineError as error:
            if self.care is None or not self.interrupted:
                raise
            self.care.tell(f"{error}. {error.remedy}")
        finally:
            if self.process is not None:
                process.conceal_in_log(self.process.log_path, self.secret)

    async def _see_off(self, care: Caretaker) -> None:
        if self.process is not None:
            result = self.process.stop_result
            if result == process.NO_WORD and care.outside.stop:
                limit_s = care.outside.stop_timeout_s
                result = await outside.run(care.outside.stop, care.launch, care.log_path, timeout_s=limit_s)
            await care.gone("" if result == process.NO_WORD else result)
        elif self.interrupted:
            care.tell(f"the server at {self.base_url} may still run: stop it by hand")
        else:
            await care.stopped_by_person()

    async def ask(self, path: str) -> Any:
        """The JSON value or text behind a path; None where the engine refuses or does not answer."""
        try:
            async with self.session.get(self.base_url + path, timeout=_QUESTION_TIMEOUT) as response:
                body = await response.read()
                if response.status != 200:
                    return None
        except (aiohttp.ClientError, TimeoutError):
            return None
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            return body.decode("utf-8", errors="replace")


async def begin(  # noqa: PLR0913 (what one start takes)
    made: Adapter,
    arm: Arm,
    *,
    log_path: Path,
    session: aiohttp.ClientSession,
    boot_seed: int,
    tell: Tell = lambda _text: None,
) -> Server:
    """Start an arm's engine. The caller records its pid before waiting with `wait_ready`.

    BlockedEngineError where the last engine is not gone, or nobody is there to start the next.
    """
    fixed = made.engine.args.get("port")
    port = int(fixed) if fixed is not None else process.free_port()
    launch, secret = made.launch(arm, port, boot_seed=boot_seed), api_key(made.engine)
    launch = launch.written(log_path.with_suffix(".yaml"))
    server = Server(launch.base_url, made, session, secret=secret)
    if launch.outside is not None:
        server.care = Caretaker(launch, launch.outside, made.ready_path, session, log_path, tell)
        await server.care.vacant()
        if launch.outside.human:
            await server.care.started_by_person()
            return server
        server.care.promise()
    server.process = await process.start(launch, log_path)
    return server


async def attach(base_url: str, engine: Engine, session: aiohttp.ClientSession) -> Server:
    """A server that somebody else runs; which product it is, is asked of it. EngineError where nothing answers."""
    server = Server(base_url, VllmAdapter(engine, Target(model="served")), session, secret=api_key(engine))
    try:
        async with session.get(base_url + "/v1/models", timeout=_QUESTION_TIMEOUT) as response:
            status = response.status
    except tls.Refused as error:
        raise tls.explained(error, base_url) from error
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise EngineError(
            f"no server answers at {base_url} ({error or type(error).__name__})",
            remedy="Check --base-url: scheme, host and port, without /v1",
        ) from error
    if status in (401, 403):
        raise EngineError(
            f"{base_url} refuses: it wants an API key (status {status})",
            remedy="Name the variable that holds it: --api-key-env NAME",
        )
    if status != 200:
        raise EngineError(
            f"{base_url}/v1/models answered with status {status}: no OpenAI-compatible server",
            remedy="Give the address without a path, e.g. http://127.0.0.1:8000",
        )
    server.adapter = (await _product(server))(engine, Target(model="served"))
    return server


async def _product(server: Server) -> type[Adapter]:
    """Which product answers, by pages that only it has."""
    info = await server.ask("/server_info")
    if isinstance(info, dict) and info.get("engine") == SimulatedAdapter.name:
        return SimulatedAdapter
    if isinstance(info, dict) and "model_path" in info:
        return SglangAdapter
    props = await server.ask("/props")
    if isinstance(props, dict) and "total_slots" in props:
        return LlamaCppAdapter
    page = await server.ask(TrtllmAdapter.metrics_path)
    if isinstance(page, str) and "trtllm_" in page:
        return TrtllmAdapter
    return VllmAdapter


async def wait_ready(server: Server, timeout_s: float) -> None:
    """Wait for the first healthy answer. Raises EngineError with the engine's own last lines, and what to try."""
    engine = server.process
    if engine is None and server.care is None:
        return
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        if engine is not None and not engine.running:
            what = "the engine" if server.care is None else "the start command"
            raise failed(server, f"{what} ended with code {await engine.wait()} before it was ready")
        if await server.ready(within_s=left_s):
            return
        await asyncio.sleep(_POLL_S if server.care is None else _POLL_ELSEWHERE_S)
    raise failed(
        server,
        f"the engine was not ready within {timeout_s:g} s",
        remedy="Raise engine.ready_timeout if it was still loading",
    )


def refuse_unfit(server: Server, identity: Identity, arm: Arm) -> None:
    """EngineError where a ready engine does not run what the arm asks for."""
    log = server.process.log_text() if server.process else ""
    if (found := server.adapter.refusal(identity, arm, log)) is not None:
        raise failed(server, found.reason, remedy=found.remedy)


def failed(server: Server, message: str, *, remedy: str = "") -> EngineError:
    """An EngineError that carries the engine's last lines and advice read from them, without the API key."""
    message, remedy = conceal(message, server.secret), conceal(remedy, server.secret)
    if server.process is None:
        return EngineError(message, remedy=remedy)
    log = conceal(server.process.log_tail(), server.secret)
    return EngineError(
        message,
        remedy=remedy or server.adapter.advice(log),
        log_tail=log,
        log_path=str(server.process.log_path),
    )
