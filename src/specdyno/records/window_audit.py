"""Doubts about one window: clocks, requests, counters, and the identities that hold between them.

Each check states what it saw and where. It raises nothing: what cannot be checked for want of data is not a doubt of
its own, except where counters are missing altogether.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specdyno.plan.schema import Arm, Plan, Role
from specdyno.records.arrival_audit import arrival_doubts
from specdyno.records.deltas import CounterDelta, difference
from specdyno.records.schema import (
    ArrivalKind,
    BootRecord,
    Finding,
    FindingCode,
    Outcome,
    Requests,
    Severity,
    WindowKind,
    WindowRecord,
)
from specdyno.records.spans import scored_span

CLIENT_LAG_DOUBT_NS, CLIENT_LAG_FORBIDS_NS = 100_000_000, 1_000_000_000
"""Longest stand of the client's loop: beyond the first it is named, beyond the second its stamps are not believed."""
HOST_BUSY_DOUBT = 0.10
TOKEN_TOLERANCE = 0.005
"""Share by which client and server may count tokens differently."""

_SAID = re.compile(r'^(HTTP \d+: ).*?"message"\s*:\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)
_MOST_SAID = 160
# Engines repeat parts of a request in what they say of it, as structures or quoted: none of that may reach a report.
_REPEATED = re.compile(r"[\[{].*", re.DOTALL)
_QUOTED = re.compile(r"""(["'`])(?:(?!\1).){24,}\1?""", re.DOTALL)

_DONE = tuple(code for code, outcome in enumerate(Outcome) if outcome.done)


@dataclass(frozen=True)
class AuditedWindow:
    """One finished window of an audited boot, with the rows of its requests."""

    boot: BootRecord
    record: WindowRecord
    requests: Requests
    rows: np.ndarray

    def column(self, name: str) -> np.ndarray:
        values: np.ndarray = getattr(self.requests, name)[self.rows]
        return values

    @cached_property
    def done(self) -> np.ndarray:
        return np.isin(self.column("outcome_code"), _DONE)

    @cached_property
    def delta(self) -> CounterDelta | None:
        before, after = self.record.before, self.record.after
        if before is None or after is None or not (before.series or after.series):
            return None
        return difference(before, after)

    @property
    def scored(self) -> bool:
        return self.record.kind in (WindowKind.MIXED, WindowKind.PROBE)

    def finding(self, code: FindingCode, severity: Severity, detail: str) -> Finding:
        return Finding(code, severity, f"block {self.boot.block + 1}", detail, self.boot.arm, self.record.load)


def window_findings(window: AuditedWindow, arm: Arm, plan: Plan) -> Iterator[Finding]:
    yield from _clock_findings(window)
    yield from _request_findings(window, plan)
    yield from _counter_findings(window, arm, plan)
    yield from _step_identities(window)
    for code, severity, detail in arrival_doubts(window.record, window.requests, window.rows):
        yield window.finding(code, severity, detail)
    lag = window.record.client_lag_max_ns
    if lag is not None and lag > CLIENT_LAG_DOUBT_NS:
        severity = Severity.FORBIDS if lag > CLIENT_LAG_FORBIDS_NS else Severity.DOUBT
        yield window.finding(FindingCode.CLIENT_AT_CEILING, severity, f"the client's loop stood for {lag / 1e6:.0f} ms")
    busy = window.record.host_busy
    if busy is not None and busy > HOST_BUSY_DOUBT:
        yield window.finding(FindingCode.HOST_BUSY, Severity.DOUBT, f"other processes took {busy:.0%} of the host")


def _clock_findings(window: AuditedWindow) -> Iterator[Finding]:
    sent, first, last, ended = (
        window.column(name) for name in ("sent_ns", "first_text_ns", "last_text_ns", "ended_ns")
    )
    bad = (ended >= 0) & (ended < sent)
    bad |= (first >= 0) & ((first < sent) | (last < first))
    backwards = window.record.ended_ns is not None and window.record.ended_ns < window.record.started_ns
    if bad.any() or backwards:
        detail = f"{int(bad.sum())} requests end before they start" if bad.any() else "the window ends before it starts"
        yield window.finding(FindingCode.CLOCK_WENT_BACK, Severity.FORBIDS, detail)


def _failures(window: AuditedWindow) -> str:
    """How many failed, by class and outcome, with what the first of each was told."""
    failed = window.rows[~window.done]
    requests = window.requests
    outcomes, parts = list(Outcome), []
    kinds = Counter(zip(requests.class_code[failed].tolist(), requests.outcome_code[failed].tolist(), strict=True))
    for (class_code, outcome_code), count in sorted(kinds.items(), key=lambda item: (-item[1], item[0])):
        of_kind = failed[(requests.class_code[failed] == class_code) & (requests.outcome_code[failed] == outcome_code)]
        said = _short(requests.error_of(int(of_kind[0])))
        how = outcomes[outcome_code].value.replace("_", " ")
        parts.append(f"class {requests.class_names[class_code]}: {count} {how}{f', {said}' if said else ''}")
    return f"{len(failed)} of {len(window.rows)} failed ({'; '.join(parts)})"


def _short(error: str) -> str:
    r"""An engine's message out of the JSON around it, on one line, without what it repeats of the request.

    >>> _short('HTTP 400: {"error": {"message": "cannot parse; messages = [{\'content\': \'secret\'}]"}}')
    'HTTP 400: cannot parse; messages = …'
    """
    found = _SAID.match(error)
    said = found.group(1) + re.sub(r"\\(.)", _unescaped, found.group(2)) if found else error
    text = " ".join(_QUOTED.sub("…", _REPEATED.sub("…", said)).split())
    return text if len(text) <= _MOST_SAID else f"{text[:_MOST_SAID]}…"


def _unescaped(escape: re.Match[str]) -> str:
    return " " if escape.group(1) in "nrt" else escape.group(1)


def _request_findings(window: AuditedWindow, plan: Plan) -> Iterator[Finding]:
    sent, tokens, done = len(window.rows), window.column("tokens"), window.done
    if sent < window.record.planned:
        of_sessions = window.record.arrival is not None and window.record.arrival.kind is ArrivalKind.SESSIONS
        why = ": a session ends at its first turn that fails" if of_sessions else ""
        detail = f"{sent} of {window.record.planned} planned requests were sent{why}"
        yield window.finding(FindingCode.WINDOW_SHORTENED, Severity.DOUBT, detail)
    if not done.all():
        yield window.finding(FindingCode.REQUESTS_FAILED, Severity.DOUBT, _failures(window))
    unknown = int((done & ~np.isfinite(tokens)).sum())
    if unknown:
        detail = f"{unknown} of {int(done.sum())} answers came without a token count"
        yield window.finding(FindingCode.USAGE_MISSING, Severity.DOUBT, detail)
    with np.errstate(invalid="ignore"):
        odd = done & ((tokens > _limits(window, plan)) | ((tokens <= 0) & (window.column("chunks") > 0)))
    if odd.any():
        detail = f"{int(odd.sum())} token counts contradict the text or the limit"
        yield window.finding(FindingCode.USAGE_ODD, Severity.DOUBT, detail)
    span = scored_span(
        window.record,
        intended_ns=window.column("intended_ns"),
        sent_ns=window.column("sent_ns"),
        ended_ns=window.column("ended_ns"),
        session=None if window.requests.session_code is None else window.column("session_code"),
    )
    if window.scored and span is None:
        detail = (
            f"{window.record.concurrency} requests were never in flight together"
            if window.record.concurrency
            else "too few requests for a stretch of load"
        )
        yield window.finding(FindingCode.NO_FULL_OCCUPANCY, Severity.DOUBT, detail)


def _counter_findings(window: AuditedWindow, arm: Arm, plan: Plan) -> Iterator[Finding]:
    delta = window.delta
    if delta is None:
        detail = "no counters: traffic of others would not be noticed"
        yield window.finding(FindingCode.COUNTERS_UNREADABLE, Severity.NOTE, detail)
        return
    if delta.since_restart:
        yield window.finding(FindingCode.COUNTERS_RESET, Severity.FORBIDS, "; ".join(delta.problems))
        return
    if delta.problems:
        claimed = arm.role is Role.CANDIDATE and not np.isfinite(window.column("spec_steps")).any()
        severity = Severity.FORBIDS if claimed else Severity.DOUBT
        yield window.finding(FindingCode.COUNTERS_UNREADABLE, severity, "; ".join(delta.problems))
    yield from _traffic_findings(window, delta, plan)
    yield from _step_sum_findings(window, delta, arm)


def _traffic_findings(window: AuditedWindow, delta: CounterDelta, plan: Plan) -> Iterator[Finding]:
    """Client tokens against the server's: more on the server is somebody else's traffic.

    Failed requests may have cost up to their limit each; a request may be counted one token differently.
    """
    tokens = window.column("tokens")
    if delta.generation_tokens is None or not np.isfinite(tokens[window.done]).all():
        return
    ours = float(np.nansum(tokens))
    lost = _limits(window, plan)[~np.isfinite(tokens)]
    slack = TOKEN_TOLERANCE * ours + len(tokens) + float(np.sum(lost))
    if delta.generation_tokens > ours + slack:
        detail = f"the server generated {delta.generation_tokens:.0f} tokens, this client received {ours:.0f}"
        yield window.finding(FindingCode.FOREIGN_TRAFFIC, Severity.FORBIDS, detail)
    elif delta.generation_tokens < ours - TOKEN_TOLERANCE * ours - len(tokens):
        detail = f"this client received {ours:.0f} tokens, the server counted {delta.generation_tokens:.0f}"
        yield window.finding(FindingCode.IDENTITY_BROKEN, Severity.DOUBT, detail)


def _step_sum_findings(window: AuditedWindow, delta: CounterDelta, arm: Arm) -> Iterator[Finding]:
    """Generated - first tokens = decode steps + accepted, short by the trimmed tails only (K per request at most)."""
    k = delta.draft_tokens_k or arm.draft_tokens or 0
    if delta.drafts and delta.accepted_tokens is not None and k and delta.accepted_tokens > k * delta.drafts:
        detail = f"{delta.accepted_tokens:.0f} accepted in {delta.drafts:.0f} steps of {k}"
        yield window.finding(FindingCode.IDENTITY_BROKEN, Severity.DOUBT, detail)
    if delta.generation_tokens is None or delta.first_tokens is None or delta.decode_steps is None:
        return
    if delta.drafts is not None and delta.accepted_tokens is None:  # SGLang counts steps and no accepted tokens
        return
    emitted = delta.generation_tokens - delta.first_tokens
    expected = delta.decode_steps + (delta.accepted_tokens or 0.0)
    requests = len(window.rows)
    slack = TOKEN_TOLERANCE * emitted + requests
    if emitted > expected + slack or emitted < expected - slack - k * requests:
        detail = f"{emitted:.0f} tokens after the first, {expected:.0f} from decode steps and accepted drafts"
        yield window.finding(FindingCode.IDENTITY_BROKEN, Severity.DOUBT, detail)


def _step_identities(window: AuditedWindow) -> Iterator[Finding]:
    """Per request: accepted within drafted, positions adding up and never rising."""
    steps, drafted, accepted = (window.column(name) for name in ("spec_steps", "spec_drafted", "spec_accepted"))
    reached = window.column("spec_reached")
    with np.errstate(invalid="ignore"):
        bad = (accepted > drafted) | (accepted < 0) | (steps < 0)
        if reached.shape[1]:
            bad |= np.abs(np.sum(reached, axis=1) - accepted) > 0.5
            bad |= reached[:, 0] > steps
            bad |= (np.diff(reached, axis=1) > 0).any(axis=1)
    if bad.any():
        detail = f"{int(bad.sum())} answers report steps that do not add up"
        yield window.finding(FindingCode.IDENTITY_BROKEN, Severity.DOUBT, detail)


def _limits(window: AuditedWindow, plan: Plan) -> np.ndarray:
    """Each request's limit of output tokens; infinite for a class that the plan does not name."""
    limits = {part.name: float(part.max_tokens) for part in plan.workload.classes}
    by_code = np.array([*(limits.get(name, np.inf) for name in window.requests.class_names), np.inf])
    known: np.ndarray = by_code[np.clip(window.column("class_code"), -1, len(by_code) - 1)]
    return known
