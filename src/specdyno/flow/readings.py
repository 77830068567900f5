"""What runs or ran elsewhere: one running server measured, a text of an engine read."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import uvloop
import yaml

from specdyno.engine.reading import detect
from specdyno.engine.reading.schema import Reading
from specdyno.errors import PlanError
from specdyno.flow.opening import DATABASE, header_of, make_folder
from specdyno.load.agenda import Stock
from specdyno.load.probe import Probe
from specdyno.load.probe import measure as measure_running
from specdyno.load.watch import Silent, Watcher
from specdyno.plan.schema import Plan
from specdyno.records.schema import StudyRecords
from specdyno.records.store import Store
from specdyno.statistics.analyse import analyse
from specdyno.statistics.analysis import Analysis


def measure(probe: Probe, *, out: Path | None = None, watcher: Watcher | None = None) -> tuple[StudyRecords, Analysis]:
    """Measure one running server; its records stay in `out` where that is named."""
    with tempfile.TemporaryDirectory(prefix="specdyno-") as scratch:
        folder = out or Path(scratch)
        if out is not None:
            make_folder(out)
        path = folder / DATABASE

        def opened(plan: Plan) -> Store:
            text = yaml.safe_dump(plan.model_dump(mode="json"), sort_keys=False)
            return Store.create(path, header_of(plan, text, Stock(plan, {})))

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(measure_running(probe, opened=opened, watcher=watcher or Silent()))
        with Store.open(path, write=False) as store:
            records = store.read_study()
    return records, analyse(records)


def read(path: Path, after: Path | None = None) -> Reading:
    """Acceptance out of a file that an engine or a benchmark printed; two files are two scrapes of /metrics."""
    before = _text_of(path)
    return detect.read(before) if after is None else detect.read_pair(before, _text_of(after))


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PlanError(f"{path}: cannot be read ({error.strerror or error})") from error
