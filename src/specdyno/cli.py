"""The command line: verbs, options, exit codes. Everything a verb does is one call of `flow`.

Exit codes: `run` and `judge` end with 0 promote, 20 hold, 10 reject; every verb ends with 2 plan or usage, 3 engine,
4 records, 130 interrupted; other verbs with 0 on success.
"""

from __future__ import annotations

import functools
import shlex
import signal
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from specdyno import __version__
from specdyno.errors import EngineError, PlanError, SpecdynoError
from specdyno.plan.schema import EngineKind, Method
from specdyno.report.untrusted import sanitise

if TYPE_CHECKING:  # heavy imports wait until a verb needs them
    from specdyno import flow
    from specdyno.verdict.schema import Verdict

app = typer.Typer(
    help="A dynamometer for speculative decoding: boots your engine without and with speculation, drives it with "
    "your traffic, and says promote, hold or reject.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan, a YAML file.")]
StudyFolder = Annotated[Path, typer.Argument(metavar="STUDY", help="A study's folder, as `run --out` wrote it.")]


class Format(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"
    SERVE = "serve"


def _verb(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A command whose expected failures end with one clear message and the right exit code."""

    @functools.wraps(function)
    def guarded(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except SpecdynoError as error:
            _explain(error)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            err.print("interrupted; what was measured is kept")
            raise typer.Exit(130) from None
        except BrokenPipeError:
            raise typer.Exit(0) from None

    return app.command()(guarded)


def _explain(error: SpecdynoError) -> None:
    if isinstance(error, PlanError):
        many = f" ({len(error.problems)} problems)" if len(error.problems) > 1 else ""
        err.print(f"[bold red]plan[/]{many}" + (f": {escape(sanitise(error.source))}" if error.source else ""))
        for problem in error.problems:
            err.print(f"  {escape(sanitise(str(problem)))}", soft_wrap=True)
        return
    word = "engine" if isinstance(error, EngineError) else "records"
    err.print(f"[bold red]{word}[/]: {escape(sanitise(str(error)))}", soft_wrap=True)
    if isinstance(error, EngineError):
        if error.log_tail:
            err.print(f"  its last lines ({escape(sanitise(error.log_path))}):", soft_wrap=True)
            for line in error.log_tail.splitlines():
                err.print(f"    [dim]{escape(sanitise(line))}[/]", soft_wrap=True)
        if error.remedy:
            err.print(f"  {escape(sanitise(error.remedy))}", soft_wrap=True)


@_verb
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
    _measure_and_show(plan_file, study, resume=False, budget_s=None)


@_verb
def init(
    path: Annotated[Path, typer.Argument(metavar="PLAN", help="The file to write.")] = Path("plan.yaml"),
    *,
    engine: Annotated[EngineKind, typer.Option(help="Which engine you serve with.")] = EngineKind.VLLM,
    target: Annotated[str | None, typer.Option(help="Hub id, folder or GGUF file of the target model.")] = None,
    method: Annotated[list[Method] | None, typer.Option(help="A method to measure; repeat for more.")] = None,
    draft: Annotated[str | None, typer.Option(help="Hub id or folder of the draft, where the method has one.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a commented plan to start from."""
    from specdyno.plan import template
    from specdyno.report import atomic

    if path.exists() and not force:
        raise PlanError(f'"{path}" exists: name another file, or overwrite it with --force')
    atomic.write(path, template.render(engine, target, methods=method or [Method.NGRAM], draft=draft))
    out.print(f"wrote {escape(str(path))}; next: specdyno check {escape(str(path))}", soft_wrap=True)


@_verb
def check(plan: PlanFile) -> None:
    """Show the arms, the schedule, the time it takes, the smallest gain it can see, and every value in force."""
    from specdyno import flow, screens

    out.print(screens.checked(flow.check(plan)))


@_verb
def run(
    plan: PlanFile,
    out_dir: Annotated[Path, typer.Option("--out", help="The study's folder.")],
    *,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted study.")] = False,
    budget: Annotated[str | None, typer.Option(help='No new block that would end after this, e.g. "2h".')] = None,
) -> None:
    """Measure a plan block by block up to the deciding look, then judge and report."""
    from specdyno import flow

    verdict = _measure_and_show(plan, out_dir, resume=resume, budget_s=_seconds(budget))
    raise typer.Exit(flow.exit_code(verdict))


@_verb
def judge(study: StudyFolder) -> None:
    """Judge a study's records again; no server is needed."""
    from specdyno import flow

    judged = flow.judge(study)
    _show(judged)
    raise typer.Exit(flow.exit_code(judged.verdict))


@_verb
def report(study: StudyFolder) -> None:
    """Write the report again: one HTML page, Markdown and JSON."""
    from specdyno import flow

    for path in flow.judge(study).paths:
        out.print(escape(str(path)), soft_wrap=True)


@_verb
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


@_verb
def measure(
    base_url: Annotated[str, typer.Option(help="A running OpenAI-compatible server, e.g. http://127.0.0.1:8000.")],
    *,
    model: Annotated[
        str | None, typer.Option(help="Served model name; default: the first that /v1/models names.")
    ] = None,
    prompts: Annotated[list[str] | None, typer.Option(help="builtin:NAME or a prompt file; repeat for more.")] = None,
    num_prompts: Annotated[int, typer.Option(min=1, help="Requests to send.")] = 40,
    max_concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, help="Limit of output tokens per request.")] = 128,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="Sampling temperature.")] = 0.0,
    api_key_env: Annotated[str | None, typer.Option(help="Variable that holds the server's API key.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which prompts are drawn, and their order.")] = 1,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Keep the records in this folder.")] = None,
) -> None:
    """Measure one running server: acceptance by position and class, latency. This is no verdict."""
    from specdyno import flow, screens
    from specdyno.display import Progress
    from specdyno.load.probe import Probe

    asked = Probe(
        base_url=base_url,
        model=model,
        prompts=tuple(prompts or ("builtin:code", "builtin:chat")),
        num_prompts=num_prompts,
        max_concurrency=max_concurrency,
        max_tokens=max_tokens,
        temperature=temperature,
        api_key_env=api_key_env,
        seed=seed,
    )
    with Progress(out) as progress:
        records, analysis = flow.measure(asked, out=out_dir, watcher=progress)
    out.print(screens.measured(records, analysis))


@_verb
def read(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A log, a /metrics scrape or a result file.")],
    after: Annotated[Path | None, typer.Argument(metavar="[AFTER]", help="A later /metrics scrape.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Read acceptance out of what an engine printed: logs, /metrics, per-request objects, bench results."""
    from specdyno import flow, screens

    found = flow.read(path, after)
    if as_json:
        sys.stdout.write(screens.reading_json(found) + "\n")
    else:
        out.print(screens.reading(found))


def _measure_and_show(plan: Path, study: Path, *, resume: bool, budget_s: float | None) -> Verdict:
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

    out.print(text.render(judged.view, page=str(judged.page)))


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


def _version(*, value: bool) -> None:
    if value:
        out.print(f"specdyno {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=lambda value: _version(value=value), is_eager=True, help="Show it.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Entry point of the `specdyno` command."""
    # A polite end from a scheduler is handled as Ctrl-C is: the engine is stopped, the boot is marked.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.exit(app(standalone_mode=True))
