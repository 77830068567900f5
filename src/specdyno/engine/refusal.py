"""A ready engine that does not run what its arm asks for is not measured: the boot ends, with the reason and the fix.

The same facts would forbid a promotion after the measurement (`records.audit`); here they save its time. What an
engine does not say is no reason.
"""

from __future__ import annotations

from typing import NamedTuple

from specdyno.plan.schema import Arm, Role
from specdyno.records.audit import SAME_METHOD
from specdyno.records.schema import Identity


class Refusal(NamedTuple):
    reason: str
    remedy: str


_NOT_BASELINE = "Remove speculation from engine.command, engine.args, engine.env and the checkpoint; candidates hold it"
_ASK_FOR_IT = "Ask for the method that the draft is for, or for another draft"
_ASK_FOR_K = "Say in draft_tokens what this draft can do, or take another draft"
_CHECK_DRAFT = "Look in the engine's log for what it said about the draft"


def refused(identity: Identity, arm: Arm) -> Refusal | None:
    """Why a boot of `arm` that reports `identity` is not worth measuring; None where it is."""
    if arm.role is not Role.CANDIDATE:
        return Refusal(f"{arm.name} must not speculate and does", _NOT_BASELINE) if identity.speculation else None
    if identity.speculation is False:
        return Refusal(f"the engine serves without speculation, {arm.name} asks for {arm.method}", _CHECK_DRAFT)
    known = {None} if arm.method is None else {None, arm.method, *SAME_METHOD.get(arm.method, ())}
    if identity.method not in known:
        return Refusal(f"{arm.name} asks for method {arm.method}, the engine runs {identity.method}", _ASK_FOR_IT)
    if identity.draft_tokens is not None and identity.draft_tokens != arm.draft_tokens:
        reason = f"{arm.name} asks for {arm.draft_tokens} draft tokens, in force are {identity.draft_tokens}"
        return Refusal(reason, _ASK_FOR_K)
    return None
