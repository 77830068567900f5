"""Which blocks count: complete, incomplete, void.

A block is complete when the baseline and every candidate still in the race have a complete boot in it. A candidate
that failed twice in one block cannot be promoted any more, so it does not take the others down with it; nor does one
that was never booted again after a look, because its decisions had fallen there (racing).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from specdyno.plan.schema import BASELINE, Plan, Role
from specdyno.records.audit import last_complete_attempts
from specdyno.records.schema import BootRecord, BootStatus, Finding, FindingCode, Severity, StudyRecords
from specdyno.statistics.analysis import BlockState

PROMOTION_BLOCKS = 4
"""Fewest complete blocks that may promote."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Every block's state and the boots that count. `scored` holds block -> arm -> boot in block order."""

    states: tuple[BlockState, ...]
    scored: dict[int, dict[str, BootRecord]]
    dropped: frozenset[str]  # candidates that failed twice in one block
    retired: dict[str, int] = field(default_factory=dict)  # candidate -> first block that did not need it any more

    @property
    def incomplete(self) -> int:
        return sum(1 for state in self.states if not state.complete or state.void)


def twice_failed(boots: tuple[BootRecord, ...]) -> frozenset[str]:
    """Arms whose engine failed at least twice in one block, whatever came after."""
    failures = Counter((boot.block, boot.arm) for boot in boots if boot.status is BootStatus.FAILED)
    return frozenset(arm for (_, arm), count in failures.items() if count > 1)


def sort_blocks(records: StudyRecords, plan: Plan) -> Blocks:
    """States of all blocks seen, and the scored boots of those that are complete and not void."""
    dropped = twice_failed(records.boots) - {BASELINE}
    required = {arm.name for arm in plan.arms() if arm.role is not Role.A_A} - dropped
    latest = last_complete_attempts(records.boots)
    seen = sorted({boot.block for boot in records.boots})
    last_tried = {arm: max((b.block for b in records.boots if b.arm == arm), default=-1) for arm in required}
    states: list[BlockState] = []
    scored: dict[int, dict[str, BootRecord]] = {}
    retired: dict[str, int] = {}
    for block in seen:
        boots = {arm: boot for (index, arm), boot in latest.items() if index == block}
        missing = sorted(required - boots.keys())
        span = _span_s([boots[arm] for arm in sorted(required & boots.keys())])
        void = not missing and span is not None and span > plan.experiment.max_block_span
        reason = f"no complete boot of {', '.join(missing)}" if missing else ""
        if void and span is not None:
            reason = f"its arms lie {span / 3600:.1f} h apart"
        states.append(BlockState(block, not missing, void, reason, _order(records.boots, block)))
        if missing or void:
            continue
        scored[block] = boots
        if len(scored) in plan.experiment.looks and block != seen[-1]:
            racing = required - {BASELINE}
            leaving = {arm for arm in racing if last_tried[arm] <= block}
            if leaving == racing:  # a study without candidates would have ended: they were only not reached yet
                continue
            retired |= dict.fromkeys(sorted(leaving), block + 1)
            required -= leaving
    return Blocks(tuple(states), scored, dropped, retired)


def _span_s(boots: list[BootRecord]) -> float | None:
    """First start to last end on the wall clock: the monotonic one starts anew when the host does."""
    ends = [boot.ended_unix_ns if boot.ended_unix_ns is not None else boot.started_unix_ns for boot in boots]
    return (max(ends) - min(boot.started_unix_ns for boot in boots)) / 1e9 if boots else None


def _order(boots: tuple[BootRecord, ...], block: int) -> tuple[str, ...]:
    mine = sorted((boot for boot in boots if boot.block == block), key=lambda boot: (boot.position, boot.id))
    return tuple(dict.fromkeys(boot.arm for boot in mine))


def block_findings(blocks: Blocks) -> list[Finding]:
    """Doubts that follow from the blocks alone."""
    found = [
        Finding(FindingCode.BLOCK_VOID, Severity.DOUBT, f"block {state.index + 1}", state.reason)
        for state in blocks.states
        if state.void
    ]
    if blocks.incomplete:
        too_many = 3 * blocks.incomplete > len(blocks.states)
        found.append(
            Finding(
                FindingCode.BLOCKS_INCOMPLETE,
                Severity.FORBIDS if too_many else Severity.DOUBT,
                "study",
                f"{blocks.incomplete} of {len(blocks.states)} blocks are incomplete or void",
            )
        )
    if len(blocks.scored) < PROMOTION_BLOCKS:
        detail = f"{len(blocks.scored)} complete, at least {PROMOTION_BLOCKS} are needed to promote"
        found.append(Finding(FindingCode.TOO_FEW_BLOCKS, Severity.FORBIDS, "study", detail))
    return found
