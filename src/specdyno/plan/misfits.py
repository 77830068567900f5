"""Mistakes that no part of a plan shows alone: names that stand twice, loads that do not exist, shares, drafts.

Judges whatever parts could be read, so that one misspelt key does not hide the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdyno.errors import Problem
from specdyno.plan.candidate import Candidate
from specdyno.plan.methods import Method
from specdyno.plan.spelling import quoted

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
    shares: Sequence[float] | None  # None: some class could not be read
    names: Mapping[str, Sequence[str | None]]  # by key path of the list; None: the entry has no readable name
    objective_loads: Mapping[int, str]
    looks: Sequence[int]


def misfits(parts: Parts) -> list[Problem]:
    """Mistakes that no part shows alone."""
    return [
        *_name_problems(parts.names),
        *_objective_problems(parts),
        *_share_problems(parts.shares),
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
    loads = parts.names.get("loads", ())
    if None in loads or not loads:
        return []
    known = ", ".join(str(name) for name in loads)
    return [
        Problem(f"objectives[{index}].load", f"there is no load {quoted(name)}", f"Use one of: {known}")
        for index, name in parts.objective_loads.items()
        if name not in loads
    ]


def _share_problems(shares: Sequence[float] | None) -> list[Problem]:
    if not shares or abs(sum(shares) - 1.0) <= 1e-6:
        return []
    return [Problem("workload.classes", f"the shares add up to {sum(shares):g}", "Make them add up to 1")]


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
