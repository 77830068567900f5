"""The steps of a study, in order: plan, preflight, engine, load, records, statistics, verdict, report.

The only module that knows every stage. `run` measures up to the deciding look and always leaves a judged study;
`judge` and `report` need nothing but the records.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvloop
import yaml
from pydantic import ValidationError

from specdyno.engine import person, server, tls
from specdyno.engine.base import Adapter
from specdyno.engine.reading import detect
from specdyno.engine.reading.schema import Reading
from specdyno.errors import EngineError, PlanError, Problem, RecordError, SpecdynoError
from specdyno.load import runner
from specdyno.load.agenda import Stock, window_plans
from specdyno.load.boot import Rig
from specdyno.load.probe import Probe
from specdyno.load.probe import measure as measure_running
from specdyno.load.watch import Silent, Watcher
from specdyno.plan import duration, parse
from specdyno.plan.paths import with_absolute_paths
from specdyno.plan.schedule import Block, schedule
from specdyno.plan.schema import Plan
from specdyno.preflight import gate, host
from specdyno.preflight.checkpoints.read import read as read_checkpoint
from specdyno.preflight.memory import assess
from specdyno.preflight.origins import origins
from specdyno.preflight.pair import rules
from specdyno.preflight.pair.check import check_pairs
from specdyno.preflight.schema import Check
from specdyno.records import provenance
from specdyno.records.lock import lock_study
from specdyno.records.memory import ArmMemory
from specdyno.records.schema import BootStatus, StudyHeader, StudyRecords
from specdyno.records.store import Store
from specdyno.report import atomic, files, view
from specdyno.report.export import export as write_tables
from specdyno.statistics.analyse import analyse, plan_of
from specdyno.statistics.analysis import Analysis
from specdyno.verdict.decide import judge as judge_records
from specdyno.verdict.decide import pursued
from specdyno.verdict.schema import Decision, Verdict
from specdyno.verdict.settings import Recommendation, recommendations
from specdyno.workload import draw
from specdyno.workload.sessions import ClassSessions, load_session_pools
from specdyno.workload.sources import ClassPrompts, load_pools
from specdyno.workload.traces import load_traces

DATABASE = "study.sqlite"


@dataclass(frozen=True, slots=True)
class Judged:
    """A study with its verdict and the files that were written."""

    study: Path
    analysis: Analysis
    verdict: Verdict
    view: view.View
    page: Path
    paths: tuple[Path, ...]


def read_plan(path: Path) -> tuple[Plan, str]:
    """The plan with local paths made absolute (relative to its own folder), and its text."""
    plan, text = parse.read(path)
    return with_absolute_paths(plan, path.absolute().parent), text


def run(
    plan_path: Path, study: Path, *, resume: bool = False, budget_s: float | None = None, watcher: Watcher | None = None
) -> Judged:
    """Measure a plan into `study` and judge it. PlanError, EngineError and RecordError leave what was measured."""
    watcher = watcher or Silent()
    plan, text = read_plan(plan_path)
    stock = _stock(plan, plan_path.absolute().parent)
    for note in _stock_notes(stock):
        watcher.note(note)
    adapter = server.adapter(plan.engine, plan.target)
    person.require_terminal(plan.engine)
    ready = _able_to_start(plan, study, adapter)
    for remark in ready.remarks:
        watcher.note(remark)
    header = _header(plan, text, stock)
    header = replace(header, memory=ready.memory, provenance=header.provenance | ready.origins)
    with _opened(study, header, resume=resume) as store:
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
        judged = _judged(study, store.read_study())
    if failure is not None:
        raise failure
    return judged


def judge(study: Path) -> Judged:
    """Records to verdict and files, no server needed."""
    with Store.open(_database(study), write=False) as store:
        records = store.read_study()
    return _judged(study, records)


def read_study(study: Path) -> tuple[StudyRecords, Analysis, Verdict]:
    """The records of a study with their verdict, written nowhere."""
    with Store.open(_database(study), write=False) as store:
        records = store.read_study()
    return records, *judge_records(records)


@dataclass(frozen=True, slots=True)
class Deployment:
    """What one objective's verdict asks to run. `flags` is None where the engine is to stay as it is."""

    recommendation: Recommendation
    flags: tuple[str, ...] | None
    limited_flags: tuple[str, ...] | None = None  # with speculation up to the recommendation's load range only


def settings(study: Path) -> tuple[Deployment, ...]:
    """The flags to deploy for each objective, written for the study's engine; no server needed."""
    records, analysis, verdict = read_study(study)
    plan = plan_of(records)
    made = server.adapter(plan.engine, plan.target)
    arms = {arm.name: arm for arm in plan.arms()}

    def deployment(one: Recommendation) -> Deployment:
        if one.arm is None:
            return Deployment(one, None)
        limited = made.deployment_up_to(arms[one.arm], one.up_to) if one.up_to is not None else None
        return Deployment(one, made.deployment(arms[one.arm]), limited)

    return tuple(deployment(one) for one in recommendations(verdict, analysis, plan))


@dataclass(frozen=True, slots=True)
class Checked:
    """What `check` shows: nothing was booted."""

    plan: Plan
    blocks: tuple[Block, ...]
    estimate: duration.Estimate
    gain: duration.VisibleGain
    prompts: dict[str, ClassPrompts]
    sessions: dict[str, ClassSessions]
    needed: dict[str, int]  # prompts or sessions of each class that one boot takes at the planned sizes
    remarks: tuple[str, ...]
    checks: tuple[Check, ...]  # of target, draft, draft length and memory, before the first boot
    memory: tuple[ArmMemory, ...]  # what each arm will take; none for a simulated engine


def check(plan_path: Path) -> Checked:
    """Everything that can be known before the first boot; raises what `run` would raise before it."""
    plan, _ = read_plan(plan_path)
    stock = _stock(plan, plan_path.absolute().parent)
    ready = _able_to_start(plan, plan_path.absolute().parent, server.adapter(plan.engine, plan.target))
    return Checked(
        plan=plan,
        blocks=schedule(plan),
        estimate=duration.estimate(plan),
        gain=duration.smallest_visible_gain(plan),
        prompts=dict(stock.pools),
        sessions=dict(stock.sessions),
        needed=draw.needs(plan, stock.exact),
        remarks=(*ready.remarks, *_stock_notes(stock)),
        checks=ready.checks,
        memory=ready.memory,
    )


def export(study: Path, out_dir: Path, formats: list[str]) -> list[Path]:
    """The records and estimates of a study as files for other programs."""
    records, analysis, verdict = read_study(study)
    return write_tables(records, analysis, verdict, out_dir=out_dir, formats=formats)


def measure(probe: Probe, *, out: Path | None = None, watcher: Watcher | None = None) -> tuple[StudyRecords, Analysis]:
    """Measure one running server; its records stay in `out` where that is named."""
    with tempfile.TemporaryDirectory(prefix="specdyno-") as scratch:
        folder = out or Path(scratch)
        if out is not None:
            _make_folder(out)
        path = folder / DATABASE

        def opened(plan: Plan) -> Store:
            text = yaml.safe_dump(plan.model_dump(mode="json"), sort_keys=False)
            return Store.create(path, _header(plan, text, Stock(plan, {})))

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


def exit_code(verdict: Verdict) -> int:
    """What `run` and `judge` end with: 0 promote, 20 hold, 10 reject."""
    return {Decision.PROMOTE: 0, Decision.HOLD: 20, Decision.REJECT: 10}[verdict.outcome]


# ---- opening ---------------------------------------------------------------------------------------------------


def _database(study: Path) -> Path:
    if not study.is_dir():
        raise RecordError(f"{study}: there is no study here. Name the folder that `specdyno run --out` wrote.")
    path = study / DATABASE
    if not path.exists():
        raise RecordError(f"{study}: the folder holds no {DATABASE}, so it is no study. Name one that `run` wrote.")
    return path


def _make_folder(study: Path) -> None:
    try:
        study.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{study}: cannot make the study's folder ({error}). Choose another --out.") from error


@contextmanager
def _opened(study: Path, header: StudyHeader, *, resume: bool) -> Iterator[Store]:
    """The study's store under the study's lock: made new, or opened again for `--resume`."""
    _make_folder(study)
    path = study / DATABASE
    with lock_study(study):
        if not path.exists():
            with Store.create(path, header) as store:
                atomic.write(study / "plan.yaml", header.plan_yaml)
                yield store
            return
        if not resume:
            raise RecordError(f"{study}: a study is there already. Go on with --resume, or name another --out.")
        with Store.open(path, write=True) as store:
            _same_study(store.header, header, study)
            yield store


def _header(plan: Plan, text: str, stock: Stock) -> StudyHeader:
    in_force = plan.model_dump(mode="json")
    return StudyHeader(
        plan=in_force,
        plan_yaml=text,
        plan_sha256=provenance.plan_sha256(in_force),
        created_unix_ns=time.time_ns(),
        provenance={
            **provenance.collect(),
            "prompts_sha256": _stock_sha256(stock),
        },
    )


def _stock_sha256(stock: Stock) -> dict[str, str]:
    """What identifies everything that may be sent, by class, and the times of every trace, by load."""
    prompts = {name: "\n".join(prompt.sha256 for prompt in pool.prompts) for name, pool in stock.pools.items()}
    sessions = {name: repr(pool.sessions) for name, pool in stock.sessions.items()}
    times = {f"times of {name}": repr(trace.times_s) for name, trace in stock.traces.items()}
    held = prompts | sessions | times
    return {name: hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest() for name, text in held.items()}


def _same_study(stored: StudyHeader, given: StudyHeader, study: Path) -> None:
    """A study is gone on with by its own plan and prompts only: otherwise its blocks would not compare."""
    if _as_read_now(stored) != given.plan_sha256:
        changed = sorted(key for key in {*stored.plan, *given.plan} if stored.plan.get(key) != given.plan.get(key))
        raise RecordError(
            f"{study}: this study was made from another plan (it differs in: {', '.join(changed)}). "
            f"Use its own plan ({study / 'plan.yaml'}), or measure the new plan into another --out."
        )
    before, now = (header.provenance.get("prompts_sha256") for header in (stored, given))
    if before != now:
        raise RecordError(
            f"{study}: the prompts of a class, or a trace, have changed since this study began. "
            "Put the old files back, or measure into another --out."
        )


def _as_read_now(stored: StudyHeader) -> str:
    """The hash of a study's plan as this version reads it: keys that are new since then have their defaults."""
    try:
        in_force = Plan.model_validate(stored.plan).model_dump(mode="json")
    except ValidationError:
        return stored.plan_sha256
    return provenance.plan_sha256(in_force)


# ---- judging ---------------------------------------------------------------------------------------------------


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


def _judged(study: Path, records: StudyRecords) -> Judged:
    analysis, verdict = judge_records(records)
    return Judged(
        study=study,
        analysis=analysis,
        verdict=verdict,
        view=view.build(records, analysis, verdict),
        page=study / files.PAGE,
        paths=files.write(study, records, analysis, verdict),
    )


def _stock(plan: Plan, folder: Path) -> Stock:
    """What the plan may send, read from its files.

    PlanError where a file cannot be used, or holds too little for one boot of the sizes that are known before it.
    """
    stock = Stock(
        plan, load_pools(plan, folder), sessions=load_session_pools(plan, folder), traces=load_traces(plan, folder)
    )
    for load in plan.measured_loads:
        if load.trace is not None and stock.exact[load.name] < 2:
            seen = f"its window of {load.window:g} s holds {stock.exact[load.name]} arrivals of the trace"
            raise PlanError([Problem(f"loads.{load.name}", seen, "Use a longer window, or scale it with `rate`")])
    try:
        window_plans(stock, 0, stock.exact)
    except ValueError as error:
        raise PlanError([Problem("loads", str(error), "Remove `rate` from this trace, or use another")]) from error
    return stock


def _stock_notes(stock: Stock) -> list[str]:
    skipped = {name: pool.skipped for name, pool in stock.pools.items()}
    skipped |= {name: pool.skipped for name, pool in stock.sessions.items()}
    notes = [
        f"class {name}: {len(rows)} rows cannot be used, first: line {rows[0][0]}, {rows[0][1]}"
        for name, rows in skipped.items()
        if rows
    ]
    return [*notes, *(f"load {name}: {trace}" for name, trace in stock.traces.items())]


@dataclass(frozen=True, slots=True)
class _Ready:
    """A plan that may be booted: what is worth knowing, and every check that said so."""

    remarks: tuple[str, ...]
    checks: tuple[Check, ...]
    memory: tuple[ArmMemory, ...]  # what each arm will take
    origins: dict[str, Any]  # devices, and what identifies each checkpoint


def _able_to_start(plan: Plan, study: Path, adapter: Adapter) -> _Ready:
    """Refuse what cannot be booted here, before anything is: every problem of the plan at once."""
    read = functools.cache(lambda source, revision: read_checkpoint(source, revision=revision))
    memory = assess.assess(plan, read=read)
    checks = (*check_pairs(plan, read=read), *memory.checks)
    remarks = _all_or_every_problem(
        lambda: host.check(plan, study=study, argv0=next(iter(adapter.command()), None)),
        lambda: gate.pass_or_refuse(checks, plan.preflight.accept, known=rules.NAMES | assess.NAMES),
    )
    for arm in plan.arms():
        adapter.flags(arm, 0, boot_seed=0)  # a method that this engine does not have
    tls.context(plan.engine.ca_file)
    if adapter.read_from is not None:
        remarks.append(f"The adapter for {adapter.name} was never run against it: it follows {adapter.read_from}.")
    return _Ready(tuple(remarks), checks, memory.arms, origins(plan, read=read))


def _all_or_every_problem(*steps: Callable[[], list[str]]) -> list[str]:
    """What all steps return, or one PlanError with the problems of each; a place is refused by the first step only."""
    found: list[str] = []
    problems: list[Problem] = []
    other: SpecdynoError | None = None
    for step in steps:
        refused = {problem.place for problem in problems}
        try:
            found += step()
        except PlanError as error:
            problems += [problem for problem in error.problems if problem.place not in refused]
        except SpecdynoError as error:  # who writes the plan acts first
            other = other or error
    if problems:
        raise PlanError(problems)
    if other is not None:
        raise other
    return found
