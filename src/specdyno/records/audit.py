"""Are these records fit to compare? Doubts with severity and place; never an exception, never a number.

Reads boots, windows, counters and requests of the last complete attempts, and the plan they were measured by. Each
check states what it saw. `FORBIDS` stands where a promote could be wrong because of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from specdyno.plan.schema import BASELINE, Arm, EngineKind, Method, Plan, Role
from specdyno.records.confounds import NOT_REPORTED, Difference, differences, matches, normalised, resolved
from specdyno.records.memory_audit import memory_findings
from specdyno.records.schema import (
    BootRecord,
    BootStatus,
    Finding,
    FindingCode,
    Severity,
    StudyRecords,
    WindowKind,
)
from specdyno.records.window_audit import AuditedWindow, window_findings

TOKENS_TO_SPEAK = 50
"""Fewest generated tokens after which no draft at all means that speculation is off."""
STEPS_TO_ALARM = 100
"""Fewest drafted steps after which an extreme acceptance is an alarm."""
FIRST_POSITION_LOW, FIRST_POSITION_HIGH = 0.05, 0.999

PREFIX_TOLERANCE = 0.02
"""Share of prompt tokens by which an arm's prefix-cache hits may differ from the baseline's."""

FORCED_KEYS = ("ignore_eos", "min_tokens", "min_new_tokens", "min_length")
SYNTHETIC_KEYS = ("synthetic_acceptance_*", "spec_synth_*", "sglang_simulate_acc*")

# What an engine calls the same thing.
SAME_METHOD = {
    Method.GEMMA4_MTP: {"mtp"},
    Method.PARD: {"draft_model"},
    Method.NGRAM: {"ngram_gpu", "ngram-simple", "ngram_simple", "ngram-mod", "ngram-map-k"},
}


@dataclass(frozen=True, slots=True)
class Audit:
    findings: tuple[Finding, ...]
    settings_differences: tuple[Difference, ...]


def last_complete_attempts(boots: Iterable[BootRecord]) -> dict[tuple[int, str], BootRecord]:
    """(block, arm) -> its last complete boot, ordered by block, then by first appearance."""
    latest: dict[tuple[int, str], BootRecord] = {}
    for boot in sorted(boots, key=lambda boot: (boot.block, boot.attempt, boot.id)):
        if boot.status is BootStatus.COMPLETE:
            latest[boot.block, boot.arm] = boot
    return latest


def audit_records(records: StudyRecords, plan: Plan) -> Audit:
    """Every doubt about `records`, like ones joined, in the order of the checks."""
    arms = {arm.name: arm for arm in plan.arms()}
    boots = last_complete_attempts(records.boots)
    known = [boot for boot in boots.values() if boot.arm in arms]
    windows = _windows(records, known)
    compared = _settings_differences(boots, arms)
    found: list[Finding] = [*_plan_findings(plan), *_engine_findings(records.boots, arms)]
    for boot in known:
        found += _identity_findings(boot, arms[boot.arm], windows)
    for window in windows:
        found += window_findings(window, arms[window.boot.arm], plan)
    found += _prompt_findings(windows)
    found += _acceptance_alarms(windows, arms)
    found += _prefix_findings(windows)
    found += _settings_findings(compared, plan)
    found += memory_findings(records.header.memory, known)
    return Audit(_joined(found), compared)


def _windows(records: StudyRecords, boots: Iterable[BootRecord]) -> list[AuditedWindow]:
    by_id = {boot.id: boot for boot in boots}
    order = np.argsort(records.requests.window_id, kind="stable")
    ids = records.requests.window_id[order]
    found = []
    for window in records.windows:
        if window.boot_id in by_id and window.kind is not WindowKind.WARM_UP and window.ended_ns is not None:
            first, last = np.searchsorted(ids, [window.id, window.id + 1])
            found.append(AuditedWindow(by_id[window.boot_id], window, records.requests, np.sort(order[first:last])))
    return found


def _joined(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding per code, severity, arm and load: the places named together, the first detail kept."""
    groups: dict[tuple[FindingCode, Severity, str | None, str | None], list[Finding]] = {}
    for finding in found:
        groups.setdefault((finding.code, finding.severity, finding.arm, finding.load), []).append(finding)
    joined = []
    for (_, _, arm, load), group in groups.items():
        blocks = sorted({int(f.place[6:]) for f in group if f.place.startswith("block ") and f.place[6:].isdigit()})
        where = f"block{'s' if len(blocks) > 1 else ''} {', '.join(map(str, blocks))}" if blocks else group[0].place
        place = ", ".join(part for part in (where, arm, load) if part)
        joined.append(replace(group[0], place=place))
    return tuple(joined)


# --- the plan and the boots -------------------------------------------------------------------------------------------


def _plan_findings(plan: Plan) -> Iterator[Finding]:
    forced = [key for key, value in plan.workload.sampling.extra_body.items() if key in FORCED_KEYS and value]
    forced += [key for key, value in plan.engine.args.items() if normalised(key) in FORCED_KEYS and value is not False]
    if forced:
        yield Finding(FindingCode.FORCED_LENGTH, Severity.FORBIDS, "plan", f"set by the plan: {', '.join(forced)}")
    if plan.engine.kind is EngineKind.SIMULATED:
        yield Finding(FindingCode.SIMULATED_ENGINE, Severity.NOTE, "plan", "engine.kind is simulated")
    if plan.engine.read_from is not None:
        detail = f"written from {plan.engine.read_from}"
        yield Finding(FindingCode.ENGINE_NOT_RUN_HERE, Severity.NOTE, "plan", detail)
    everywhere = [key for key in (*plan.engine.args, *plan.engine.env) if matches(key, SYNTHETIC_KEYS)]
    if everywhere:
        yield Finding(FindingCode.SYNTHETIC_ACCEPTANCE, Severity.FORBIDS, "plan", ", ".join(everywhere))
    for arm in plan.arms():
        keys = [key for key in arm.options if matches(key, SYNTHETIC_KEYS)]
        keys += [key for key, value in arm.options.items() if value == "synthetic"]
        if keys:
            yield Finding(FindingCode.SYNTHETIC_ACCEPTANCE, Severity.FORBIDS, "plan", ", ".join(keys), arm.name)


def _engine_findings(boots: Iterable[BootRecord], arms: dict[str, Arm]) -> Iterator[Finding]:
    failed = [boot for boot in boots if boot.status is BootStatus.FAILED]
    counts = Counter((boot.block, boot.arm) for boot in failed)
    for boot in failed:
        severity = Severity.DOUBT
        if counts[boot.block, boot.arm] > 1 and boot.arm != BASELINE:
            severity = Severity.FORBIDS
        yield Finding(FindingCode.ENGINE_FAILED, severity, f"block {boot.block + 1}", boot.failure, boot.arm)
    strangers = sorted({boot.arm for boot in boots} - arms.keys())
    if strangers:
        detail = f"boots of arms that the plan does not name: {', '.join(strangers)}"
        yield Finding(FindingCode.IDENTITY_BROKEN, Severity.DOUBT, "study", detail)


def _identity_findings(boot: BootRecord, arm: Arm, windows: Iterable[AuditedWindow]) -> Iterator[Finding]:
    """Did the engine run what the arm asks for? From what it reports, else from what it counted."""
    mine = [window for window in windows if window.boot.id == boot.id]
    place = f"block {boot.block + 1}"
    identity = boot.identity
    drafted = _drafted_tokens(mine)
    if arm.role is not Role.CANDIDATE:
        if (identity is not None and identity.speculation) or (drafted or 0) > 0:
            yield Finding(FindingCode.BASELINE_SPECULATES, Severity.FORBIDS, place, "the baseline drafts", arm.name)
        return
    tokens = sum(float(np.nansum(window.column("tokens"))) for window in mine)
    if identity is not None and identity.speculation is False:
        detail = "the engine reports that it runs without speculation"
        yield Finding(FindingCode.SPECULATION_NOT_ACTIVE, Severity.FORBIDS, place, detail, arm.name)
    elif drafted == 0 and tokens >= TOKENS_TO_SPEAK:
        detail = f"no token was drafted while {tokens:.0f} were generated"
        yield Finding(FindingCode.SPECULATION_NOT_ACTIVE, Severity.FORBIDS, place, detail, arm.name)
    elif drafted is None and mine:
        detail = "neither answers nor counters say whether anything was drafted"
        yield Finding(FindingCode.COUNTERS_UNREADABLE, Severity.FORBIDS, place, detail, arm.name)
    yield from _length_in_force(boot, arm, mine)
    method = identity.method if identity is not None else None
    if method is not None and arm.method is not None and method not in {arm.method, *SAME_METHOD.get(arm.method, ())}:
        detail = f"asked for {arm.method}, the engine resolved {method}"
        yield Finding(FindingCode.METHOD_NOT_AS_ASKED, Severity.FORBIDS, place, detail, arm.name)


def _length_in_force(boot: BootRecord, arm: Arm, windows: Iterable[AuditedWindow]) -> Iterator[Finding]:
    reported = boot.identity.draft_tokens if boot.identity is not None else None
    counted = [window.delta.draft_tokens_k for window in windows if window.delta is not None]
    in_force = {k for k in ([reported] if reported is not None else counted) if k is not None}
    place = f"block {boot.block + 1}"
    if in_force - {arm.draft_tokens}:
        detail = f"asked for {arm.draft_tokens}, in force: {', '.join(str(k) for k in sorted(in_force))}"
        yield Finding(FindingCode.DRAFT_TOKENS_NOT_AS_ASKED, Severity.FORBIDS, place, detail, arm.name)
    elif not in_force:
        detail = "the engine does not say which draft length is in force"
        yield Finding(FindingCode.DRAFT_TOKENS_NOT_AS_ASKED, Severity.DOUBT, place, detail, arm.name)


def _drafted_tokens(windows: Iterable[AuditedWindow]) -> float | None:
    """Draft tokens of these windows by either source; None where neither tells."""
    known: list[float] = []
    for window in windows:
        reported = window.column("spec_drafted")
        steps = window.column("spec_steps")
        known += [float(np.nansum(column)) for column in (reported, steps) if np.isfinite(column).any()]
        if window.delta is not None:
            known += [count for count in (window.delta.drafts, window.delta.draft_tokens) if count is not None]
    return sum(known) if known else None


# --- between windows --------------------------------------------------------------------------------------------------


def _prompt_findings(windows: Iterable[AuditedWindow]) -> Iterator[Finding]:
    """Every arm of a block must have seen the same prompts in the same places of its lists.

    A list may be shorter than another: a window was cut off, a search asked a lower rate, a session failed.
    """
    lists: dict[tuple[int, str, str | None, int], tuple[str, dict[int, int]]] = {}
    seen: Counter[tuple[int, str, str | None]] = Counter()
    for window in windows:
        if window.requests.prompt_code is None:
            continue
        place = (window.boot.id, window.record.load, window.record.class_name)
        key = (window.boot.block, window.record.load, window.record.class_name, seen[place])  # steps of a search
        seen[place] += 1
        prompts = dict(zip(window.column("index").tolist(), window.column("prompt_code").tolist(), strict=True))
        first = lists.setdefault(key, (window.boot.arm, prompts))
        if any(first[1][index] != prompts[index] for index in first[1].keys() & prompts.keys()):
            detail = f"other prompts, or another order, than {first[0]}"
            yield window.finding(FindingCode.PROMPTS_DIFFER, Severity.FORBIDS, detail)


def _acceptance_alarms(windows: Iterable[AuditedWindow], arms: dict[str, Arm]) -> Iterator[Finding]:
    """Acceptance that is too bad or too good to be true, per arm and load over all blocks."""
    groups: dict[tuple[str, str], list[AuditedWindow]] = {}
    for window in windows:
        if window.scored and arms[window.boot.arm].role is Role.CANDIDATE:
            groups.setdefault((window.boot.arm, window.record.load), []).append(window)
    for (arm, load), group in groups.items():
        steps, drafted, accepted, first = _acceptance_sums(group)
        if not steps >= STEPS_TO_ALARM:
            continue
        share = first / steps
        if share < FIRST_POSITION_LOW or share > FIRST_POSITION_HIGH:
            detail = f"{share:.1%} of {steps:.0f} drafted steps accepted their first token"
            yield Finding(FindingCode.FIRST_POSITION_EXTREME, Severity.DOUBT, load, detail, arm, load)
        if accepted == 0 or accepted > FIRST_POSITION_HIGH * drafted:
            detail = f"{accepted:.0f} of {drafted:.0f} drafted tokens were accepted"
            severity = Severity.DOUBT if accepted == 0 else Severity.FORBIDS
            yield Finding(FindingCode.LENGTH_EXTREME, severity, load, detail, arm, load)


def _prefix_findings(windows: Iterable[AuditedWindow]) -> Iterator[Finding]:
    """Each arm's share of prompt tokens found in the prefix cache against the baseline's, where the engine tells."""
    sums: dict[tuple[str, str], np.ndarray] = {}
    for window in windows:
        if window.scored:
            both = np.stack([window.column(name) for name in ("cached_tokens", "prompt_tokens")])
            known = both[:, np.isfinite(both).all(axis=0)].sum(axis=1)
            key = (window.record.load, window.boot.arm)
            sums[key] = sums.get(key, np.zeros(2)) + known
    for (load, arm), (cached, sent) in sums.items():
        ours = sums.get((load, BASELINE), np.zeros(2))
        if arm == BASELINE or sent <= 0 or ours[1] <= 0:
            continue
        if abs(cached / sent - ours[0] / ours[1]) > PREFIX_TOLERANCE:
            detail = f"{cached / sent:.1%} of prompt tokens, baseline {ours[0] / ours[1]:.1%}"
            yield Finding(FindingCode.PREFIX_HITS_DIFFER, Severity.DOUBT, load, detail, arm, load)


def _acceptance_sums(windows: Iterable[AuditedWindow]) -> tuple[float, float, float, float]:
    """Steps, drafted, accepted, accepted at the first position; NaN where unknown."""
    total = np.zeros(4)
    for window in windows:
        known = np.isfinite(window.column("spec_steps"))
        if known.any():
            reached = window.column("spec_reached")
            first = reached[known, 0] if reached.shape[1] else np.array([np.nan])
            columns = [window.column(name)[known] for name in ("spec_steps", "spec_drafted", "spec_accepted")]
            total += [*(float(np.sum(column)) for column in columns), float(np.sum(first))]
        elif window.delta is not None:
            at = window.delta.accepted_per_position
            counts = (
                window.delta.drafts,
                window.delta.draft_tokens,
                window.delta.accepted_tokens,
                at[0] if at else None,
            )
            total += [np.nan if count is None else count for count in counts]
    return float(total[0]), float(total[1]), float(total[2]), float(total[3])


def _settings_differences(boots: dict[tuple[int, str], BootRecord], arms: dict[str, Arm]) -> tuple[Difference, ...]:
    """Each arm against the baseline of its block, and each baseline against the first one."""
    found: dict[Difference, None] = {}
    baselines = [boot for (_, arm), boot in boots.items() if arm == BASELINE]
    for (block, arm), boot in boots.items():
        reference = boots.get((block, BASELINE)) if arm != BASELINE else baselines[0]
        if reference is None or arm not in arms or reference.identity is None or boot.identity is None:
            continue
        found |= dict.fromkeys(differences(resolved(reference), resolved(boot), arm=arm))
    return tuple(found)


def _settings_findings(compared: Iterable[Difference], plan: Plan) -> Iterator[Finding]:
    for name, arm, ours, theirs, consequence in compared:
        if consequence:
            continue
        accepted = matches(name, plan.experiment.accept_differences)
        one_sided = NOT_REPORTED in (ours, theirs)
        severity = Severity.NOTE if accepted else Severity.DOUBT if one_sided else Severity.FORBIDS
        yield Finding(FindingCode.SETTINGS_DIFFER, severity, name, f"baseline {ours}, {arm} {theirs}", arm)
