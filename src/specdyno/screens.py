"""What `check`, `measure` and `read` show in the terminal. The verdict's own rendering is `report.text`.

Belongs to the command line: it may look at both sides of the records.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import orjson
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from specdyno.engine.reading.schema import Reading
from specdyno.flow import Checked, Deployment
from specdyno.plan import parse
from specdyno.preflight.schema import Check, Grade
from specdyno.published.sweeps import LABEL, PROVENANCE, Cell, sweeps
from specdyno.records.schema import StudyRecords
from specdyno.report import memory, spelling
from specdyno.report.untrusted import sanitise
from specdyno.statistics.analysis import Analysis, Curve
from specdyno.statistics.intervals import Estimate, Interval
from specdyno.workload.draw import warm_up_by_load

_MEMORY_COLUMNS = ("arm", "weights", "draft", "KV per token", "KV tokens", "requests at once", "headroom", "fits")


def checked(found: Checked) -> RenderableType:
    """Arms, checks of the pairs, schedule, time, the smallest gain that can be seen, prompts, every value in force."""
    return Group(
        _title("Arms"),
        _table(("arm", "method", "draft tokens", "draft"), _arm_rows(found)),
        *_checks([one for one in found.checks if not (one.rule == "memory_fits" and one.grade == "pass")]),
        *_memory(found),
        _title("Schedule (order of the boots in each block)"),
        _table(("block", "order"), [(str(block.index + 1), " → ".join(block.order)) for block in found.blocks]),
        _title("Time"),
        *(_line(text) for text in _time_lines(found)),
        _title("What it can see"),
        *(_line(text) for text in _gain_lines(found)),
        _title("Prompts"),
        _table(("class", "usable", "skipped", "duplicates", "one boot takes"), _prompt_rows(found)),
        *(_line(remark, style="yellow") for remark in found.remarks),
        _title("Values in force (· marks a default)"),
        _table(("key", "value", ""), [(key, value, "·" if default else "") for key, value, default in _keys(found)]),
    )


def measured(records: StudyRecords, analysis: Analysis) -> RenderableType:
    """One arm of a running server. Says that it is no verdict."""
    boot = records.boots[-1]
    identity = boot.identity
    words = [f"{identity.engine} {identity.version or ''}".strip()] if identity else []
    if identity is not None and identity.speculation is False:
        words.append("no speculation")
    elif identity is not None:
        words.append(f"method {identity.method or 'not reported'}, K {identity.draft_tokens or 'not reported'}")
    parts: list[RenderableType] = [_line(", ".join(words), style="bold")]
    if analysis.curves:
        parts += [_title("Acceptance"), _acceptance(analysis.curves)]
    else:
        parts.append(_line("Acceptance: not measured (nothing was drafted)."))
    parts += [_title("Latency and throughput"), _table(("class", "requests", "failed", "figures"), _figures(analysis))]
    told = [finding for finding in analysis.findings if finding.code != "too_few_blocks"]
    told = [finding for finding in told if finding.code != "blocks_incomplete"]
    parts += [_line(f"{finding.code.replace('_', ' ')}: {finding.detail}", style="yellow") for finding in told]
    parts.append(
        _line("This is one boot of one arm: no verdict. Whether speculation pays is for `specdyno run` to say.")
    )
    return Group(*parts)


def reading(found: Reading, depth: int = 0) -> RenderableType:
    """Acceptance read from a text, with what could not be read."""
    rows = [
        (name, value)
        for name, value in (
            ("source", found.source),
            ("drafted steps", _number(found.steps)),
            ("draft tokens", _number(found.draft_tokens)),
            ("accepted tokens", _number(found.accepted_tokens)),
            ("K", _number(found.draft_tokens_k)),
            ("mean accepted length", _number(found.mean_accepted_length, 4)),
            ("acceptance rate", _share(found.acceptance_rate)),
            ("joint acceptance by position", _positions(found)),
            ("draft coverage", _share(found.coverage)),
            ("tokens per step", _number(found.tokens_per_step, 3)),
            ("range of mean lengths", " to ".join(f"{value:.2f}" for value in found.length_range or ())),
            ("speculation active", {True: "yes", False: "no", None: ""}[found.active]),
        )
        if value
    ]
    title = found.kind.replace("_", " ") + (f": {found.label}" if found.label else "")
    parts: list[RenderableType] = [_line(title + (" (estimated)" if found.estimated else ""), style="bold")]
    parts.append(_table(("", ""), rows))
    parts += [_line(note, style="dim") for note in found.notes]
    parts += [_line(problem, style="yellow") for problem in found.problems]
    parts += [reading(part, depth + 1) for part in found.parts]
    return Padding(Group(*parts), (0, 0, 0, 2 * depth))


def reading_json(found: Reading) -> str:
    """The whole reading as JSON: fractions, counts, and null for what is unknown."""
    return orjson.dumps(found, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2).decode()


def deployments(found: Sequence[Deployment]) -> RenderableType:
    """What to deploy per objective: flags that can be pasted, and the traffic they hold for."""
    return Group(*(part for one in found for part in _deployment(one)))


def deployments_json(found: Sequence[Deployment]) -> str:
    """One entry per objective; `flags` is null where nothing is promoted."""
    entries = [
        {
            "objective": one.recommendation.objective,
            "load": one.recommendation.load,
            "decision": str(one.recommendation.decision),
            "arm": one.recommendation.arm,
            "classes": list(one.recommendation.classes),
            "without_speculation": list(one.recommendation.others),
            "flags": None if one.flags is None else list(one.flags),
            "up_to_in_flight": one.recommendation.up_to,
            "limited_flags": None if one.limited_flags is None else list(one.limited_flags),
        }
        for one in found
    ]
    return orjson.dumps(entries, option=orjson.OPT_INDENT_2).decode()


def _deployment(one: Deployment) -> list[RenderableType]:
    told = one.recommendation
    parts: list[RenderableType] = [_title(f"{told.objective} (load {told.load}): {told.decision}")]
    if one.flags is None:
        parts.append(_line("Deploy nothing: keep the engine as the baseline ran it."))
        return parts
    ratio = told.primary.ratio if told.primary is not None else None
    if told.primary is not None and isinstance(ratio, Interval):
        shown = f"{ratio.estimate:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
        parts.append(_line(f"{told.arm}: {told.primary.measure.replace('_', ' ')}, {shown} times as good"))
    parts.append(Text(f"  {shlex.join(one.flags)}", no_wrap=True, overflow="ignore"))
    if told.up_to is not None:
        parts.append(_line(f"Shown to pay up to {told.up_to} requests in flight; above that it is not."))
        if one.limited_flags is not None:
            parts.append(_line("To draft up to there only:"))
            parts.append(Text(f"  {shlex.join(one.limited_flags)}", no_wrap=True, overflow="ignore"))
        else:
            parts.append(_line("This engine cannot switch by load: cap its concurrency there, or run two replicas."))
    if told.others:
        parts.append(_line(f"Only for: {', '.join(told.classes)}. Without speculation: {', '.join(told.others)}."))
        parts.append(_line("Run one replica with and one without it, and route each class to its own."))
    parts.append(_line("Holds where the fingerprint in the report is equal; elsewhere it is a test plan.", style="dim"))
    return parts


def published(found: Sequence[Cell]) -> RenderableType:
    """Published sweeps as a table, labelled as what they are."""
    rows = [
        (
            cell.target.rpartition("/")[2],
            cell.prompts,
            str(method),
            str(cell.draft_tokens),
            f"{cell.speed_up:.2f}{spelling.TIMES}",
            f"{cell.mean_accepted_length:.2f}",
            spelling.share(cell.acceptance_rate, 1),
            "beyond its training" if cell.beyond_trained else "",
        )
        for (_, method, _), sweep in sweeps(found).items()
        for cell in sweep
    ]
    columns = ("target", "prompts", "method", "K", "speed-up", "mean length", "acceptance", "")
    warned = {cell.method: cell.beyond_trained for cell in found if cell.beyond_trained}
    return Group(
        _line(f"{LABEL} {PROVENANCE}", style="yellow"),
        _table(columns, rows),
        *(_line(f"{method}: lengths {why}", style="yellow") for method, why in warned.items()),
        _line(LABEL, style="dim"),
    )


def published_json(found: Sequence[Cell]) -> str:
    """The cells with their label and provenance; acceptances are fractions."""
    rows = [{**asdict(cell), "beyond_trained": cell.beyond_trained or None} for cell in found]
    tree = {"label": LABEL, "provenance": PROVENANCE, "cells": rows}
    return orjson.dumps(tree, option=orjson.OPT_INDENT_2).decode()


_GRADES = {Grade.PASS: "green", Grade.WARN: "yellow", Grade.FAIL: "red", Grade.UNKNOWN: "yellow"}


def _checks(checks: Sequence[Check]) -> list[RenderableType]:
    """What was checked before the first boot. A failure shown here was accepted by the plan: others end `check`."""
    if not checks:
        return []
    table = _table(("arm", "check", "grade", "seen", "fix"), ())
    shown = ""
    for check in checks:
        whose = check.arm or "target"
        row = ("" if whose == shown else whose, check.rule, check.grade, check.seen, check.remedy)
        styles = ("", "", _GRADES[check.grade], "", "")
        table.add_row(*(_line(cell, style=style) for cell, style in zip(row, styles, strict=True)))
        shown = whose
    return [_title("Checks of target and draft"), table]


def _memory(found: Checked) -> list[RenderableType]:
    """What each arm will take: the columns that a terminal has room for, those in which anything is known."""
    if not found.memory:
        return []
    whole = memory.of_arms(found.memory, {})
    shown = [place for place, name in enumerate(whole.columns) if name in _MEMORY_COLUMNS]
    rows = [tuple("\n".join(part for part in row[place] if part) for place in shown) for row in whole.rows]
    notes = dict.fromkeys(note for one in found.memory for note in one.notes)
    return [
        _title("Memory (worked out from the files, not measured)"),
        _table(tuple(whole.columns[place] for place in shown), rows),
        *(_line(note, style="dim") for note in notes),
    ]


def _arm_rows(found: Checked) -> list[tuple[str, ...]]:
    return [
        (arm.name, str(arm.method or "none"), str(arm.draft_tokens or ""), arm.draft or "") for arm in found.plan.arms()
    ]


def _time_lines(found: Checked) -> list[str]:
    estimate = found.estimate
    assumed = f" (assumed: {', '.join(estimate.assumptions)})" if estimate.assumptions else ""
    first, last = spelling.seconds(estimate.first_look_s), spelling.seconds(estimate.total_s)
    block = spelling.seconds(estimate.block_s)
    lines = [f"one block about {block}, to the first look about {first}, to the last about {last}{assumed}"]
    budget = found.plan.budget.time
    if budget is not None and budget < estimate.first_look_s:
        lines.append(f"the budget of {spelling.seconds(budget)} ends before the first look: this plan can only hold")
    return lines


def _gain_lines(found: Checked) -> list[str]:
    gain = found.gain
    lines = [
        f"with a spread of {spelling.share(gain.spread)} over boots (assumed), an interval reaches "
        f"{_half(gain.first)} to either side at {gain.first_blocks} blocks"
        + (f" and {_half(gain.last)} at {gain.last_blocks}" if gain.last_blocks != gain.first_blocks else "")
        + f" (level {spelling.exact_share(1 - gain.level)})"
    ]
    lines += [
        f"{name}: a true gain of {spelling.exact_share(math.ceil(likely * 1000) / 1000)} is promoted in 80 % of studies"
        if likely is not None
        else f"{name}: with this plan hardly any gain is promoted; use more blocks or fewer candidates"
        for name, likely in gain.likely
    ]
    if found.plan.experiment.looks[-1] < 4:  # the fewest blocks that may promote
        lines.append("fewer than four blocks never promote: this plan ends with hold or reject")
    return lines


def _half(ratio: float | None) -> str:
    return "no width" if ratio is None else spelling.share(ratio - 1)


def _prompt_rows(found: Checked) -> list[tuple[str, ...]]:
    unsized = any(load.requests is None and (load.closed or load.sessions) for load in found.plan.measured_loads)
    more = f" + windows sized after the first warm-up ({sum(warm_up_by_load(found.plan).values())})" if unsized else ""
    held = {name: (len(pool.prompts), len(pool.skipped), pool.duplicates) for name, pool in found.prompts.items()}
    held |= {name: (len(pool.sessions), len(pool.skipped), pool.duplicates) for name, pool in found.sessions.items()}
    return [(name, *map(str, counts), f"{found.needed[name]}{more}") for name, counts in held.items()]


def _keys(found: Checked) -> list[tuple[str, str, bool]]:
    return parse.in_force(found.plan)


def _acceptance(curves: Sequence[Curve]) -> Table:
    depth = max(len(curve.joint) for curve in curves)
    columns = ["class", "steps", "mean length", "rate", "tokens/step", "coverage", *(f"q{i + 1}" for i in range(depth))]
    rows = [
        (
            curve.class_name or "all",
            spelling.count(curve.drafted_steps),
            _estimate(curve.mean_accepted_length, 2),
            _estimate(curve.rate, 3),
            _estimate(curve.tokens_per_step, 2),
            _estimate(curve.coverage, 2),
            *(_estimate(one, 3) for one in curve.joint),
        )
        for curve in curves
    ]
    return _table(tuple(columns), rows)


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


def _estimate(value: Estimate, decimals: int) -> str:
    if isinstance(value, Interval):
        return f"{value.estimate:.{decimals}f} [{value.low:.{decimals}f}, {value.high:.{decimals}f}]"
    return f"not measured ({value.reason})"


def _number(value: float | None, decimals: int = 0) -> str:
    return "" if value is None else f"{value:,.{decimals}f}"


def _share(value: float | None) -> str:
    return "" if value is None else spelling.share(value, 2)


def _positions(found: Reading) -> str:
    return ", ".join(f"{position + 1}: {share:.3f}" for position, share in sorted(found.joint.items()))


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _line(text: str, style: str = "") -> Text:
    return Text(sanitise(text), style=style)


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_header=any(columns))
    for column in columns:
        table.add_column(Text(column))
    for row in rows:
        table.add_row(*(_line(cell) for cell in row))
    return table
