"""The life of an engine that this process does not run: begun on silence, found ready, and gone at the end.

Promises that no arm is measured on top of another's engine: before a start nothing may answer at the address, after a
stop everything must have fallen silent. A stop that is owed stands in a file beside the boot's log until it is done, so
that a killed study can do it when it is resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from specdyno.engine import person, tls
from specdyno.engine.base import Launch, Outside
from specdyno.errors import BlockedEngineError, EngineError

Tell = Callable[[str], None]

_POLL_S = 0.2
_PROBE = aiohttp.ClientTimeout(total=5, sock_connect=3)
_THERE = (200, 401, 403)
_ANY_SERVER = "/v1/models"
OWED = ".stop.json"


@dataclass(slots=True)
class Caretaker:
    """Watches over one external engine from before its start until it is gone."""

    launch: Launch
    outside: Outside
    ready_path: str
    session: aiohttp.ClientSession
    log_path: Path
    tell: Tell
    was_ready: bool = False

    @property
    def owed(self) -> Path:
        return self.log_path.with_suffix(OWED)

    async def vacant(self) -> None:
        """BlockedEngineError where something answers before anything was started."""
        if await self._answers():
            raise BlockedEngineError(
                f"something already answers at {self.launch.base_url}, before the arm's engine was started",
                remedy="Stop that server, or give engine.external another base_url",
            )

    def promise(self) -> None:
        """Write down the stop that is owed from now on."""
        order = {
            "stop": list(self.outside.stop),
            "timeout_s": self.outside.stop_timeout_s,
            "base_url": self.launch.base_url,
            "ready_path": self.ready_path,
        }
        self.owed.parent.mkdir(parents=True, exist_ok=True)
        self.owed.write_text(json.dumps(order), encoding="utf-8")

    async def ready(self, *, within_s: float) -> bool:
        """Whether the plan's ready command ends with 0; EngineError where it cannot be run."""
        self.was_ready = await run(self.outside.ready, self.launch, self.log_path, timeout_s=within_s) == "0"
        return self.was_ready

    async def started_by_person(self) -> None:
        await person.asked(f"Start {self.outside.told} at {self.launch.base_url}.", self.tell)

    async def stopped_by_person(self) -> None:
        """Ask until nothing answers any more."""
        request = f"Stop the server at {self.launch.base_url}."
        while await self._answers():
            await person.asked(request, self.tell)
            request = f"Something still answers at {self.launch.base_url}: stop it."
            await self._silent(within_s=self.outside.stop_timeout_s)

    async def gone(self, result: str) -> None:
        """After the stop: BlockedEngineError unless it worked and everything fell silent.

        `result` is how the stop command ended: its exit status, other words, or nothing where there was none. A stop
        that fails although the engine never was ready proves nothing: there may have been nothing to stop.
        """
        if not await self._silent(within_s=self.outside.stop_timeout_s):
            raise BlockedEngineError(
                f"the engine was not stopped: {self.launch.base_url} still answers{_ended(result)}",
                remedy="Stop it by hand and correct engine.external.stop, then go on with --resume",
            )
        if result not in ("", "0"):
            if self.was_ready:
                raise BlockedEngineError(
                    f"the engine may still be there: nothing answers at {self.launch.base_url}, but{_ended(result)}",
                    remedy="See that it is gone and correct engine.external.stop, then go on with --resume",
                )
            self.tell(f"nothing answers at {self.launch.base_url}, although{_ended(result)}")
        self.owed.unlink(missing_ok=True)

    async def _silent(self, *, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while await self._answers():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    async def _answers(self) -> bool:
        return await answers(self.session, self.launch.base_url, self.ready_path)


async def answers(session: aiohttp.ClientSession, base_url: str, ready_path: str) -> bool:
    """Whether an engine is there, ready or not. A gateway that reports its absence (502, 503, 404) is no engine."""
    for path in dict.fromkeys((ready_path, _ANY_SERVER)):
        try:
            async with session.get(base_url + path, timeout=_PROBE) as response:
                if response.status in _THERE:
                    return True
        except tls.Refused as error:
            raise tls.explained(error, base_url) from error
        except aiohttp.ConnectionTimeoutError:
            continue
        except TimeoutError:  # connected, and then no word: somebody is there
            return True
        except (aiohttp.ClientError, ValueError):
            continue
    return False


async def run(command: tuple[str, ...], launch: Launch, log_path: Path, *, timeout_s: float) -> str:
    """Run one of the plan's commands to its end, its output into the boot's log: the exit status, or "timeout"."""
    with log_path.open("ab") as log:
        try:
            started = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=launch.environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(
                f'cannot run "{command[0]}": {error.strerror or error}', remedy="Check engine.external in the plan"
            ) from error
    try:
        return str(await asyncio.wait_for(started.wait(), timeout_s))
    except TimeoutError:
        return "timeout"
    finally:
        if started.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            await asyncio.shield(started.wait())


async def settle(logs: Path, session: aiohttp.ClientSession, env: dict[str, str], tell: Tell) -> None:
    """Do the stops that an earlier run of the study still owes. BlockedEngineError where something still answers."""
    for owed in sorted(logs.glob(f"*{OWED}")):  # noqa: ASYNC240 (a handful of names, before anything is timed)
        order = _order(owed)
        launch = Launch((), 0, env, order["base_url"])
        outside = Outside(stop=tuple(order["stop"]), stop_timeout_s=float(order["timeout_s"]))
        log_path = owed.with_name(owed.name.removesuffix(OWED) + ".log")
        care = Caretaker(launch, outside, order["ready_path"], session, log_path, tell)
        tell(f"stopping an engine that an earlier run may have left at {launch.base_url}")
        result = await run(outside.stop, launch, log_path, timeout_s=outside.stop_timeout_s) if outside.stop else ""
        await care.gone(result)


def _order(owed: Path) -> dict[str, Any]:
    try:
        order = json.loads(owed.read_text(encoding="utf-8"))
        return {name: order[name] for name in ("stop", "timeout_s", "base_url", "ready_path")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BlockedEngineError(
            f"{owed}: this note of an engine that must be stopped cannot be read",
            remedy="See that the engine is gone, then remove the file",
        ) from error


def _ended(result: str) -> str:
    if result == "":
        return ""
    if result == "0":
        return " after the stop command"
    return " the stop command did not end in time" if result == "timeout" else f" the stop command ended with {result}"
