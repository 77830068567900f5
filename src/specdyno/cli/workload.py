"""The verbs about traffic: `workload import` makes classes of production logs, `workload inspect` looks at prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from specdyno.cli.app import app, guarded, out
from specdyno.workload.logs import DEFAULT_KEPT

group = typer.Typer(help="Your own traffic: logs to classes of prompts, and what they look like.", no_args_is_help=True)
app.add_typer(group, name="workload")


@group.command("import")
@guarded
def import_(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG", help="Log files; both halves of an OpenAI batch.")],
    *,
    folder: Annotated[Path, typer.Option("--out", help="The folder to make.")],
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace e-mails, keys, numbers and names; it cannot find everything.")
    ] = False,
    keep: Annotated[int, typer.Option(min=1, help="Prompts to keep of each class.")] = DEFAULT_KEPT,
    processes: Annotated[int | None, typer.Option(min=1, help="Worker processes; default: one a core.")] = None,
) -> None:
    """Turn production logs into classes of prompts, sessions and a piece of a plan. Nothing leaves this machine."""
    from specdyno import screens
    from specdyno.workload.logs.importing import import_logs

    found = import_logs(logs, folder, redact=redact, kept=keep, processes=processes)
    out.print(screens.imported(found.account, found.folder))
    place = escape(str(found.folder))
    out.print(f"next: specdyno workload inspect {place}, then put {place}/workload.yaml into a plan", soft_wrap=True)


@group.command()
@guarded
def inspect(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE", help="A folder of an import, builtin:NAME, or a prompt file.")
    ],
    *,
    page: Annotated[Path | None, typer.Option("--out", help="Also draw it: an HTML page.")] = None,
) -> None:
    """Show classes, shares, lengths, turns, languages, and how useful drafts from history promise to be."""
    from specdyno import screens
    from specdyno.report import atomic, workload_page
    from specdyno.workload.logs.survey import survey

    found = [survey(source) for source in sources]
    if page is not None:
        atomic.write(page, workload_page.render(found))
    out.print(screens.inspected(found))
    if page is not None:
        out.print(f"drawn: {escape(str(page))}", soft_wrap=True)
