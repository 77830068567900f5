"""What can be known before the first boot: the plan, its traffic, and whether it may be booted here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdyno.engine import server, tls
from specdyno.engine.base import Adapter
from specdyno.errors import PlanError, Problem, SpecdynoError
from specdyno.load.agenda import Stock, window_plans
from specdyno.plan import duration, parse
from specdyno.plan.paths import with_absolute_paths
from specdyno.plan.schedule import Block, schedule
from specdyno.plan.schema import Plan
from specdyno.preflight import gate, host, tools
from specdyno.preflight.checkpoints.read import read as read_checkpoint
from specdyno.preflight.memory import assess
from specdyno.preflight.origins import origins
from specdyno.preflight.pair import rules
from specdyno.preflight.pair.check import check_pairs
from specdyno.preflight.schema import Check
from specdyno.records.memory import ArmMemory
from specdyno.workload import draw
from specdyno.workload.pools import Pool
from specdyno.workload.rows import by_reason, named_lines
from specdyno.workload.sessions import ClassSessions, load_session_pools
from specdyno.workload.sources import ClassPrompts, load_pools
from specdyno.workload.traces import load_traces

MOST_LINES, MOST_REASONS = 5, 8
"""Of the rows of a class that cannot be used: how many lines are named for a reason, and how many reasons."""


def read_plan(path: Path) -> tuple[Plan, str]:
    """The plan with local paths made absolute (relative to its own folder), and its text."""
    plan, text = parse.read(path)
    return with_absolute_paths(plan, path.absolute().parent), text


@dataclass(frozen=True, slots=True)
class Checked:
    """What `check` shows: nothing was booted."""

    plan: Plan
    blocks: tuple[Block, ...]
    estimate: duration.Estimate
    gain: duration.VisibleGain
    prompts: dict[str, ClassPrompts]
    sessions: dict[str, ClassSessions]
    needed: dict[str, int]  # prompts or sessions of each class that one boot takes at the planned sizes
    remarks: tuple[str, ...]
    checks: tuple[Check, ...]  # of target, draft, draft length and memory, before the first boot
    memory: tuple[ArmMemory, ...]  # what each arm will take; none for a simulated engine


def check(plan_path: Path) -> Checked:
    """Everything that can be known before the first boot; raises what `run` would raise before it."""
    plan, _ = read_plan(plan_path)
    stock = stock_of(plan, plan_path.absolute().parent)
    ready = able_to_start(stock, plan_path.absolute().parent, server.adapter(plan.engine, plan.target))
    return Checked(
        plan=plan,
        blocks=schedule(plan),
        estimate=duration.estimate(plan),
        gain=duration.smallest_visible_gain(plan),
        prompts=dict(stock.pools),
        sessions=dict(stock.sessions),
        needed=draw.needs(plan, stock.exact),
        remarks=(*ready.remarks, *stock_notes(stock)),
        checks=ready.checks,
        memory=ready.memory,
    )


def stock_of(plan: Plan, folder: Path) -> Stock:
    """What the plan may send, read from its files.

    PlanError where a file cannot be used, or holds too little for one boot of the sizes that are known before it.
    """
    stock = Stock(
        plan, load_pools(plan, folder), sessions=load_session_pools(plan, folder), traces=load_traces(plan, folder)
    )
    for load in plan.measured_loads:
        if load.trace is not None and stock.exact[load.name] < 2:
            seen = f"its window of {load.window:g} s holds {stock.exact[load.name]} arrivals of the trace"
            raise PlanError([Problem(f"loads.{load.name}", seen, "Use a longer window, or scale it with `rate`")])
    try:
        window_plans(stock, 0, stock.exact)
    except ValueError as error:
        raise PlanError([Problem("loads", str(error), "Remove `rate` from this trace, or use another")]) from error
    return stock


def stock_notes(stock: Stock) -> list[str]:
    pools: dict[str, Pool[Any]] = {**stock.pools, **stock.sessions}
    notes = [note for name, pool in pools.items() for note in _skipped_notes(name, pool.skipped)]
    return [*notes, *(f"load {name}: {trace}" for name, trace in stock.traces.items())]


def _skipped_notes(name: str, rows: Sequence[tuple[int, str]]) -> list[str]:
    """The rows of a class that cannot be used, by reason with their lines; of many, the first."""
    reasons = by_reason(rows)
    told = [f"class {name}, {named_lines(lines, MOST_LINES)}: {reason}" for reason, lines in reasons[:MOST_REASONS]]
    left = len(rows) - sum(len(lines[:MOST_LINES]) for _, lines in reasons[:MOST_REASONS])
    if left:
        told.append(f"class {name}: {left:,} more rows cannot be used; specdyno workload inspect FILE names them")
    return told


@dataclass(frozen=True, slots=True)
class Ready:
    """A plan that may be booted: what is worth knowing, and every check that said so."""

    remarks: tuple[str, ...]
    checks: tuple[Check, ...]
    memory: tuple[ArmMemory, ...]  # what each arm will take
    origins: dict[str, Any]  # devices, and what identifies each checkpoint


def able_to_start(stock: Stock, study: Path, adapter: Adapter) -> Ready:
    """Refuse what cannot be booted here, before anything is: every problem of the plan at once."""
    plan = stock.plan
    read = functools.cache(lambda source, revision: read_checkpoint(source, revision=revision))
    memory = assess.assess(plan, read=read)
    tool_checks = tools.check_tools(plan, stock.with_tools, read=read)
    checks = (*check_pairs(plan, read=read), *memory.checks, *tool_checks)
    remarks = _all_or_every_problem(
        lambda: host.check(plan, study=study, argv0=next(iter(adapter.command()), None)),
        lambda: gate.pass_or_refuse(checks, plan.preflight.accept, known=rules.NAMES | assess.NAMES | tools.NAMES),
    )
    for arm in plan.arms():
        adapter.flags(arm, 0, boot_seed=0)  # a method that this engine does not have
    tls.context(plan.engine.ca_file)
    if adapter.read_from is not None:
        remarks.append(f"The adapter for {adapter.name} was never run against it: it follows {adapter.read_from}.")
    return Ready(tuple(remarks), checks, memory.arms, origins(plan, read=read))


def _all_or_every_problem(*steps: Callable[[], list[str]]) -> list[str]:
    """What all steps return, or one PlanError with the problems of each; a place is refused by the first step only."""
    found: list[str] = []
    problems: list[Problem] = []
    other: SpecdynoError | None = None
    for step in steps:
        refused = {problem.place for problem in problems}
        try:
            found += step()
        except PlanError as error:
            problems += [problem for problem in error.problems if problem.place not in refused]
        except SpecdynoError as error:  # who writes the plan acts first
            other = other or error
    if problems:
        raise PlanError(problems)
    if other is not None:
        raise other
    return found
