"""A study's folder and store: made, found, locked, and gone on with by its own plan and traffic only."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from specdyno.errors import RecordError
from specdyno.load.agenda import Stock
from specdyno.plan.schema import Plan
from specdyno.records import provenance
from specdyno.records.lock import lock_study
from specdyno.records.schema import StudyHeader
from specdyno.records.store import Store
from specdyno.report import atomic

DATABASE = "study.sqlite"


def database(study: Path) -> Path:
    if not study.is_dir():
        raise RecordError(f"{study}: there is no study here. Name the folder that `specdyno run --out` wrote.")
    path = study / DATABASE
    if not path.exists():
        raise RecordError(f"{study}: the folder holds no {DATABASE}, so it is no study. Name one that `run` wrote.")
    return path


def make_folder(study: Path) -> None:
    try:
        study.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{study}: cannot make the study's folder ({error}). Choose another --out.") from error


@contextmanager
def opened(study: Path, header: StudyHeader, *, resume: bool) -> Iterator[Store]:
    """The study's store under the study's lock: made new, or opened again for `--resume`."""
    make_folder(study)
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


def header_of(plan: Plan, text: str, stock: Stock) -> StudyHeader:
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
