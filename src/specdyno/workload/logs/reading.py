"""One stretch of a log file to its facts: what a worker process does. Imports little, because each starts with it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from specdyno.workload.logs.beginnings import Beginnings
from specdyno.workload.logs.scan import LONGEST_ROW, Facts, refuse, scan

if TYPE_CHECKING:
    from specdyno.workload.logs.files import Stretch
    from specdyno.workload.logs.join import Results

_WORKERS_OWN: list[Beginnings] = []  # what this process has read, if it is a worker


def read_as_worker(path: Path, stretch: Stretch, results: Results | None) -> Facts:
    """`read` in a process that is there for nothing else: what it learns of a log it keeps for the next stretch."""
    if not _WORKERS_OWN:
        _WORKERS_OWN.append(Beginnings())
    return read(path, stretch, results, _WORKERS_OWN[0])


def read(path: Path, stretch: Stretch, results: Results | None, beginnings: Beginnings | None = None) -> Facts:
    """The facts of one stretch of a file."""
    if not stretch.usable:
        facts = Facts(lines=1, rows=1)
        refuse(facts, f"is longer than {LONGEST_ROW // 1024**2} MiB", 1)
        return facts
    with nothing_collected():
        with path.open("rb") as file:
            file.seek(stretch.start)
            data = file.read(stretch.size)
        return scan(data, start=stretch.start, results=results, beginnings=beginnings)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Parsed rows hold no circles, and looking for them takes a fifth of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
