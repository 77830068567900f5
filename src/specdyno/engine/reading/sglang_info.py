"""SGLang's `/server_info` page: one mean accepted length per scheduler, over the life of the server.

Without verify counts the means of several schedulers cannot be weighted, so their range is given and no mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdyno.engine.reading.schema import Kind, Reading, checked, labelled_range, number

SOURCE = "sglang server info (since server start)"
_LENGTH = "avg_spec_accept_length"
_VERIFY = ("spec_verify_ct", "spec_verify_calls", "spec_total_num_forward_ct")


def holds(page: Mapping[str, Any]) -> bool:
    """Whether a JSON object is such a page."""
    return isinstance(page.get("internal_states"), list)


def read(page: Mapping[str, Any]) -> Reading:
    """Parts are the schedulers that report a length, labelled by their place in the list."""
    states = page.get("internal_states")
    states = states if isinstance(states, list) else []
    k, notes = _draft_length(page)
    parts: list[Reading] = []
    weights: list[float] = []
    problems: list[str] = []
    for place, state in enumerate(states):
        value = number(state.get(_LENGTH)) if isinstance(state, dict) else None
        if value is None:
            continue
        part = checked(
            Reading(Kind.SGLANG_SERVER_INFO, SOURCE, f"scheduler {place}", mean_accepted_length=value, draft_tokens_k=k)
        )
        problems.extend(f"{part.label}: {problem}" for problem in part.problems)
        if part.mean_accepted_length is not None:
            parts.append(part)
            weights.append(next((count for key in _VERIFY if (count := number(state.get(key)))), 0.0))
    if len(parts) < len(states):
        notes.append(f"{len(states) - len(parts)} of {len(states)} schedulers report no length")
    lengths = [part.mean_accepted_length for part in parts if part.mean_accepted_length is not None]
    mean = _mean(lengths, weights, notes)
    return Reading(
        Kind.SGLANG_SERVER_INFO,
        SOURCE,
        draft_tokens_k=k,
        mean_accepted_length=mean,
        length_range=labelled_range(lengths),
        active=True if any(value > 1 for value in lengths) else None,
        notes=tuple(notes),
        problems=tuple(problems),
        parts=tuple(parts),
    )


def _mean(lengths: list[float], weights: list[float], notes: list[str]) -> float | None:
    if not lengths:
        notes.append("no accepted length: speculation off, or nothing decoded yet")
        return None
    if len(lengths) == 1:
        notes.append("server lifetime")
        return lengths[0]
    if all(weights):
        notes.append("weighted by verify steps, server lifetime")
        return sum(value * weight for value, weight in zip(lengths, weights, strict=True)) / sum(weights)
    notes.append(f"{min(lengths):.2f} to {max(lengths):.2f}, not weighted, server lifetime")
    return None


def _draft_length(page: Mapping[str, Any]) -> tuple[int | None, list[str]]:
    """K as resolved by the server: a chain's window less the target's own token; a tree has no single K."""
    topk = number(page.get("speculative_eagle_topk"))
    if topk is not None and topk > 1:
        return None, ["a tree of drafts (topk above 1) has no single draft length"]
    window = number(page.get("speculative_num_draft_tokens"))
    return (int(window) - 1 if window is not None and window > 1 else None), []
