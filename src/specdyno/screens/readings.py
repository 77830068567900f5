"""What `measure` and `read` show."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from specdyno.engine.reading.schema import Reading
from specdyno.records.schema import StudyRecords
from specdyno.report import spelling
from specdyno.screens.parts import estimate, line, number, share, table_of, title
from specdyno.statistics.analysis import Analysis, Curve


def measured(records: StudyRecords, analysis: Analysis) -> RenderableType:
    """One arm of a running server. Says that it is no verdict."""
    boot = records.boots[-1]
    identity = boot.identity
    words = [f"{identity.engine} {identity.version or ''}".strip()] if identity else []
    if identity is not None and identity.speculation is False:
        words.append("no speculation")
    elif identity is not None:
        words.append(f"method {identity.method or 'not reported'}, K {identity.draft_tokens or 'not reported'}")
    parts: list[RenderableType] = [line(", ".join(words), style="bold")]
    if analysis.curves:
        parts += [title("Acceptance"), _acceptance(analysis.curves)]
    else:
        parts.append(line("Acceptance: not measured (nothing was drafted)."))
    parts += [title("Latency and throughput"), table_of(("class", "requests", "failed", "figures"), _figures(analysis))]
    good = [one for one in analysis.levels if one.measure == "goodput" and one.class_name is None and one.by_block]
    parts += [line(f"Goodput: {one.by_block[-1][1]:.3f} requests/s within the service level") for one in good]
    told = [finding for finding in analysis.findings if finding.code != "too_few_blocks"]
    told = [finding for finding in told if finding.code != "blocks_incomplete"]
    parts += [line(f"{finding.code.replace('_', ' ')}: {finding.detail}", style="yellow") for finding in told]
    parts.append(
        line("This is one boot of one arm: no verdict. Whether speculation pays is for `specdyno run` to say.")
    )
    return Group(*parts)


def reading(found: Reading, depth: int = 0) -> RenderableType:
    """Acceptance read from a text, with what could not be read."""
    rows = [
        (name, value)
        for name, value in (
            ("source", found.source),
            ("drafted steps", number(found.steps)),
            ("draft tokens", number(found.draft_tokens)),
            ("accepted tokens", number(found.accepted_tokens)),
            ("K", number(found.draft_tokens_k)),
            ("mean accepted length", number(found.mean_accepted_length, 4)),
            ("acceptance rate", share(found.acceptance_rate)),
            ("joint acceptance by position", _positions(found)),
            ("draft coverage", share(found.coverage)),
            ("tokens per step", number(found.tokens_per_step, 3)),
            ("range of mean lengths", " to ".join(f"{value:.2f}" for value in found.length_range or ())),
            ("speculation active", {True: "yes", False: "no", None: ""}[found.active]),
        )
        if value
    ]
    title = found.kind.replace("_", " ") + (f": {found.label}" if found.label else "")
    parts: list[RenderableType] = [line(title + (" (estimated)" if found.estimated else ""), style="bold")]
    parts.append(table_of(("", ""), rows))
    parts += [line(note, style="dim") for note in found.notes]
    parts += [line(problem, style="yellow") for problem in found.problems]
    parts += [reading(part, depth + 1) for part in found.parts]
    return Padding(Group(*parts), (0, 0, 0, 2 * depth))


def reading_json(found: Reading) -> str:
    """The whole reading as JSON: fractions, counts, and null for what is unknown."""
    return orjson.dumps(found, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2).decode()


def _acceptance(curves: Sequence[Curve]) -> Table:
    depth = max(len(curve.joint) for curve in curves)
    columns = ["class", "steps", "mean length", "rate", "tokens/step", "coverage", *(f"q{i + 1}" for i in range(depth))]
    rows = [
        (
            curve.class_name or "all",
            spelling.count(curve.drafted_steps),
            estimate(curve.mean_accepted_length, 2),
            estimate(curve.rate, 3),
            estimate(curve.tokens_per_step, 2),
            estimate(curve.coverage, 2),
            *(estimate(one, 3) for one in curve.joint),
        )
        for curve in curves
    ]
    return table_of(tuple(columns), rows)


def _figures(analysis: Analysis) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for summary in analysis.summaries:
        text = "; ".join(
            f"{name} " + ", ".join(f"{key} {value:.1f} ms" for key, value in figures)
            for name, figures in summary.latency_ms
        )
        if summary.class_name is None and summary.output_tokens is not None and summary.duration_s > 0:
            text = f"{summary.output_tokens / summary.duration_s:.1f} tok/s; {text}"
        rows.append((summary.class_name or "all", str(summary.requests), str(summary.failed), text))
    return rows


def _positions(found: Reading) -> str:
    return ", ".join(f"{position + 1}: {share:.3f}" for position, share in sorted(found.joint.items()))
