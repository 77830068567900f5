"""What a verdict is: a decision per objective, the gate that decided, and everything it rests on."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from specdyno.records.schema import Finding
from specdyno.statistics.analysis import Analysis
from specdyno.statistics.intervals import Estimate, Interval, Undefined


class Decision(StrEnum):
    REJECT = "reject"
    HOLD = "hold"
    PROMOTE = "promote"


ORDER = (Decision.REJECT, Decision.HOLD, Decision.PROMOTE)


class GateStatus(StrEnum):
    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"


class Reason(StrEnum):
    """Why a decision fell; the sentences stand in `report.view`."""

    GAIN_SHOWN = "gain_shown"  # promote
    SCOPED_GAIN_SHOWN = "scoped_gain_shown"  # promote: for some classes of the traffic only
    GAIN_EXCLUDED = "gain_excluded"  # reject: upper bound below the minimum gain
    GUARD_BROKEN = "guard_broken"  # reject: a guard's bound lies beyond its margin
    FAILED_TO_RUN = "failed_to_run"  # the engine failed twice with it
    FINDING_FORBIDS = "finding_forbids"  # hold
    TOO_FEW_BLOCKS = "too_few_blocks"  # hold
    PRIMARY_UNDECIDED = "primary_undecided"  # hold
    GUARD_UNDECIDED = "guard_undecided"  # hold
    NOT_MEASURED = "not_measured"  # hold
    NOT_PURSUED = "not_pursued"  # hold: cannot reach the best candidate, so no more blocks were spent on it


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition. `ratio` is on the scale where above 1 is better for the candidate; met above `threshold`."""

    name: str  # "primary", "tpot", "output_length", "failed_requests"
    measure: str
    status: GateStatus
    ratio: Estimate  # for failed_requests: the difference of shares, lower is better
    threshold: float
    level: float  # two-sided alpha of the interval, e.g. 0.0125


@dataclass(frozen=True, slots=True)
class CellVerdict:
    """One class of the traffic at the objective's load, judged apart."""

    class_name: str
    status: GateStatus  # met: its gain and its own guards
    ratio: Estimate
    threshold: float
    level: float  # two-sided alpha, by Holm's procedure over the cells still open
    look: int | None = None  # number of complete blocks at which it crossed


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of the traffic for which a gain is shown where it is not for the whole."""

    classes: tuple[str, ...]  # promoted: measured by themselves; empty: none
    to_confirm: tuple[str, ...]  # a wider scope, shown class by class but not measured together; empty: none
    undecided: bool  # more blocks could add a class to it
    cells: tuple[CellVerdict, ...]


@dataclass(frozen=True, slots=True)
class PowerPoint:
    """What the plan could have shown: the chance of a promote if `true_gain` were the truth."""

    true_gain: float
    promote: float
    blocks: float  # on average


@dataclass(frozen=True, slots=True)
class CandidateVerdict:
    candidate: str
    decision: Decision
    reason: Reason
    deciding_gate: str | None
    gates: tuple[Gate, ...]
    look: int | None  # number of complete blocks at which it was decided; None: not yet
    findings: tuple[Finding, ...]  # those that bear on it
    blocks_needed: tuple[int, int] | None = None  # for a hold: range of total blocks that would settle it
    pursued: bool = False  # more blocks could change something, so a run goes on booting it
    scope: Scope | None = None  # None: the whole traffic is promoted, or no class is judged apart


@dataclass(frozen=True, slots=True)
class ObjectiveVerdict:
    objective: str
    load: str
    measure: str
    minimum_gain: float
    decision: Decision
    recommended: str | None  # a promoted candidate: the smallest K of those within noise of the best
    best: str | None  # candidate with the largest estimate, whatever the decision
    candidates: tuple[CandidateVerdict, ...]
    level: float  # two-sided level used per candidate and look
    detectable_gain: float | None  # half-width of the best candidate's interval: what this much data could have shown
    indifference: tuple[str, ...] = ()  # promoted candidates within 3 % of the best of them, smallest K first
    power: tuple[PowerPoint, ...] = ()  # of this plan, with the best candidate's spread


@dataclass(frozen=True, slots=True)
class Verdict:
    study: str
    outcome: Decision  # promote if any objective promotes, else hold if any holds, else reject
    objectives: tuple[ObjectiveVerdict, ...]
    quality: str  # "not measured" until answers are checked
    blocks_complete: int
    blocks_incomplete: int
    looks: tuple[int, ...]
    findings: tuple[Finding, ...]
    fingerprint: dict[str, Any]


def to_json(verdict: Verdict, analysis: Analysis) -> str:
    """Canonical JSON of a verdict and its analysis: sorted keys, no NaN; the same records give the same bytes.

    An interval is `{"estimate", "low", "high", "level", "method", "count"}`, with `"bound": "at least"` or `"at most"`
    where only that side is known; a number that could not be had is `{"undefined": reason, "count": n}`, and a float
    that is not finite is null.
    """
    tree = {"verdict": _plain(verdict), "analysis": _plain(analysis)}
    return json.dumps(tree, sort_keys=True, allow_nan=False, ensure_ascii=False, indent=2) + "\n"


def _plain(value: Any) -> Any:
    plain: Any = value
    if isinstance(value, Undefined):
        plain = {"undefined": value.reason, "count": value.count}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        if isinstance(value, Interval) and not value.bound:
            del plain["bound"]
    elif isinstance(value, dict):
        plain = {str(key): _plain(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        plain = [_plain(item) for item in value]
    elif isinstance(value, float):
        plain = float(value) if math.isfinite(value) else None
    elif value is not None and not isinstance(value, str | int | bool):
        plain = str(value)
    return plain
