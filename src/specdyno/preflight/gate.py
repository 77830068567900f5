"""What the checks before the first boot decide: a failure that the plan does not accept ends the run.

Warnings, accepted failures and what is not to be known become remarks; they decide nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from specdyno.errors import PlanError, Problem
from specdyno.plan.spelling import quoted
from specdyno.preflight.schema import Check, Grade

_WORDS = {Grade.WARN: "", Grade.UNKNOWN: "not known: ", Grade.FAIL: "accepted: "}


def pass_or_refuse(checks: Iterable[Check], accept: Collection[str], *, known: Collection[str]) -> list[str]:
    """Remarks, one sentence each. `accept`: rules that may fail; `known`: names of all rules there are.

    Raises PlanError with every failure at once, and for a name in `accept` that no rule has.
    """
    checks = list(checks)
    problems = [*_unknown_names(accept, known)]
    problems += [_problem(check) for check in checks if check.grade is Grade.FAIL and check.rule not in accept]
    if problems:
        raise PlanError(list(dict.fromkeys(problems)))
    return list(dict.fromkeys(_remark(check) for check in checks if check.grade is not Grade.PASS))


def _unknown_names(accept: Collection[str], known: Collection[str]) -> list[Problem]:
    problems = []
    for index, name in enumerate(accept):
        if name not in known:
            near = difflib.get_close_matches(name.replace("-", "_"), known, n=1)
            remedy = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(known))}"
            problems.append(Problem(f"preflight.accept[{index}]", f"there is no check {quoted(name)}", remedy))
    return problems


def _problem(check: Check) -> Problem:
    remedy = check.remedy.removesuffix(".")
    accept = f"To measure it nevertheless, write preflight: {{accept: [{check.rule}]}}"
    seen = f"{check.arm}: {check.seen}" if check.arm else check.seen
    return Problem(check.place, seen, f"{remedy}. {accept}" if remedy else accept)


def _remark(check: Check) -> str:
    whose = f"{check.arm}: " if check.arm else ""
    remedy = f". {check.remedy}" if check.remedy and check.grade is Grade.WARN else ""
    return f"{whose}{check.rule}: {_WORDS[check.grade]}{check.seen}{remedy}"
