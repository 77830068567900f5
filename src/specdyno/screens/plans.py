"""What `check` and `published` show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson
from rich.console import Group, RenderableType

from specdyno.flow import Checked
from specdyno.plan import parse
from specdyno.preflight.schema import Check, Grade
from specdyno.published.sweeps import LABEL, PROVENANCE, Cell, sweeps
from specdyno.report import memory, spelling
from specdyno.screens.parts import line, table_of, title
from specdyno.workload.draw import warm_up_by_load
from specdyno.workload.pools import Pool

_GRADES = {Grade.PASS: "green", Grade.WARN: "yellow", Grade.FAIL: "red", Grade.UNKNOWN: "yellow"}
_MEMORY_COLUMNS = ("arm", "weights", "draft", "KV per token", "KV tokens", "requests at once", "headroom", "fits")


def checked(found: Checked) -> RenderableType:
    """Arms, checks of the pairs, schedule, time, the smallest gain that can be seen, prompts, every value in force."""
    return Group(
        title("Arms"),
        table_of(("arm", "method", "draft tokens", "draft"), _arm_rows(found)),
        *_checks([one for one in found.checks if not (one.rule == "memory_fits" and one.grade == "pass")]),
        *_memory(found),
        title("Schedule (order of the boots in each block)"),
        table_of(("block", "order"), [(str(block.index + 1), " → ".join(block.order)) for block in found.blocks]),
        title("Time"),
        *(line(text) for text in _time_lines(found)),
        title("What it can see"),
        *(line(text) for text in _gain_lines(found)),
        title("Prompts"),
        table_of(("class", "usable", "skipped", "duplicates", "one boot takes"), _prompt_rows(found)),
        *(line(remark, style="yellow") for remark in found.remarks),
        title("Values in force (· marks a default)"),
        table_of(("key", "value", ""), [(key, value, "·" if default else "") for key, value, default in _keys(found)]),
    )


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
        line(f"{LABEL} {PROVENANCE}", style="yellow"),
        table_of(columns, rows),
        *(line(f"{method}: lengths {why}", style="yellow") for method, why in warned.items()),
        line(LABEL, style="dim"),
    )


def published_json(found: Sequence[Cell]) -> str:
    """The cells with their label and provenance; acceptances are fractions."""
    rows = [{**asdict(cell), "beyond_trained": cell.beyond_trained or None} for cell in found]
    tree = {"label": LABEL, "provenance": PROVENANCE, "cells": rows}
    return orjson.dumps(tree, option=orjson.OPT_INDENT_2).decode()


def _checks(checks: Sequence[Check]) -> list[RenderableType]:
    """What was checked before the first boot. A failure shown here was accepted by the plan: others end `check`."""
    if not checks:
        return []
    table = table_of(("arm", "check", "grade", "seen", "fix"), ())
    shown = ""
    for check in checks:
        whose = check.arm or "target"
        row = ("" if whose == shown else whose, check.rule, check.grade, check.seen, check.remedy)
        styles = ("", "", _GRADES[check.grade], "", "")
        table.add_row(*(line(cell, style=style) for cell, style in zip(row, styles, strict=True)))
        shown = whose
    return [title("Checks of target and draft"), table]


def _memory(found: Checked) -> list[RenderableType]:
    """What each arm will take: the columns that a terminal has room for, those in which anything is known."""
    if not found.memory:
        return []
    whole = memory.of_arms(found.memory, {})
    shown = [place for place, name in enumerate(whole.columns) if name in _MEMORY_COLUMNS]
    rows = [tuple("\n".join(part for part in row[place] if part) for place in shown) for row in whole.rows]
    notes = dict.fromkeys(note for one in found.memory for note in one.notes)
    return [
        title("Memory (worked out from the files, not measured)"),
        table_of(tuple(whole.columns[place] for place in shown), rows),
        *(line(note, style="dim") for note in notes),
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
    looks = dict.fromkeys([(gain.first_blocks, gain.first), (gain.last_blocks, gain.last)])
    reached = [f"{spelling.share(half - 1)} to either side at {blocks} blocks" for blocks, half in looks if half]
    lines = [
        f"with a spread of {spelling.share(gain.spread)} over boots (assumed), an interval reaches "
        f"{' and '.join(reached)} (level {spelling.exact_share(1 - gain.level)})"
        if reached
        else "one block gives no interval: this plan measures and cannot decide"
    ]
    if reached:
        lines += [_likely(name, gain) for name, gain in found.gain.likely]
    if found.plan.experiment.looks[-1] < 4:  # the fewest blocks that may promote
        lines.append("fewer than four blocks never promote: this plan ends with hold or reject")
    return lines


def _likely(objective: str, gain: float | None) -> str:
    if gain is None:
        return f"{objective}: with this plan hardly any gain is promoted; use more blocks or fewer candidates"
    shown = spelling.exact_share(math.ceil(gain * 1000) / 1000)
    return f"{objective}: a true gain of {shown} is promoted in 80 % of studies"


def _prompt_rows(found: Checked) -> list[tuple[str, ...]]:
    unsized = any(load.requests is None and (load.closed or load.sessions) for load in found.plan.measured_loads)
    more = f" + windows sized after the first warm-up ({sum(warm_up_by_load(found.plan).values())})" if unsized else ""
    pools: dict[str, Pool[Any]] = {**found.prompts, **found.sessions}
    return [
        (name, str(len(pool.usable)), str(len(pool.skipped)), str(pool.duplicates), f"{found.needed[name]}{more}")
        for name, pool in pools.items()
    ]


def _keys(found: Checked) -> list[tuple[str, str, bool]]:
    return parse.in_force(found.plan)
