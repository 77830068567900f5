"""Runs the installed command as a user does, writes small plans for the simulated engine, and reads what was kept."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from specdyno.records.schema import StudyRecords
from specdyno.records.store import Store

COMMAND = str(Path(sys.executable).with_name("specdyno"))
PATIENCE_S = 300.0  # for a slow, busy machine; nothing is ever asserted about time
QUIET = {"boot_spread": 0.002, "noise": 0.0, "ready_delay_s": 0.0, "output_tokens": 24, "acceptance": [0.9]}
CANDIDATE = {"method": "eagle3", "draft": "sim/draft", "draft_tokens": [3]}


@dataclass(frozen=True)
class Ended:
    """How one command ended. `text` is all it printed, on one line, so that wrapping does not matter."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return " ".join((self.out + " " + self.err).split())


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "COLUMNS": "200", **(extra or {})}


def specdyno(*words: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Ended:
    """One command to its end. A traceback is never an answer."""
    done = subprocess.run(
        [COMMAND, *map(str, words)], cwd=cwd, env=environment(env), capture_output=True, timeout=PATIENCE_S, check=False
    )
    ended = Ended(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in ended.out + ended.err, ended.err
    return ended


def plan(**changes: Any) -> dict[str, Any]:
    """A plan of two arms, one load and one look at four blocks; `changes` replace whole top-level parts."""
    return {
        "study": "flow",
        "seed": 3,
        "target": {"model": "sim/model"},
        "engine": engine(),
        "candidates": [dict(CANDIDATE)],
        "workload": workload(),
        "loads": [{"name": "pool", "concurrency": 2, "window": "1s", "requests": 6}],
        "objectives": [{"name": "pool", "load": "pool", "measure": "jobs_per_s"}],
        "experiment": {"looks": [4]},
        **changes,
    }


def engine(
    *, scale: float = 0.1, truth: Mapping[str, Any] | None = None, fault: str | None = None, **keys: Any
) -> dict:
    """The simulated engine; `keys` are further keys of the plan's `engine`, its `args` added to."""
    args = {"time-scale": scale, "truth": json.dumps({**QUIET, **(truth or {})}), **keys.pop("args", {})}
    return {"kind": "simulated", "args": args | ({"fault": fault} if fault else {}), **keys}


def workload(*, extra_body: Mapping[str, Any] | None = None, code: str = "builtin:code") -> dict[str, Any]:
    return {
        "sampling": {"temperature": 0.0, "extra_body": dict(extra_body or {})},
        "classes": [
            {"name": "code", "prompts": code, "share": 0.5, "max_tokens": 64},
            {"name": "chat", "prompts": "builtin:chat", "share": 0.5, "max_tokens": 64},
        ],
    }


def faulty(fault: str) -> dict[str, Any]:
    return {**CANDIDATE, "options": {"fault": fault}}


def write_plan(path: Path, content: Mapping[str, Any] | None = None) -> Path:
    path.write_text(yaml.safe_dump(dict(content or plan()), sort_keys=False), encoding="utf-8")
    return path


# ---- what was kept ---------------------------------------------------------------------------------------------------


def records(study: Path) -> StudyRecords:
    with Store.open(study / "study.sqlite", write=False) as store:
        return store.read_study()


def verdict(study: Path) -> dict[str, Any]:
    return json.loads((study / "verdict.json").read_bytes())


def rows(study: Path, query: str) -> list[tuple]:
    """Rows of a study that another process may be writing; none while there is no such table yet."""
    try:
        with closing(sqlite3.connect(f"file:{study / 'study.sqlite'}?mode=ro", uri=True, timeout=30)) as database:
            return database.execute(query).fetchall()
    except sqlite3.OperationalError:
        return []


# ---- processes -------------------------------------------------------------------------------------------------------


@contextmanager
def started(*words: object, cwd: Path | None = None) -> Iterator[subprocess.Popen]:
    """A command that runs on while the test does; it is gone afterwards."""
    process = subprocess.Popen(
        [COMMAND, *map(str, words)],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def end_of(process: subprocess.Popen) -> Ended:
    out, err = process.communicate(timeout=PATIENCE_S)
    ended = Ended(process.returncode, out.decode(), err.decode())
    assert "Traceback" not in ended.out + ended.err, ended.err
    return ended


def until(condition: Callable[[], Any], *, meanwhile: subprocess.Popen | None = None) -> Any:
    """The first true answer of `condition`. Fails where `meanwhile` ends before there is one."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        assert meanwhile is None or meanwhile.poll() is None, f"it ended first: {meanwhile.communicate()}"
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def living(pid: int, started_at: float) -> bool:
    """Whether the very process of a boot's row still runs, or anything in the group that it led."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if abs(process.create_time() - started_at) < 0.02 and process.status() != psutil.STATUS_ZOMBIE:
            return True
    return any(_group(process) == pid for process in psutil.process_iter() if process.pid != pid)


def _group(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid) if process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.Error, ProcessLookupError):
        return None


def engines(study: Path) -> list[tuple[int, float]]:
    return rows(study, "SELECT pid, pid_started FROM boot WHERE pid IS NOT NULL")


def plain(text: str) -> bool:
    """Whether a text holds no control characters but line breaks."""
    return re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text) is None
