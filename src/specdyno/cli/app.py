"""The application: its verbs' frame, and one clear message and exit code for every expected failure.

Exit codes: `run` and `judge` end with 0 promote, 20 hold, 10 reject; every verb ends with 2 plan or usage, 3 engine,
4 records, 130 interrupted; other verbs with 0 on success.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from specdyno import __version__
from specdyno.errors import EngineError, PlanError, SpecdynoError
from specdyno.report.untrusted import sanitise

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


def guarded(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Expected failures end with one clear message and the right exit code."""

    @functools.wraps(function)
    def guard(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
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

    return guard


def verb(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A guarded function as a command of the application."""
    command = guarded(function)
    app.command()(command)
    return command


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
