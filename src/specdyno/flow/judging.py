"""Records to verdict and files; no server needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdyno.engine import server
from specdyno.flow.opening import database
from specdyno.records.schema import StudyRecords
from specdyno.records.store import Store
from specdyno.report import files, view
from specdyno.report.export import export as write_tables
from specdyno.statistics.analyse import plan_of
from specdyno.statistics.analysis import Analysis
from specdyno.verdict.decide import judge as judge_records
from specdyno.verdict.schema import Decision, Verdict
from specdyno.verdict.settings import Recommendation, recommendations


@dataclass(frozen=True, slots=True)
class Judged:
    """A study with its verdict and the files that were written."""

    study: Path
    analysis: Analysis
    verdict: Verdict
    view: view.View
    page: Path
    paths: tuple[Path, ...]


def judge(study: Path) -> Judged:
    """Records to verdict and files, no server needed."""
    with Store.open(database(study), write=False) as store:
        records = store.read_study()
    return judged(study, records)


def read_study(study: Path) -> tuple[StudyRecords, Analysis, Verdict]:
    """The records of a study with their verdict, written nowhere."""
    with Store.open(database(study), write=False) as store:
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


def export(study: Path, out_dir: Path, formats: list[str]) -> list[Path]:
    """The records and estimates of a study as files for other programs."""
    records, analysis, verdict = read_study(study)
    return write_tables(records, analysis, verdict, out_dir=out_dir, formats=formats)


def exit_code(verdict: Verdict) -> int:
    """What `run` and `judge` end with: 0 promote, 20 hold, 10 reject."""
    return {Decision.PROMOTE: 0, Decision.HOLD: 20, Decision.REJECT: 10}[verdict.outcome]


def judged(study: Path, records: StudyRecords) -> Judged:
    analysis, verdict = judge_records(records)
    return Judged(
        study=study,
        analysis=analysis,
        verdict=verdict,
        view=view.build(records, analysis, verdict),
        page=study / files.PAGE,
        paths=files.write(study, records, analysis, verdict),
    )
