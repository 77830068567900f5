"""The arms of a plan: the baseline, every candidate at every draft length, and the A/A arm."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import Field

from specdyno.plan.methods import Method
from specdyno.plan.part import Part

if TYPE_CHECKING:
    from specdyno.plan.schema import Plan


BASELINE = "baseline"
A_A = "baseline-again"


class Role(StrEnum):
    BASELINE = "baseline"
    CANDIDATE = "candidate"
    A_A = "a_a"


class Arm(Part):
    """One configuration that is booted and measured."""

    name: str
    role: Role
    method: Method | None = None
    draft: str | None = None
    draft_tokens: int | None = None
    options: dict[str, Any] = Field(default_factory=dict)


def arms_of(plan: Plan) -> tuple[Arm, ...]:
    arms = [Arm(name=BASELINE, role=Role.BASELINE)]
    taken: dict[str, int] = {}
    for candidate in plan.candidates:
        for k in candidate.draft_tokens:
            name = f"{candidate.method}-k{k}"
            taken[name] = taken.get(name, 0) + 1
            if taken[name] > 1:
                name = f"{name}-{taken[name]}"
            arms.append(
                Arm(
                    name=name,
                    role=Role.CANDIDATE,
                    method=candidate.method,
                    draft=candidate.draft,
                    draft_tokens=k,
                    options=candidate.options,
                )
            )
    if plan.experiment.a_a:
        arms.append(Arm(name=A_A, role=Role.A_A))
    return tuple(arms)
