"""Engines that run elsewhere, as a test needs them: scripts that start the simulated server, and a stand-in daemon."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.flow.command_line import QUIET, plan

SIMULATED = f'"{sys.executable}" -m specdyno.engine.simulated --model sim/model --time-scale 0.3'
# METHOD DRAFT K PORT, and further flags in $FLAGS
SERVE = f"""\
set -- "$1" "$2" "$3" "$4" {SIMULATED} --port "$4" --truth '{json.dumps(QUIET)}' $FLAGS
if [ "$1" != none ]; then
    config="{{\\"method\\": \\"$1\\", \\"model\\": \\"$2\\", \\"num_speculative_tokens\\": $3}}"
    set -- "$@" --speculative-config "$config" --per-request-spec-decode-metrics detailed
fi
shift 4
"""
WORDS = ["{method}", "{draft}", "{draft_tokens}", "{port}"]


def script(path: Path, *lines: str) -> Path:
    path.write_text("#!/bin/sh\nset -e\n" + "\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def in_foreground(folder: Path) -> list[str]:
    """A start command that stays, as ssh does."""
    return [str(script(folder / "serve.sh", SERVE, 'exec "$@"')), *WORDS]


def external(**keys: Any) -> dict[str, Any]:
    """The plan's `engine`; keys beside `external`'s own go to the engine."""
    others = {
        name: keys.pop(name) for name in ("env", "api_key_env", "ca_file", "args", "ready_timeout") if name in keys
    }
    return {"kind": "external", "external": {"speaks": "simulated", "stop_timeout": "10s", **keys}, **others}


def study(**keys: Any) -> dict[str, Any]:
    return plan(engine=external(**keys))


class Daemon:
    """Starts and stops servers that are none of specdyno's children, as a container daemon does.

    A file `PORT.start` in its folder holds the words of `serve.sh`; `PORT.stop` asks for the end of that server.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._serve = script(folder / "serve.sh", SERVE, 'exec "$@"')
        self._ended = threading.Event()
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self.started = 0
        self._thread = threading.Thread(target=self._work)

    @property
    def start(self) -> list[str]:
        """A start command that returns at once."""
        ask = script(
            self.folder / "up.sh",
            f'printf "%s\\n" "$@" > "{self.folder}/$4.asked"',
            f'mv "{self.folder}/$4.asked" "{self.folder}/$4.start"',
        )
        return [str(ask), *WORDS]

    @property
    def stop(self) -> list[str]:
        """A stop command that returns once the server is gone; 1 where there was none."""
        down = script(
            self.folder / "down.sh",
            f'touch "{self.folder}/$1.stop"',
            f'for i in $(seq 200); do [ -e "{self.folder}/$1.stop" ] || exit 0; sleep 0.05; done',
            "exit 1",
        )
        return [str(down), "{port}"]

    @property
    def running(self) -> list[str]:
        return [port for port, server in self._servers.items() if server.poll() is None]

    def end_all(self) -> None:
        for server in list(self._servers.values()):
            server.kill()
            server.wait()

    def _work(self) -> None:
        while not self._ended.wait(0.02):
            for asked in list(self.folder.glob("*.start")):
                words = asked.read_text(encoding="utf-8").split("\n")[:4]
                asked.unlink()
                with (self.folder / f"{asked.stem}.log").open("ab") as log:
                    self._servers[asked.stem] = subprocess.Popen([self._serve, *words], stdout=log, stderr=log)
                self.started += 1
            for asked in list(self.folder.glob("*.stop")):
                if (server := self._servers.get(asked.stem)) is not None:
                    server.terminate()
                    server.wait()
                asked.unlink()

    @contextmanager
    def at_work(self) -> Iterator[Daemon]:
        self._thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._thread.join()
            with suppress(ProcessLookupError):
                self.end_all()
