"""A log to a folder: one prompt file per class, sessions, a piece of a plan, and the account of it all.

The folder appears whole or not at all. Large files are read by worker processes; what they return is added up here, in
the order of the log, so that the result does not depend on their number.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdyno.errors import PlanError, Problem, RecordError
from specdyno.workload.logs import DEFAULT_KEPT, files, folder
from specdyno.workload.logs.beginnings import Beginnings
from specdyno.workload.logs.files import Log
from specdyno.workload.logs.join import Results, holds_batches
from specdyno.workload.logs.reading import nothing_collected, read, read_as_worker
from specdyno.workload.logs.rebuild import Reader
from specdyno.workload.logs.redact import Redactor
from specdyno.workload.logs.scan import Facts
from specdyno.workload.logs.tally import Tally

_STRETCH = 4 * 1024 * 1024
_SMALL = 48 * 1024 * 1024  # bytes: what is read before worker processes have started


@dataclass(frozen=True, slots=True)
class Imported:
    """Where an import lies, and its account as `import.json` holds it."""

    folder: Path
    account: dict[str, Any]


def import_logs(
    paths: Sequence[Path], out: Path, *, redact: bool = False, kept: int = DEFAULT_KEPT, processes: int | None = None
) -> Imported:
    """Imports logs into a new folder.

    Args:
        paths: log files; the halves of an OpenAI batch belong together here.
        out: the folder to make; it may exist if it is empty.
        redact: replace personal data (see `redact`).
        kept: prompts to keep of each class.
        processes: worker processes for large logs; default: as many as cores.

    Raises:
        PlanError: files that cannot be read, no usable request, or `out` holds something.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PlanError([Problem("--out", f"{out} holds something already", "Name a folder that does not exist")])
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".import-", dir=out.parent) as work:
            logs = files.logs(paths, Path(work))
            results = _results(logs)
            tally = _tallied(logs, results, kept=kept, processes=processes)
            made = Path(work) / "made"
            made.mkdir()
            with closing(Reader([log.path for log in logs], results)) as reader, nothing_collected():
                account = folder.write(made, tally, logs=logs, reader=reader, redactor=Redactor() if redact else None)
            (made / folder.PIECE).write_text(folder.piece(account, out), encoding="utf-8")
            if out.exists():
                out.rmdir()
            made.rename(out)
            return Imported(out, account)
    except OSError as error:
        seen = f"{error.filename or out} cannot be written: {error.strerror or error}"
        raise PlanError([Problem("--out", seen, "Check its permissions and the room on its disk")]) from error


def _results(logs: Sequence[Log]) -> Results | None:
    batches = [log.path for log in logs if holds_batches(log.path)]
    return Results(batches) if batches else None


def _tallied(logs: Sequence[Log], results: Results | None, *, kept: int, processes: int | None) -> Tally:
    tally = Tally(kept=kept)
    for number, facts in scanned(logs, results, processes=processes):
        tally.add(number, facts)
    tally.finish()
    if not tally.requests:
        raise PlanError(_nothing_usable(tally, logs))
    return tally


def _nothing_usable(tally: Tally, logs: Sequence[Log]) -> list[Problem]:
    problems = []
    for reason, (count, lines) in sorted(tally.refused.items(), key=lambda entry: -entry[1][0])[:5]:
        file, line = lines[0]
        row = "entry" if logs[file].entries else "line"
        problems.append(Problem(logs[file].name, f"no usable request: {count} rows, first {row} {line}, {reason}", ""))
    return problems or [Problem(", ".join(log.name for log in logs), "no usable request: no rows", "Check the files")]


def scanned(
    logs: Sequence[Log], results: Results | None, *, processes: int | None = None
) -> Iterator[tuple[int, Facts]]:
    """The facts of every stretch of every log, in order, with the number of the log."""
    work = (
        (number, log.path, stretch)
        for number, log in enumerate(logs)
        for stretch in files.stretches(log.path, _STRETCH)
    )
    size = sum(log.path.stat().st_size for log in logs)
    workers = min(processes or os.cpu_count() or 1, 1 + size // _SMALL)
    if workers < 2:
        beginnings = Beginnings()
        for number, path, stretch in work:
            yield number, read(path, stretch, results, beginnings)
        return
    with _same_hashes(), _pool(workers) as pool:
        waiting: deque[tuple[int, Future[Facts]]] = deque()
        for number, path, stretch in work:
            waiting.append((number, pool.submit(read_as_worker, path, stretch, results)))
            if len(waiting) > 2 * workers:
                first, future = waiting.popleft()
                yield first, future.result()
        for number, future in waiting:
            yield number, future.result()


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Workers that leave an interrupt to this process, and end at once when it comes."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        yield pool
    except BrokenProcessPool as error:
        raise RecordError(
            "a worker process of the import was ended from outside (out of memory?). Use --processes 1"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _same_hashes() -> Iterator[None]:
    """Texts must have the same hash in every worker, and Python salts them anew in each process."""
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before
