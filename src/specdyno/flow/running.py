"""A plan measured into a study, block by block up to the deciding look, then judged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import uvloop

from specdyno.engine import person, server
from specdyno.errors import EngineError
from specdyno.flow.checking import able_to_start, read_plan, stock_notes, stock_of
from specdyno.flow.judging import Judged, judged
from specdyno.flow.opening import header_of, opened
from specdyno.load import runner
from specdyno.load.boot import Rig
from specdyno.load.watch import Silent, Watcher
from specdyno.records.schema import BootStatus
from specdyno.records.store import Store
from specdyno.verdict.decide import judge as judge_records
from specdyno.verdict.decide import pursued


def run(
    plan_path: Path, study: Path, *, resume: bool = False, budget_s: float | None = None, watcher: Watcher | None = None
) -> Judged:
    """Measure a plan into `study` and judge it. PlanError, EngineError and RecordError leave what was measured."""
    watcher = watcher or Silent()
    plan, text = read_plan(plan_path)
    stock = stock_of(plan, plan_path.absolute().parent)
    for note in stock_notes(stock):
        watcher.note(note)
    adapter = server.adapter(plan.engine, plan.target)
    person.require_terminal(plan.engine)
    ready = able_to_start(stock, study, adapter)
    for remark in ready.remarks:
        watcher.note(remark)
    header = header_of(plan, text, stock)
    header = replace(header, memory=ready.memory, provenance=header.provenance | ready.origins)
    with opened(study, header, resume=resume) as store:
        budget = budget_s if budget_s is not None else plan.budget.time
        standing = _standing(store)
        campaign = runner.Campaign(
            rig=Rig(plan, adapter, store, watcher),
            folder=study,
            pools=dict(stock.pools),
            sessions=dict(stock.sessions),
            traces=dict(stock.traces),
            settled=lambda: not standing(),
            pursued=standing,
            deadline_ns=time.monotonic_ns() + int(budget * 1e9) if budget else None,
            sizing=dict(store.header.sizing),
        )
        runner.end_stale_engines(store, watcher)
        failure: EngineError | None = None
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
                loop.run(runner.walk(campaign))
        except EngineError as error:
            failure = error
        result = judged(study, store.read_study())
    if failure is not None:
        raise failure
    return result


def _standing(store: Store) -> Callable[[], frozenset[str]]:
    """Candidates that further blocks are spent on, judged anew only after something was booted."""
    known: dict[tuple[tuple[int, BootStatus], ...], frozenset[str]] = {}

    def standing() -> frozenset[str]:
        boots = tuple((boot.id, boot.status) for boot in store.read_boots())
        if boots not in known:
            records = store.read_study()
            known.clear()
            known[boots] = pursued(records, judge_records(records)[1])
        return known[boots]

    return standing
