"""The work folder: each stage's output is there whole or not at all, so that a re-run goes on where the last ended."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class WorkError(Exception):
    """What the person who started the run must change."""


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path to write to; it takes the name `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, value: object) -> None:
    with whole(path) as partial:
        partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def settle(folder: Path, settings: dict[str, object]) -> None:
    """Remember what a work folder was made with; WorkError where it was made with something else."""
    record = folder / "settings.json"
    if not record.is_file():
        write_json(record, settings)
        return
    earlier = json.loads(record.read_text(encoding="utf-8"))
    changed = [
        f"{key}: {earlier.get(key)!r} then, {value!r} now"
        for key, value in settings.items()
        if earlier.get(key) != value
    ]
    if changed:
        raise WorkError(f"{folder} was made with other settings ({'; '.join(changed)}). Name another --work folder.")


class Progress:
    """One line every few seconds: what is being done, how far, how long it will take."""

    def __init__(self, label: str, every_s: float = 10.0) -> None:
        self._label, self._every_s = label, every_s
        self._began = self._said = time.monotonic()
        self._at_begin: float | None = None

    def at(self, share: float, note: str = "") -> None:
        """`share` of the work is done (0 to 1); says so when it is time to. A resumed stage begins above 0."""
        now = time.monotonic()
        if self._at_begin is None:
            self._at_begin, self._began = share, now
        if now - self._said < self._every_s:
            return
        self._said = now
        gained = share - self._at_begin
        left = f", {remaining((now - self._began) / gained * (1 - share))} left" if gained > 0 else ""
        print(f"{self._label}: {share:.0%}{left}{', ' + note if note else ''}", flush=True)


def remaining(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
