"""Records to estimates, whole: what the verdict and the report are made of.

`statistics.analyse.analyse` is pure and deterministic: same records, same analysis, byte for byte. It decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from specdyno.records.schema import Finding
from specdyno.statistics.intervals import Estimate, Interval

Bound = tuple[int, float | None, float | None]
"""A block with what its value is not below, and not above; None: not known."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Acceptance of one arm at one load, for one class or (class_name None) the whole mixed traffic.

    `joint[i]` is q_(i+1): drafted steps that accepted at least i+1 tokens; `conditional[i]` is c_(i+1): accepted at
    i+1 given that i+1 was proposed and i accepted. Where a position was never reached the entry is Undefined.
    """

    arm: str
    load: str
    class_name: str | None
    source: str  # "per-request detailed", "per-request summary", "counters", "timings (estimated)"
    draft_tokens: int | None  # K in force
    drafted_steps: float | None
    drafted_tokens: float | None
    accepted_tokens: float | None
    boots: int
    requests: int
    joint: tuple[Estimate, ...]
    conditional: tuple[Estimate, ...]
    mean_accepted_length: Estimate
    rate: Estimate
    coverage: Estimate  # drafted steps / all decode steps
    tokens_per_step: Estimate  # (generated - first tokens) / all decode steps
    survival: tuple[Estimate, ...] = ()  # p_i, joint acceptance corrected for drafts of varying length


@dataclass(frozen=True, slots=True)
class Level:
    """One measure of one arm at one load: its value over the boots of scored blocks, and by block."""

    arm: str
    load: str
    class_name: str | None  # None: mixed traffic
    measure: str  # key of statistics.measures.MEASURES
    value: Estimate
    by_block: tuple[tuple[int, float], ...]  # (block, value)
    bounds: tuple[Bound, ...] = ()  # of a search: what each boot's value lies between, None where it found no edge


@dataclass(frozen=True, slots=True)
class Contrast:
    """Candidate against baseline, paired by block. y_b = d * log(candidate / baseline): positive is better.

    `ratio` is exp of the mean of y with its t interval: above 1 always means better for the candidate.
    """

    candidate: str
    load: str
    class_name: str | None
    measure: str
    ratio: Estimate
    by_block: tuple[tuple[int, float], ...]  # (block, y_b)
    spread: float | None  # s of y_b, None below two blocks
    exploratory: bool  # True: shown, never decides
    bounds: tuple[Bound, ...] = ()  # of a search: what each y_b lies between, None where a side is not known


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """Totals of one arm at one load over scored windows, for the table and the exported keys."""

    arm: str
    load: str
    class_name: str | None
    boots: int
    requests: int
    done: int
    failed: int
    outcomes: tuple[tuple[str, int], ...]
    prompt_tokens: float | None
    output_tokens: float | None
    duration_s: float  # sum of the scored windows, first send to last byte
    distinct_prompts: int
    # name ("ttft", "tpot", "itl", "e2el") -> (("mean", ms), ("median", ms), ("std", ms), ("p95", ms), ("p99", ms));
    # a quantile without enough requests is absent. itl is the gap between chunks: a step time, not per token.
    latency_ms: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]


@dataclass(frozen=True, slots=True)
class BlockedCounts:
    """Requests of one arm's mixed window in one scored block, and how many of them failed."""

    arm: str
    load: str
    block: int
    requests: int
    failed: int


@dataclass(frozen=True, slots=True)
class Drift:
    """What one place later in a block's order does to a measure, in every arm alike: a log ratio per place."""

    load: str
    measure: str
    per_position: Estimate  # below 0: later boots are worse


@dataclass(frozen=True, slots=True)
class NoiseBudget:
    """Where the spread of y_b comes from at one load: standard deviations on logs; None where it cannot be told."""

    candidate: str
    load: str
    measure: str
    total: float  # s of y_b
    prompts: float | None  # the draw of prompts, which both arms share, so that it cancels: no part of the total
    window: float | None  # requests within a boot: what a longer window would take away
    boot: float | None  # what is left: restarts of the engine; None where windows explain it all


class Trend(StrEnum):
    """What a ladder shows of one candidate and class."""

    CROSSES = "crosses"  # pays below, loses above
    PAYS = "pays"  # better at every rung
    LOSES = "loses"  # worse at every rung
    MIXED = "mixed"  # falls through 0 and rises again, or only rises: no single crossover
    UNDECIDED = "undecided"  # not measured, or too few blocks


@dataclass(frozen=True, slots=True)
class Rung:
    """One concurrency with the candidate's ratio there; above 1 is better."""

    concurrency: int
    contrast: Contrast


@dataclass(frozen=True, slots=True)
class Ladder:
    """One candidate's ratios over concurrency, for one class (None: all traffic). Concurrencies are requests in flight.

    `crossover` is the estimate, `low` and `high` the interval at `LEVEL`; `high` None: not below the last rung, `low`
    None: perhaps below the first.
    """

    candidate: str
    ladder: str
    class_name: str | None
    rungs: tuple[Rung, ...]
    trend: Trend
    crossover: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def pays_up_to(self) -> int | None:
        """The largest rung up to which every rung's interval lies above 1; None where not even the first does."""
        shown = None
        for rung in self.rungs:
            ratio = rung.contrast.ratio
            if not isinstance(ratio, Interval) or ratio.low <= 1:
                break
            shown = rung.concurrency
        return shown


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """One arm's turns of one phase (`turn` None) or of one place in the session (`phase` None), over all boots.

    Shares are fractions, times seconds; None: not measured.
    """

    arm: str
    load: str
    phase: str | None
    turn: int | None  # from 0; LATE stands for all from there on
    requests: int
    done: int
    output_tokens: float | None
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    cached_share: float | None  # prompt tokens that came from the prefix cache / prompt tokens
    mean_accepted_length: Estimate
    rate: Estimate  # accepted / drafted tokens
    joint: tuple[Estimate, ...]  # q_i of these turns
    drafted_steps: float | None
    boots: int  # that had such turns


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """One window of an open loop. Rates are requests per second; None: not measured, or no service level."""

    arm: str
    load: str
    block: int
    search: bool  # a step of a search for the largest rate
    planned_per_s: float | None
    offered_per_s: float | None  # by the intended sends
    sent_per_s: float | None
    achieved_per_s: float | None  # done while load was offered
    late_p95_s: float  # actual send after the intended one
    in_flight: float | None  # mean over the steady part
    saturated: str  # "yes", "no", "unknown"
    attained: float | None  # share of the requests that met the service level
    carried: bool | None  # the step of a search: attained, and not saturated


@dataclass(frozen=True, slots=True)
class BlockState:
    index: int
    complete: bool
    void: bool
    reason: str
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Analysis:
    blocks: tuple[BlockState, ...]
    arms: tuple[str, ...]  # baseline first
    loads: tuple[str, ...]
    classes: tuple[str, ...]
    curves: tuple[Curve, ...]
    levels: tuple[Level, ...]
    contrasts: tuple[Contrast, ...]
    summaries: tuple[ArmSummary, ...]
    findings: tuple[Finding, ...]  # those of the records and those of the audit
    # (setting, arm, baseline value, arm value, consequence of speculation)
    settings_differences: tuple[tuple[str, str, str, str, bool], ...]
    outcome_counts: tuple[BlockedCounts, ...] = ()
    drifts: tuple[Drift, ...] = ()
    noise: tuple[NoiseBudget, ...] = ()
    paced_loads: tuple[str, ...] = ()  # whose throughput the arrivals set, or pauses: it says nothing of a step's cost
    ladders: tuple[Ladder, ...] = ()
    phases: tuple[PhaseSummary, ...] = ()
    open_windows: tuple[OpenWindow, ...] = ()
