"""The verbs about what runs or ran elsewhere: `measure` a server, `read` what an engine printed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from specdyno.cli.app import out, verb
from specdyno.errors import PlanError


@verb
def measure(
    base_url: Annotated[str, typer.Option(help="A running OpenAI-compatible server, e.g. http://127.0.0.1:8000.")],
    *,
    model: Annotated[
        str | None, typer.Option(help="Served model name; default: the first that /v1/models names.")
    ] = None,
    prompts: Annotated[list[str] | None, typer.Option(help="builtin:NAME or a prompt file; repeat for more.")] = None,
    num_prompts: Annotated[int, typer.Option(min=1, help="Requests to send.")] = 40,
    max_concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 1,
    request_rate: Annotated[
        float | None, typer.Option(min=0.001, help="Requests per second, whatever is in flight (open loop).")
    ] = None,
    burstiness: Annotated[
        float, typer.Option(min=0.001, help="Shape of the gaps' gamma distribution; 1: Poisson.")
    ] = 1.0,
    goodput: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:MS", help='Service level, e.g. "ttft:500 tpot:50 e2el:20000"; repeatable.'),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Limit of output tokens per request.")] = 128,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="Sampling temperature.")] = 0.0,
    api_key_env: Annotated[str | None, typer.Option(help="Variable that holds the server's API key.")] = None,
    ca_file: Annotated[
        Path | None, typer.Option("--ca-file", help="PEM file of the certificate authority to trust for https.")
    ] = None,
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
        request_rate=request_rate,
        burstiness=burstiness,
        goodput_ms=_limits(goodput or []),
        max_tokens=max_tokens,
        temperature=temperature,
        api_key_env=api_key_env,
        ca_file=str(ca_file.expanduser().absolute()) if ca_file is not None else None,
        seed=seed,
    )
    with Progress(out) as progress:
        records, analysis = flow.measure(asked, out=out_dir, watcher=progress)
    out.print(screens.measured(records, analysis))


def _limits(written: list[str]) -> tuple[tuple[str, float], ...]:
    """Limits in ms by name, as `vllm bench serve` writes them."""
    limits: dict[str, float] = {}
    for part in " ".join(written).replace(",", " ").split():
        name, _, text = part.partition(":")
        try:
            limit = float(text)
        except ValueError:
            limit = 0.0
        if name not in ("ttft", "tpot", "e2el") or not 0 < limit < float("inf"):
            raise PlanError(f'--goodput: "{part}" is no limit. Write ttft:MS, tpot:MS or e2el:MS, e.g. ttft:500')
        limits[name] = limit
    return tuple(limits.items())


@verb
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
