"""How much memory an arm was expected to take, worked out before its first boot.

Owns the typed estimate that travels with a study; `preflight.memory` makes it, the audit holds it against what the
engine itself reports, and the report shows both. None means that it could not be known, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TOLERANCE = 0.05
"""Share by which the engine's own KV tokens may differ from the estimate before that is a finding."""


@dataclass(frozen=True, slots=True)
class ArmMemory:
    """Memory of one arm on one device (the smallest, where the model is split over several)."""

    arm: str
    device: str  # which memory was counted, and how it is known
    weights_bytes: int | None = None  # the target's, on one device
    draft_bytes: int | None = None  # the draft's; 0 where the method has no weights
    kv_bytes_per_token: int | None = None  # every attention layer of target and draft, before any window binds
    state_bytes: int | None = None  # recurrent state of one request, speculative copies included; 0: no such layers
    budget_bytes: int | None = None  # room for the KV cache
    kv_tokens: int | None = None  # tokens that the cache holds in requests of `max_model_len` tokens
    concurrency: float | None = None  # requests of `max_model_len` tokens that fit at once
    max_model_len: int | None = None
    lookahead_tokens: int = 0  # further slots that a running request holds for its drafts
    headroom_bytes: int | None = None  # what is left once one request of full length is held; negative: does not fit
    wanted_bytes: int | None = None  # all that the engine will take of the device
    free_bytes: int | None = None  # of the device, when this was worked out
    fits: bool | None = None  # on the device as a whole, whatever uses it now
    notes: tuple[str, ...] = ()  # what was not counted, and why something is not known


def read_memory(stored: dict[str, Any]) -> ArmMemory:
    """An estimate as it was stored. TypeError for a field that this version does not know."""
    return ArmMemory(**{**stored, "notes": tuple(stored.get("notes", ()))})


def deviation(estimate: ArmMemory, reported_tokens: int | None) -> float | None:
    """Share by which the engine's KV tokens lie above (below: negative) the estimate; None where either is unknown.

    >>> deviation(ArmMemory("baseline", "given", kv_tokens=1000), 950)
    -0.05
    """
    if reported_tokens is None or not estimate.kv_tokens:
        return None
    return (reported_tokens - estimate.kv_tokens) / estimate.kv_tokens
