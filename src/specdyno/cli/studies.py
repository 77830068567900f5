"""The verbs about studies: `demo`, `run`, `judge`, `report`, `export`."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from specdyno.cli.app import PlanFile, StudyFolder, err, out, verb
from specdyno.errors import PlanError
from specdyno.plan.schema import EngineKind

if TYPE_CHECKING:  # heavy imports wait until a verb needs them
    from specdyno import flow
    from specdyno.verdict.schema import Verdict


class Format(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"
    SERVE = "serve"


@verb
def demo(
    engine: Annotated[EngineKind, typer.Option(help="vllm or llamacpp.")] = EngineKind.VLLM,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Where the study goes.")] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="One short block: ends with hold.")] = False,
) -> None:
    """Run a whole study on this machine with a real small model. Exits 0 whatever the verdict."""
    from specdyno.demo import plans

    if engine is EngineKind.SIMULATED:
        raise PlanError("the demo measures a real engine: use --engine vllm or --engine llamacpp")
    study = out_dir or _unused(Path(f"demo-study-{engine}"))
    if study.exists() and any(study.iterdir()):
        raise PlanError(f'"{study}" is not empty: name another folder with --out')
    out.print("preparing the model and the draft (once) …")
    study.mkdir(parents=True, exist_ok=True)
    plan_file = study / "demo-plan.yaml"
    plan_file.write_text(plans.render(engine, quick=quick), encoding="utf-8")
    measure_and_show(plan_file, study, resume=False, budget_s=None)


@verb
def run(
    plan: PlanFile,
    out_dir: Annotated[Path, typer.Option("--out", help="The study's folder.")],
    *,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted study.")] = False,
    budget: Annotated[str | None, typer.Option(help='No new block that would end after this, e.g. "2h".')] = None,
) -> None:
    """Measure a plan block by block up to the deciding look, then judge and report."""
    from specdyno import flow

    verdict = measure_and_show(plan, out_dir, resume=resume, budget_s=_seconds(budget))
    raise typer.Exit(flow.exit_code(verdict))


@verb
def judge(study: StudyFolder) -> None:
    """Judge a study's records again; no server is needed."""
    from specdyno import flow

    judged = flow.judge(study)
    _show(judged)
    raise typer.Exit(flow.exit_code(judged.verdict))


@verb
def report(study: StudyFolder) -> None:
    """Write the report again: one HTML page, Markdown and JSON."""
    from specdyno import flow

    for path in flow.judge(study).paths:
        out.print(escape(str(path)), soft_wrap=True)


@verb
def export(
    study: StudyFolder,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Where the files go; default: STUDY/export.")] = None,
    *,
    formats: Annotated[
        list[Format] | None,
        typer.Option("--format", help="csv, parquet or serve (the keys of `vllm bench serve`); repeatable."),
    ] = None,
) -> None:
    """Write the records as CSV or Parquet tables and as JSON with the keys of `vllm bench serve`."""
    from specdyno import flow

    chosen = [str(one) for one in formats or [Format.CSV, Format.SERVE]]
    for path in flow.export(study, out_dir or study / "export", chosen):
        out.print(escape(str(path)), soft_wrap=True)


@verb
def settings(
    study: StudyFolder,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Print what to deploy for each objective that promotes: the exact flags, and the traffic they hold for."""
    from specdyno import flow, screens

    found = flow.settings(study)
    if as_json:
        sys.stdout.write(screens.deployments_json(found) + "\n")
    else:
        out.print(screens.deployments(found), soft_wrap=True)  # flags are there to be copied: never cut to the screen


def measure_and_show(plan: Path, study: Path, *, resume: bool, budget_s: float | None) -> Verdict:
    from specdyno import flow
    from specdyno.display import Progress

    try:
        with Progress(out) as progress:
            judged = flow.run(plan, study, resume=resume, budget_s=budget_s, watcher=progress)
    except KeyboardInterrupt:
        err.print(
            f"interrupted; what was measured is kept. Go on with: specdyno run {escape(shlex.quote(str(plan)))} "
            f"--out {escape(shlex.quote(str(study)))} --resume",
            soft_wrap=True,
        )
        raise typer.Exit(130) from None
    _show(judged)
    return judged.verdict


def _show(judged: flow.Judged) -> None:
    from specdyno.report import text
    from specdyno.report.untrusted import sanitise

    out.print(text.render(judged.view))
    out.print(f"[dim]The whole report:[/] {escape(sanitise(str(judged.page)))}", soft_wrap=True)  # a path is never cut


def _seconds(budget: str | None) -> float | None:
    from specdyno.plan.spelling import duration_s

    if budget is None:
        return None
    try:
        value = duration_s(budget)
    except ValueError as error:
        raise PlanError(f"--budget: {error}") from error
    if not value:
        raise PlanError("--budget: no block can be measured in no time. Leave it out for no limit")
    return float(value)  # type: ignore[arg-type]


def _unused(path: Path) -> Path:
    """`path`, or the first of path-2, path-3, … that does not exist: a study is never overwritten."""
    if not path.exists():
        return path
    return next(other for n in range(2, 10_000) if not (other := path.with_name(f"{path.name}-{n}")).exists())
