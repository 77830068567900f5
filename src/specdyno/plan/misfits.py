"""Mistakes that no part of a plan shows alone: names that stand twice, loads that do not exist, shares, drafts.

Judges whatever parts could be read, so that one misspelt key does not hide the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdyno.errors import Problem
from specdyno.plan.candidate import Candidate
from specdyno.plan.load import Load
from specdyno.plan.methods import Method
from specdyno.plan.objective import MeasureName, Objective
from specdyno.plan.spelling import quoted
from specdyno.plan.workload import TrafficClass

RESERVED_BODY_KEYS = frozenset(
    {
        *("model", "messages", "prompt", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n"),
        *("temperature", "top_p", "stop", "tools", "tool_choice", "response_format"),
    }
)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a plan that could be read, so that what stands between them can be judged although others failed."""

    flags: Sequence[str]  # names of engine.args
    body_keys: Sequence[str]  # names of workload.sampling.extra_body
    candidates: Mapping[int, Candidate]
    classes: Mapping[int, TrafficClass]
    loads: Mapping[int, Load]
    objectives: Mapping[int, Objective]
    whole: frozenset[str]  # of classes, loads: those that could be read to the last entry
    names: Mapping[str, Sequence[str | None]]  # by key path of the list; None: the entry has no readable name
    rungs: Sequence[str | None]  # names of the loads that are measured; None: not readable
    objective_loads: Mapping[int, str]
    looks: Sequence[int]


def misfits(parts: Parts) -> list[Problem]:
    """Mistakes that no part shows alone."""
    return [
        *_name_problems(parts.names),
        *_objective_problems(parts),
        *_share_problems(parts),
        *_kind_problems(parts),
        *_measure_problems(parts),
        *_request_problems(parts.body_keys),
        *_flag_problems(parts.flags),
        *_draft_problems(parts.candidates),
        *_repeated_arms(parts.candidates),
        *_look_problems(parts.looks),
    ]


def _name_problems(names: Mapping[str, Sequence[str | None]]) -> list[Problem]:
    problems = []
    for place, entries in names.items():
        for index, name in enumerate(entries):
            if name is not None and name in entries[:index]:
                seen = f"the name {quoted(name)} stands twice"
                problems.append(Problem(f"{place}[{index}].name", seen, "Give each its own name"))
    return problems


def _objective_problems(parts: Parts) -> list[Problem]:
    names = [name for name in parts.rungs if name is not None]
    if len(names) < len(parts.rungs) or not names:
        return []
    ladders = {name.rpartition("@")[0] for name in names}
    return [
        Problem(
            f"objectives[{index}].load",
            f"{quoted(name)} is a ladder" if name in ladders else f"there is no load {quoted(name)}",
            f"Use one of: {', '.join(names)}",
        )
        for index, name in parts.objective_loads.items()
        if name not in names
    ]


def _share_problems(parts: Parts) -> list[Problem]:
    if "classes" not in parts.whole:
        return []
    problems = []
    for key in ("prompts", "sessions"):
        shares = [part.share for part in parts.classes.values() if getattr(part, key) is not None]
        if shares and abs(sum(shares) - 1.0) > 1e-6:
            of = "the shares" if len(shares) == len(parts.classes) else f"the shares of the classes with {key}"
            problems.append(Problem("workload.classes", f"{of} add up to {sum(shares):g}", "Make them add up to 1"))
    return problems


def _kind_problems(parts: Parts) -> list[Problem]:
    """Loads of sessions replay classes of sessions, the other loads classes of prompts."""
    if parts.whole < {"classes", "loads"}:
        return []
    problems = []
    for key, replayed in (("sessions", True), ("prompts", False)):
        held = [place for place, part in parts.classes.items() if getattr(part, key) is not None]
        wanted = [place for place, load in parts.loads.items() if (load.sessions is not None) is replayed]
        if held and not wanted:
            seen = f"no load asks this class: it holds {key}"
            remedy = "Add a load with `sessions`" if replayed else "Add a load with concurrency or rate"
            problems.append(Problem(f"workload.classes[{held[0]}]", seen, remedy))
        if wanted and not held:
            seen = f"no class holds {key} for this load"
            remedy = f"Add a class with `{key}`, or remove the load"
            problems.append(Problem(f"loads[{wanted[0]}]", seen, remedy))
    return problems


def _measure_problems(parts: Parts) -> list[Problem]:
    """Measures that a load cannot give, and service levels that are missing."""
    loads = {rung.name: rung for load in parts.loads.values() for rung in load.rungs()}
    problems = []
    for index, objective in parts.objectives.items():
        load, measure, place = loads.get(objective.load), objective.measure, f"objectives[{index}]"
        if measure in (MeasureName.GOODPUT, MeasureName.LARGEST_RATE) and objective.service_level.empty:
            seen = f"{measure} counts requests that meet a service level, and none is stated"
            problems.append(Problem(f"{place}.service_level", seen, "Write e.g. {ttft: 500ms, tpot: 50ms}"))
        if load is None:
            continue
        if (measure is MeasureName.LARGEST_RATE) is not (load.rates is not None):
            seen = f"{measure} and the load {quoted(load.name)} do not go together"
            remedy = "largest_rate needs a load with `rates`, and such a load gives nothing else"
            problems.append(Problem(f"{place}.measure", seen, remedy))
        if measure is MeasureName.SESSIONS_PER_H and load.sessions is None:
            seen = f"the load {quoted(load.name)} replays no sessions"
            problems.append(Problem(f"{place}.measure", seen, "Name a load with `sessions`, or another measure"))
    return problems


def _request_problems(body_keys: Sequence[str]) -> list[Problem]:
    remedy = "Remove it: the plan's own keys and the prompt file say it"
    return [
        Problem(f"workload.sampling.extra_body.{key}", "this key of the request is set by specdyno", remedy)
        for key in sorted(RESERVED_BODY_KEYS.intersection(body_keys))
    ]


def _flag_problems(flags: Sequence[str]) -> list[Problem]:
    return [
        Problem(f"engine.args.{name}", "a flag is written without its dashes", f"Write {name.lstrip('-') or 'a name'}")
        for name in flags
        if name.startswith("-") or not name
    ]


def _draft_problems(candidates: Mapping[int, Candidate]) -> list[Problem]:
    problems = []
    for index, candidate in candidates.items():
        place, method = f"candidates[{index}]", candidate.method
        if candidate.needs_draft and not candidate.draft:
            problems.append(Problem(f"{place}.draft", f"{method} needs a draft", "Name its folder or hub id"))
        if candidate.takes_no_draft and candidate.draft:
            problems.append(Problem(f"{place}.draft", f"{method} takes no draft", "Remove the key"))
    return problems


def _repeated_arms(candidates: Mapping[int, Candidate]) -> list[Problem]:
    problems = []
    before: list[tuple[Method, str | None, dict[str, Any], int]] = []
    for index, candidate in candidates.items():
        for k in candidate.draft_tokens:
            arm = (candidate.method, candidate.draft, candidate.options, k)
            if arm in before:
                seen = f"{candidate.method} with {k} draft tokens stands twice"
                problems.append(Problem(f"candidates[{index}].draft_tokens", seen, "Name each length once"))
            before.append(arm)
    return problems


def _look_problems(looks: Sequence[int]) -> list[Problem]:
    if list(looks) == sorted(set(looks)):
        return []
    remedy = "Write rising numbers of blocks, e.g. [4, 6, 8]"
    return [Problem("experiment.looks", f"{list(looks)} is not rising", remedy)]
