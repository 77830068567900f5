"""The verbs about plans: `init`, `check`, and `published` as a place to start from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from specdyno.cli.app import PlanFile, out, verb
from specdyno.errors import PlanError
from specdyno.plan.schema import EngineKind, Method

if TYPE_CHECKING:  # heavy imports wait until a verb needs them
    from specdyno.plan.template import Suggested


@verb
def init(
    path: Annotated[Path, typer.Argument(metavar="PLAN", help="The file to write.")] = Path("plan.yaml"),
    *,
    engine: Annotated[EngineKind, typer.Option(help="Which engine you serve with.")] = EngineKind.VLLM,
    target: Annotated[str | None, typer.Option(help="Hub id, folder or GGUF file of the target model.")] = None,
    method: Annotated[list[Method] | None, typer.Option(help="A method to measure; repeat for more.")] = None,
    draft: Annotated[str | None, typer.Option(help="Hub id or folder of the draft, where the method has one.")] = None,
    from_published: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Methods and draft lengths of the published sweeps of a target like NAME."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a commented plan to start from."""
    from specdyno.plan import template
    from specdyno.report import atomic

    if path.exists() and not force:
        raise PlanError(f'"{path}" exists: name another file, or overwrite it with --force')
    suggested = _published(from_published, method) if from_published is not None else None
    text = template.render(engine, target, methods=method or [Method.NGRAM], draft=draft, suggested=suggested)
    atomic.write(path, text)
    out.print(f"wrote {escape(str(path))}; next: specdyno check {escape(str(path))}", soft_wrap=True)


@verb
def check(plan: PlanFile) -> None:
    """Show the arms, the schedule, the time it takes, the smallest gain it can see, and every value in force."""
    from specdyno import flow, screens

    out.print(screens.checked(flow.check(plan)))


def _published(name: str, methods: list[Method] | None) -> Suggested:
    """Draft lengths that the published sweeps of a target like `name` suggest."""
    from specdyno.plan.template import Suggested
    from specdyno.published import lengths, sweeps

    found = sweeps.select(target=name)
    known = lengths.suggested(found)
    chosen = {method: ks for method, ks in known.items() if not methods or method in methods}
    if not chosen:
        raise PlanError(f'no published sweep of "{name}" has that method; there are: {", ".join(known)}')
    targets = ", ".join(sweeps.names(cell.target for cell in found))
    origin = f"Draft lengths near the best published ones for {targets}. {sweeps.LABEL} {sweeps.PROVENANCE}"
    return Suggested(chosen, origin)


@verb
def published(
    *,
    target: Annotated[str | None, typer.Option(help="Part of the target's name.")] = None,
    method: Annotated[Method | None, typer.Option(help="How tokens are drafted.")] = None,
    prompts: Annotated[str | None, typer.Option(help="Part of the prompt set's name, e.g. humaneval.")] = None,
    page: Annotated[Path | None, typer.Option("--out", help="Also draw them: an HTML page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Show sweeps that others published: a test plan, never evidence."""
    from specdyno import screens
    from specdyno.published import sweeps
    from specdyno.report import atomic, published_page

    found = sweeps.select(target=target, method=method, prompts=prompts)
    if page is not None:
        atomic.write(page, published_page.render(found))
    if as_json:
        sys.stdout.write(screens.published_json(found) + "\n")
        return
    out.print(screens.published(found))
    if page is not None:
        out.print(f"drawn: {escape(str(page))}", soft_wrap=True)
