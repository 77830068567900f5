"""The verbs about plans: `init` and `check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from specdyno.cli.app import PlanFile, out, verb
from specdyno.errors import PlanError
from specdyno.plan.schema import EngineKind, Method


@verb
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


@verb
def check(plan: PlanFile) -> None:
    """Show the arms, the schedule, the time it takes, the smallest gain it can see, and every value in force."""
    from specdyno import flow, screens

    out.print(screens.checked(flow.check(plan)))
