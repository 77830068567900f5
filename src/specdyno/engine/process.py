"""Engine processes: started in their own group, watched, and ended for certain.

Owns pids, ports and logs. An engine is started through `engine.keeper`, which ends it when this process dies. A stale
engine of an earlier run is recognised by pid *and* start time, never by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from specdyno.engine.base import HOST, Launch
from specdyno.errors import EngineError, RecordError

STOP_GRACE_S = 15.0
NO_WORD = "no word"  # of a stop command: the keeper was killed before it could run it
_KEEPER_MARGIN_S = 10.0
_SAME_START_S = 0.01  # the kernel counts start times in hundredths of a second
_TAIL_LINES = 15
_TAIL_BYTES = 16_384
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(slots=True)
class EngineProcess:
    """A started engine. `pid` leads its process group; `pid_started` is psutil's create_time of it."""

    launch: Launch
    log_path: Path
    keeper: asyncio.subprocess.Process
    pid: int
    pid_started: float
    grace_s: float  # from SIGTERM to SIGKILL
    _exit: asyncio.Task[int]
    stop_result: str = ""  # how the plan's stop command ended; empty where there is none

    @property
    def running(self) -> bool:
        """Whether the engine lives. Asked of the system, since the keeper needs a moment to tell of its end.

        A command that starts an engine elsewhere may have returned: then only the engine's own answers can tell.
        """
        return not self._exit.done() and (self.launch.outside is not None or _lives(self.pid, self.pid_started))

    @property
    def exit_code(self) -> int | None:
        return self._exit.result() if self._exit.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    def log_text(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def log_tail(self) -> str:
        return tail(self.log_path)

    def memory_bytes(self) -> int | None:
        """Resident memory of the engine and everything below it; None once it is gone."""
        total = None
        for process in _family(self.pid):
            with contextlib.suppress(psutil.Error):  # ended meanwhile
                total = (total or 0) + process.memory_info().rss
        return total

    def cpu_s(self) -> float:
        """Processor seconds used so far by the engine's living processes."""
        total = 0.0
        for process in _family(self.pid):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    async def stop(self) -> None:
        """SIGTERM, wait for exit and for the port; the keeper sends SIGKILL to the group after the grace.

        Where this is cancelled the engine is killed at once.
        """
        _let_go(self.keeper)
        try:
            await asyncio.wait_for(self.wait(), self.launch.stop_limit_s + 2 * self.grace_s + _KEEPER_MARGIN_S)
        except asyncio.CancelledError:
            self._kill()
            raise
        except TimeoutError:
            self._kill()
            await self.wait()
        if (self.exit_code or 0) < 0:  # a keeper that was killed could end nothing
            await asyncio.to_thread(end_stale, self.pid, self.pid_started)
            await asyncio.to_thread(_end_group, self.pid, self.pid_started)
        if self.launch.outside is not None:
            said = await self.keeper.stdout.read() if self.keeper.stdout is not None else b""
            word, _, rest = said.decode(errors="replace").strip().partition(" ")
            self.stop_result = rest if word == "stopped" else NO_WORD
            return  # whether it is gone is for its answers to tell: its port may not be on this host
        await _wait_for_port(self.launch.port)

    def _kill(self) -> None:
        if self.keeper.returncode is not None:
            return
        for process in _family(self.keeper.pid)[1:]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(ProcessLookupError):
            self.keeper.kill()


async def start(launch: Launch, log_path: Path, *, grace_s: float = STOP_GRACE_S) -> EngineProcess:
    """Start an engine; returns once its process exists. Raises EngineError where it cannot be started at all.

    RecordError where its log cannot be written. Cancelled, it leaves no engine behind.
    """
    if not port_is_free(launch.port):
        raise EngineError(
            f"port {launch.port} on {HOST} is taken{_port_holder(launch.port)}",
            remedy="Stop that program, or remove engine.args.port so that a free port is chosen",
        )
    _touch(log_path)
    keeper = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        str(Path(__file__).with_name("keeper.py")),
        str(grace_s),
        str(log_path),
        launch.outside.order() if launch.outside is not None else "null",
        *launch.argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=launch.environment(),
        start_new_session=True,
    )
    if keeper.stdout is None:
        raise RuntimeError("the keeper was started without its pipe")
    try:
        line = await keeper.stdout.readline()
    except BaseException:
        _let_go(keeper)
        await asyncio.shield(keeper.wait())
        raise
    word, _, rest = line.decode(errors="replace").strip().partition(" ")
    if word != "pid":
        await keeper.wait()
        raise EngineError(
            f'cannot start "{launch.argv[0]}": {rest or "the keeper process ended at once"}',
            remedy="Check engine.command in the plan: the program must exist and be executable",
        )
    pid = int(rest)
    exit_task = asyncio.ensure_future(keeper.wait())
    return EngineProcess(launch, log_path, keeper, pid, start_time(pid) or time.time(), grace_s, exit_task)


def _touch(log_path: Path) -> None:
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        log_path.open("ab").close()
    except OSError as error:
        raise RecordError(f"{log_path}: the engine's log cannot be written ({error.strerror or error})") from error


def _let_go(keeper: asyncio.subprocess.Process) -> None:
    """Close the lifeline: the keeper ends the engine, then itself."""
    if keeper.stdin is not None:
        keeper.stdin.close()


def _family(pid: int) -> list[psutil.Process]:
    """A process and everything below it, itself first; empty once it is gone."""
    try:
        leader = psutil.Process(pid)
        return [leader, *leader.children(recursive=True)]
    except psutil.Error:
        return []


def _end_group(pid: int, pid_started: float) -> None:
    """Kill what is left of an engine's process group: not one that has taken over its number."""
    started = start_time(pid)
    if started is not None and not _same(started, pid_started):
        return
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == pid and process.create_time() > pid_started - _SAME_START_S:
                process.kill()


def start_time(pid: int) -> float | None:
    """When a process was started (seconds since the epoch), or None if there is no such process."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None


def _lives(pid: int, pid_started: float) -> bool:
    """Whether this very process is there and no zombie."""
    try:
        process = psutil.Process(pid)
        return _same(process.create_time(), pid_started) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _same(started: float | None, pid_started: float) -> bool:
    return started is not None and abs(started - pid_started) <= _SAME_START_S


def end_stale(pid: int, pid_started: float) -> bool:
    """End an engine that an earlier run left behind. True if it was still there and was ended.

    Only a process with the recorded pid *and* start time (within 10 ms) is touched.
    """
    if not _lives(pid, pid_started):
        return False
    family = _family(pid)
    for leader in family[:1]:
        with contextlib.suppress(psutil.Error):
            leader.terminate()
    _still_alive(family[:1], after_s=STOP_GRACE_S)
    for process in family:  # what it left behind was asked by nobody: no grace
        with contextlib.suppress(psutil.Error):
            process.kill()
    _still_alive(family, after_s=STOP_GRACE_S)
    return True


def _still_alive(family: list[psutil.Process], *, after_s: float) -> list[psutil.Process]:
    """Those that have not ended within `after_s`. A zombie has ended, whether or not its parent ever asks for it."""
    deadline = time.monotonic() + after_s
    while (alive := [one for one in family if _at_work(one)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def _at_work(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def conceal_in_log(log_path: Path, secret: str) -> None:
    """Overwrite a secret that an engine, now ended, has printed."""
    with contextlib.suppress(OSError):
        if secret and secret.encode() in (log := log_path.read_bytes()):
            log_path.write_bytes(log.replace(secret.encode(), b"[API key]"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def tail(log_path: Path) -> str:
    """The last lines of an engine's log without control characters (escape sequences included)."""
    try:
        with log_path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            text = log.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return _CONTROL.sub("", "\n".join(text.splitlines()[-_TAIL_LINES:]))


async def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + STOP_GRACE_S
    while not port_is_free(port) and time.monotonic() < deadline:  # noqa: ASYNC110 (the kernel sends no event)
        await asyncio.sleep(0.05)


def _port_holder(port: int) -> str:
    with contextlib.suppress(psutil.Error, PermissionError):
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
                return f" by process {connection.pid}" if connection.pid else ""
    return ""
