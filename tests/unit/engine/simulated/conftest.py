"""Boots the simulated engine as the process it is, on a free port, and speaks to it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from specdyno.engine.process import free_port

EAGLE3 = {"method": "eagle3", "model": "org/draft", "num_speculative_tokens": 3}
STILL = {"noise": 0.0, "boot_spread": 0.0, "ready_delay_s": 0.0}


class Answered:
    """One exchange as a client sees it."""

    def __init__(self, status: int, events: list[dict], *, done: bool, body: dict | None = None) -> None:
        self.status = status
        self.events = events
        self.done = done
        self.body = body

    def deltas(self, key: str = "content") -> list:
        """Of a chat's events that carry the key, the first (the role) left out."""
        parts = [event["choices"][0]["delta"] for event in self.events[1:] if event["choices"]]
        return [part[key] for part in parts if key in part]

    @property
    def text(self) -> str:
        return "".join(self.deltas())

    @property
    def usage(self) -> dict | None:
        return next((event["usage"] for event in self.events if event.get("usage")), None)

    @property
    def spec(self) -> dict:
        return self.events[-1]["metrics"]["speculative_decoding"]


class Engine:
    def __init__(self, process: subprocess.Popen, port: int, log: Path) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        self._session: aiohttp.ClientSession | None = None

    @property
    def log(self) -> str:
        return self._log.read_text()

    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20))
        return self._session

    async def ready(self) -> None:
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log
            with suppress(aiohttp.ClientConnectionError):
                async with self.session().get(f"{self.url}/health") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.02)
        raise AssertionError(f"not ready: {self.log}")

    async def get(self, path: str) -> tuple[int, bytes]:
        async with self.session().get(self.url + path) as response:
            return response.status, await response.read()

    async def counters(self) -> dict:
        """Sample name (with position or finish reason, where it has one) -> value."""
        _, text = await self.get("/metrics")
        values = {}
        for family in text_string_to_metric_families(text.decode()):
            for sample in family.samples:
                label = sample.labels.get("position") or sample.labels.get("finished_reason")
                values[(sample.name, label) if label else sample.name] = sample.value
        return values

    async def until(self, condition: Callable[[dict], bool]) -> dict:
        """The first counters that meet the condition."""
        async with asyncio.timeout(8):
            while not condition(counted := await self.counters()):  # noqa: ASYNC110 - the event is in another process
                await asyncio.sleep(0.01)
            return counted

    async def chat(self, prompt: str = "hello", *, headers: dict | None = None, **keys: object) -> Answered:
        usage = {"stream_options": {"include_usage": True}} if keys.get("stream", True) else {}
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}], "stream": True, **usage, **keys}
        return await self.post("/v1/chat/completions", body, headers=headers)

    async def post(self, path: str, body: dict, *, headers: dict | None = None) -> Answered:
        async with self.session().post(self.url + path, json=body, headers=headers) as response:
            if not body.get("stream") or response.status != 200:
                return Answered(response.status, [], done=True, body=await response.json())
            lines = [line[len(b"data: ") :].strip() async for line in response.content if line.startswith(b"data: ")]
            events = [json.loads(line) for line in lines if line != b"[DONE]"]
            return Answered(response.status, events, done=lines[-1] == b"[DONE]")

    async def receive(self, into: bytearray, *, wait_s: float) -> None:
        """Collects the bytes of one stream until it ends or `wait_s` has passed."""
        body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "stream": True}
        async with (
            asyncio.timeout(wait_s),
            self.session().post(f"{self.url}/v1/chat/completions", json=body) as response,
        ):
            async for line in response.content:
                into += line

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _start(command: list[str], sink: BinaryIO) -> subprocess.Popen:
    return subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True)


@pytest.fixture
async def boot(tmp_path):
    """Starts engines; flags after the truth go to the command line as they are."""
    engines: list[Engine] = []
    with ExitStack() as logs:

        async def start(*flags: str, spec: dict | None = None, wait: bool = True, scale: float = 0.02, **truth):
            port, log = free_port(), tmp_path / f"engine-{len(engines)}.log"
            command = [sys.executable, "-m", "specdyno.engine.simulated", "--model", "m", "--port", str(port)]
            command += ["--time-scale", str(scale), "--truth", json.dumps({**STILL, **truth}), "--boot-seed", "7"]
            command += ["--speculative-config", json.dumps(spec)] if spec else []
            sink = logs.enter_context(log.open("wb"))
            engines.append(Engine(_start([*command, *flags], sink), port, log))
            if wait:
                await engines[-1].ready()
            return engines[-1]

        yield start
        for engine in engines:
            await engine.close()


@pytest.fixture
def eagle3() -> dict:
    return dict(EAGLE3)
