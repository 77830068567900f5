"""The keeper: a tiny process between specdyno and an engine, so that no engine outlives a killed specdyno.

Run as a script (standard library only, starts in milliseconds). Its standard input is a pipe held by specdyno: when
the pipe closes, for whatever reason, the engine's whole process group and every other descendant is ended. It writes
one line, `pid N` or `error TEXT`, and leaves with the engine's exit code.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_POLL_S = 0.2
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Let descendants whose parent died become children of this process, so that they can be found (Linux only)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


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
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        engine.wait(grace_s)


def main(argv: list[str]) -> int:
    grace_s, log_path, command = float(argv[0]), argv[1], argv[2:]
    adopt_orphans()
    # The lifeline alone ends the engine: a Ctrl-C in the terminal is specdyno's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Path(log_path).open("ab") as log:
        try:
            engine = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            sys.stdout.write(f"error {error}\n")
            sys.stdout.flush()
            return 127
    sys.stdout.write(f"pid {engine.pid}\n")
    sys.stdout.flush()
    asked_to_end = False

    def on_term(_number: int, _frame: object) -> None:
        nonlocal asked_to_end
        asked_to_end = True

    signal.signal(signal.SIGTERM, on_term)
    while engine.poll() is None and not asked_to_end:
        with contextlib.suppress(InterruptedError):
            readable, _, _ = select.select([0], [], [], _POLL_S)
            if readable and not os.read(0, 4096):
                break
    end(engine, grace_s)
    time.sleep(0)
    code = engine.poll()
    return code if code is not None and code >= 0 else 128 + abs(code or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
