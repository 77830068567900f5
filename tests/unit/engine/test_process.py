"""Engine processes: none outlives its owner, none is mistaken for another, and every start that fails says why."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import uvloop

from specdyno.engine import process
from specdyno.engine.base import Launch
from specdyno.engine.process import EngineProcess, end_stale, free_port, port_is_free, start, start_time, tail
from specdyno.errors import EngineError, RecordError

# A server with a child of its own, and another that has left its process group and lost its parent.
ENGINE = """
import os, signal, socket, subprocess, sys, time
port, manners = int(sys.argv[1]), sys.argv[2]
if manners == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind(("127.0.0.1", port))
listening.listen()
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(sleep)
lost = subprocess.run(
    [sys.executable, "-c", "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], start_new_session=True, "
     "stdout=subprocess.DEVNULL).pid)", *sleep], stdout=subprocess.PIPE, text=True).stdout.strip()
print("pids", child.pid, lost, flush=True)
if manners == "dies":
    os.kill(os.getpid(), signal.SIGSEGV)
if manners == "leaves":
    sys.exit(7)
time.sleep(60)
"""


def launch(*words: str, port: int | None = None, env: dict[str, str] | None = None) -> Launch:
    port = port or free_port()
    command = words or (sys.executable, "-c", ENGINE, str(port), "polite")
    return Launch(tuple(command), port, env or {})


def engine(manners: str) -> Launch:
    port = free_port()
    return Launch((sys.executable, "-c", ENGINE, str(port), manners), port)


def alive(pid: int) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


async def until(condition: Callable[[], bool], patience_s: float = 15) -> None:
    async with asyncio.timeout(patience_s):
        while not condition():  # noqa: ASYNC110 (the event is in another process)
            await asyncio.sleep(0.02)


async def family(log: Path) -> list[int]:
    """The children that the engine has told of."""

    def told() -> list[int]:
        return [int(word) for word in log.read_text().split("pids")[1].split()]

    await until(lambda: log.exists() and "pids" in log.read_text())
    return told()


async def started(made: Launch, log: Path, **keys) -> tuple[EngineProcess, list[int]]:
    running = await start(made, log, **keys)
    return running, [running.pid, *await family(log)]


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_stopped_engine_leaves_no_process_and_no_port(tmp_path, loop):
    async def walk() -> None:
        running, pids = await started(engine("polite"), tmp_path / "logs" / "a.log")
        assert all(alive(pid) for pid in pids)
        assert running.running
        assert running.exit_code is None
        assert not port_is_free(running.launch.port)
        assert running.pid_started == start_time(running.pid)
        assert (running.memory_bytes() or 0) > 1_000_000
        assert running.cpu_s() > 0
        await running.stop()
        assert not [pid for pid in pids if alive(pid)]
        assert not alive(running.keeper.pid)
        assert port_is_free(running.launch.port)
        assert not running.running
        assert running.memory_bytes() is None
        await running.stop()  # once more is harmless

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(walk())


async def test_an_engine_that_ignores_sigterm_is_killed_after_the_grace(tmp_path):
    running, pids = await started(engine("stubborn"), tmp_path / "a.log", grace_s=0.3)
    before = time.monotonic()
    await running.stop()
    assert 0.25 < time.monotonic() - before < 10
    assert not [pid for pid in pids if alive(pid)]
    assert port_is_free(running.launch.port)


@pytest.mark.parametrize(("manners", "code"), [("leaves", 7), ("dies", 128 + signal.SIGSEGV)])
async def test_an_engine_that_ends_by_itself_is_noticed_and_swept_up(tmp_path, manners, code):
    running = await start(engine(manners), tmp_path / "a.log")
    pids = await family(tmp_path / "a.log")
    assert await asyncio.wait_for(running.wait(), 10) == code
    assert not running.running
    assert running.exit_code == code
    assert not [pid for pid in pids if alive(pid)]
    await running.stop()


OWNER = """
import asyncio, sys
from pathlib import Path
from specdyno.engine.base import Launch
from specdyno.engine.process import start

async def own():
    port = int(sys.argv[2])
    running = await start(Launch((sys.executable, "-c", sys.argv[3], str(port), "polite"), port), Path(sys.argv[1]))
    print(running.pid, running.keeper.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(own())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_engine_outlives_an_owner_that_is_killed(tmp_path, number):
    log, port = tmp_path / "a.log", free_port()
    words = [sys.executable, "-c", OWNER, str(log), str(port), ENGINE]
    owner = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    pids = [*await family(log), *(int(word) for word in (await owner.stdout.readline()).split())]
    assert all(alive(pid) for pid in pids)
    owner.send_signal(number)
    await owner.wait()
    await until(lambda: not [pid for pid in pids if alive(pid)])
    assert port_is_free(port)


async def test_an_engine_whose_keeper_is_killed_ends_too(tmp_path):
    running, pids = await started(engine("polite"), tmp_path / "a.log", grace_s=0.3)
    running.keeper.send_signal(signal.SIGKILL)
    await running.wait()
    await until(lambda: not alive(running.pid))
    assert not running.running
    await running.stop()
    _engine, child, lost = pids
    await until(lambda: not alive(child))
    with suppress(ProcessLookupError):  # it had left the group, and the kernel knows no family any more
        os.kill(lost, signal.SIGKILL)


async def test_a_stop_that_is_cancelled_kills_at_once(tmp_path):
    running, pids = await started(engine("stubborn"), tmp_path / "a.log", grace_s=30)
    stopping = asyncio.ensure_future(running.stop())
    await asyncio.sleep(0.2)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await until(lambda: not [pid for pid in pids if alive(pid)], 5)
    await running.wait()


async def test_a_start_that_is_cancelled_leaves_no_engine(tmp_path):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    starting = asyncio.ensure_future(start(engine("polite"), tmp_path / "a.log", grace_s=0.3))
    await until(lambda: bool({child.pid for child in psutil.Process().children()} - before))
    starting.cancel()
    with suppress(asyncio.CancelledError):
        running = await starting
        await running.stop()  # it was faster than the cancellation
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


async def test_the_engine_does_not_inherit_ignored_signals(tmp_path):
    words = "import signal; print(*(signal.getsignal(n) == signal.SIG_IGN for n in (2, 15, 1, 17)))"
    running = await start(launch(sys.executable, "-c", words), tmp_path / "a.log")
    await running.wait()
    await running.stop()
    assert running.log_text().split() == ["False"] * 4


async def test_the_engine_gets_its_variables_and_logs_both_streams(tmp_path):
    words = "import os, sys; print(os.environ['GIVEN']); print('also this', file=sys.stderr)"
    running = await start(launch(sys.executable, "-c", words, env={"GIVEN": "value"}), tmp_path / "a.log")
    assert await running.wait() == 0
    await running.stop()
    assert sorted(running.log_text().splitlines()) == ["also this", "value"]


async def test_a_second_start_adds_to_the_log(tmp_path):
    for word in ("first", "second"):
        running = await start(launch(sys.executable, "-c", f"print('{word}')"), tmp_path / "a.log")
        await running.wait()
        await running.stop()
    assert (tmp_path / "a.log").read_text().split() == ["first", "second"]


@pytest.mark.parametrize("command", ["no-such-program-anywhere", "/no/such/path", "{folder}"])
async def test_a_program_that_cannot_be_started_is_named(tmp_path, command):
    name = command.format(folder=tmp_path)
    with pytest.raises(EngineError) as caught:
        await start(launch(name), tmp_path / "a.log")
    assert f'cannot start "{name}"' in str(caught.value)
    assert "engine.command" in caught.value.remedy


async def test_a_taken_port_is_told_with_its_holder(tmp_path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(EngineError) as caught:
            await start(launch("true", port=port), tmp_path / "a.log")
    assert str(caught.value) == f"port {port} on 127.0.0.1 is taken by process {os.getpid()}"
    assert "engine.args.port" in caught.value.remedy
    assert not (tmp_path / "a.log").exists()


async def test_a_log_that_cannot_be_written_is_an_error_of_the_records(tmp_path):
    (tmp_path / "logs").write_text("a file where the folder should be")
    with pytest.raises(RecordError, match="log cannot be written"):
        await start(launch("true"), tmp_path / "logs" / "a.log")


PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], stdout=subprocess.DEVNULL)
print(flush=True)
time.sleep(60)
"""


def test_a_stale_engine_is_ended_only_by_its_own_start_time():
    words = [sys.executable, "-c", PARENT]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as stale:
        stale.stdout.readline()
        began = start_time(stale.pid)
        (child,) = psutil.Process(stale.pid).children()
        assert not end_stale(stale.pid, began + 1.0)
        assert not end_stale(stale.pid, began - 0.5)
        assert alive(stale.pid)
        assert end_stale(stale.pid, began)
        assert not alive(stale.pid)
        assert not alive(child.pid)
        assert not end_stale(stale.pid, began)
    assert start_time(stale.pid) is None


def test_a_stale_engine_that_ignores_sigterm_is_killed(monkeypatch):
    monkeypatch.setattr(process, "STOP_GRACE_S", 0.3)
    words = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE) as stale:
        stale.stdout.readline()
        assert end_stale(stale.pid, start_time(stale.pid))
        assert stale.wait(5) == -signal.SIGKILL


def test_the_tail_of_a_log_is_short_and_holds_no_control_characters(tmp_path):
    log = tmp_path / "a.log"
    lines = [f"line {number}" for number in range(100)]
    lines[-2] = "\x1b[31mred\x1b[0m \x1b]0;title\x07a\tb\x00\x9b \x7f"
    log.write_text("\n".join(lines) + "\n")
    shown = tail(log).splitlines()
    assert len(shown) == 15
    assert shown[0] == "line 85"
    assert shown[-2:] == ["red a\tb ", "line 99"]


def test_the_tail_of_a_huge_line_is_limited_and_bad_bytes_are_shown(tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 1_000_000 + b"\xff\n")
    assert len(tail(log)) <= 16_384
    assert tail(log).endswith("x\ufffd")
    assert tail(tmp_path / "none.log") == ""


def test_free_ports_are_free():
    assert port_is_free(free_port())


def test_the_keeper_needs_nothing_but_the_standard_library():
    path = Path(process.__file__).with_name("keeper.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(path), "1", os.devnull, "null", "true"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("pid ")
    assert done.stderr == ""
