"""The keeper: a tiny process between specdyno and an engine, so that no engine outlives a killed specdyno.

Run as a script (standard library only, starts in milliseconds). Its standard input is a pipe held by specdyno: when
the pipe closes, for whatever reason, the engine's whole process group and every other descendant is ended. It writes
one line, `pid N` or `error TEXT`, and leaves with the engine's exit code. An engine that runs elsewhere is ended by
the plan's own stop command (its starter may have returned long before), and `stopped RESULT` tells how that went.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_REAP_S = 0.01
_STOP_POLL_S = 0.05
_POLL_S = 1.0  # only should a signal be missed: the pipes wake the keeper at once
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PROGRAM = ctypes.CDLL(None)


def adopt_orphans() -> None:
    """Let descendants whose parent died become children of this process, so that they can be found (Linux only)."""
    with contextlib.suppress(OSError, AttributeError):
        _PROGRAM.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_keeper() -> None:
    """In the engine before it runs: should the keeper itself be killed, the kernel ends the engine (Linux only)."""
    with contextlib.suppress(OSError, AttributeError):
        _PROGRAM.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def wake_on_signals() -> int:
    """A descriptor that holds the numbers of signals that came: the engine's end (SIGCHLD), or a wish to end it.

    They have handlers that do nothing, so that none ends the keeper and the engine does not inherit ignored signals.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return readable


def watch(ended: Callable[[], bool], signals: int) -> None:
    """Return once the engine has ended, the lifeline is closed, or SIGTERM came."""
    while not ended():
        readable, _, _ = select.select([0, signals], [], [], _POLL_S)
        if 0 in readable and not os.read(0, 4096):
            return
        # A Ctrl-C in the terminal (SIGINT) is specdyno's to handle.
        if signals in readable and signal.SIGTERM in os.read(signals, 4096):
            return


def descendants(root: int) -> list[int]:
    """Every living process below `root`, from /proc; empty where there is none."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def end(engine: subprocess.Popen[bytes], grace_s: float) -> None:
    """SIGTERM to the engine, time to leave, then SIGKILL to its group and to everything it left behind."""
    if engine.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            engine.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            engine.wait(grace_s)
    signal_group(engine.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        engine.wait(grace_s)
    deadline = time.monotonic() + grace_s
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        reap()


def reap() -> None:
    """Collect adopted processes that have ended: no zombie may hold a pid or a device once the keeper has left."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    time.sleep(_REAP_S)


def collect(waited_for: set[int]) -> None:
    """Collect adopted processes that have ended, but those that a `Popen` of this process waits for."""
    for pid in set(descendants(os.getpid())) - waited_for:
        with contextlib.suppress(ChildProcessError):  # a grandchild
            os.waitpid(pid, os.WNOHANG)


def stop(command: list[str], timeout_s: float, log: BinaryIO, engine: subprocess.Popen[bytes]) -> str:
    """Run the plan's stop command: its exit status, or what kept it from one.

    Meanwhile what has ended is collected: a command that waits for the engine's pid to go would wait for a zombie.
    """
    try:
        stopping = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    except OSError as error:
        return f"error: {error}"
    deadline = time.monotonic() + timeout_s
    while stopping.poll() is None:
        if time.monotonic() > deadline:
            stopping.kill()
            stopping.wait()
            return "timeout"
        engine.poll()
        collect({engine.pid, stopping.pid})
        time.sleep(_STOP_POLL_S)
    return str(stopping.returncode)


def main(argv: list[str]) -> int:
    grace_s, log_path, elsewhere, command = float(argv[0]), argv[1], json.loads(argv[2]), argv[3:]
    adopt_orphans()
    signals = wake_on_signals()
    with Path(log_path).open("ab") as log:
        try:
            engine = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_keeper,  # noqa: PLW1509 (safe: this process has one thread)
            )
        except OSError as error:
            sys.stdout.write(f"error {error}\n")
            sys.stdout.flush()
            return 127
    sys.stdout.write(f"pid {engine.pid}\n")
    sys.stdout.flush()
    watch(lambda: engine.poll() is not None, signals)
    if elsewhere is not None:
        if engine.poll() == 0 and select.select([0], [], [], 0)[0] == []:
            watch(lambda: False, signals)  # started elsewhere, or in the background: stays until it is told to go
        result = ""
        if elsewhere["stop"]:
            with Path(log_path).open("ab") as log:
                result = stop(elsewhere["stop"], elsewhere["timeout_s"], log, engine)
        with contextlib.suppress(OSError):  # specdyno may be gone
            sys.stdout.write(f"stopped {result}\n")
            sys.stdout.flush()
    end(engine, grace_s)
    code = engine.poll()
    return code if code is not None and code >= 0 else 128 + abs(code or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
