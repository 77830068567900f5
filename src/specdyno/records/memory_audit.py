"""Does the engine have the room for its KV cache that was expected of it? A note or a doubt, never more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from specdyno.records.memory import TOLERANCE, ArmMemory, deviation
from specdyno.records.schema import BootRecord, Finding, FindingCode, Severity


def memory_findings(expected: Iterable[ArmMemory], boots: Iterable[BootRecord]) -> Iterator[Finding]:
    """Each boot whose own figure lies more than `TOLERANCE` from the estimate of its arm, both figures named.

    Less room than expected is a doubt: requests may wait or be preempted where none were expected to. More is a note.
    """
    estimates = {one.arm: one for one in expected}
    for boot in boots:
        estimate = estimates.get(boot.arm)
        reported = boot.identity.kv_cache_tokens if boot.identity is not None else None
        share = deviation(estimate, reported) if estimate is not None else None
        if estimate is None or share is None or abs(share) <= TOLERANCE:
            continue
        severity = Severity.DOUBT if share < 0 else Severity.NOTE
        detail = f"the engine reports {reported:,} tokens, {estimate.kv_tokens:,} were expected ({share:+.1%})"
        if estimate.notes:
            detail += f"; {estimate.notes[0]}"
        yield Finding(FindingCode.MEMORY_DIFFERS, severity, f"block {boot.block + 1}", detail, boot.arm)
