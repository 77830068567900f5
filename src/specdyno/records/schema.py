"""What a study remembers: the waist between sockets and statistics.

Owns the typed rows of a study. Everything left of here (engine, load) writes them, everything right of here
(statistics, verdict, report) is a pure function of them. `None` means "not measured", never zero. Names that end in
`_ns` are integers from one host's monotonic clock, `_unix_ns` from its wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from specdyno.records.memory import ArmMemory

SCHEMA_VERSION = 4


class Outcome(StrEnum):
    """How one request ended. Every request that was sent, or tried, has exactly one."""

    FINISHED = "finished"  # natural stop or tool call
    CUT_AT_LIMIT = "cut_at_limit"  # finish_reason length
    TIMED_OUT = "timed_out"
    REFUSED = "refused"  # no connection
    BROKEN_STREAM = "broken_stream"  # closed before the final event
    HTTP_ERROR = "http_error"  # a status other than 200, body kept

    @property
    def done(self) -> bool:
        """Counts as a completed job."""
        return self in (Outcome.FINISHED, Outcome.CUT_AT_LIMIT)


class BootStatus(StrEnum):
    STARTING = "starting"
    READY = "ready"
    COMPLETE = "complete"  # all its windows were measured
    FAILED = "failed"  # the engine did not boot, or died under load: harm
    INTERRUPTED = "interrupted"  # specdyno or the host stopped: to be measured again


class WindowKind(StrEnum):
    WARM_UP = "warm_up"  # unscored
    MIXED = "mixed"  # all classes by share: the verdict on the whole traffic
    CLASS = "class"  # one class alone: explains
    PROBE = "probe"  # all classes by share, at one rate of a search for the largest; several in a boot


class Severity(StrEnum):
    NOTE = "note"  # shown
    DOUBT = "doubt"  # shown with the verdict
    FORBIDS = "forbids"  # no promote while it stands


class FindingCode(StrEnum):
    """Reasons to doubt; their sentences stand in `report.view`."""

    SPECULATION_NOT_ACTIVE = "speculation_not_active"
    DRAFT_TOKENS_NOT_AS_ASKED = "draft_tokens_not_as_asked"
    METHOD_NOT_AS_ASKED = "method_not_as_asked"
    BASELINE_SPECULATES = "baseline_speculates"
    SETTINGS_DIFFER = "settings_differ"
    COUNTERS_UNREADABLE = "counters_unreadable"
    COUNTERS_RESET = "counters_reset"
    FOREIGN_TRAFFIC = "foreign_traffic"
    IDENTITY_BROKEN = "identity_broken"
    USAGE_MISSING = "usage_missing"
    USAGE_ODD = "usage_odd"
    REQUESTS_FAILED = "requests_failed"
    OUTPUT_LENGTH_DIFFERS = "output_length_differs"
    FIRST_POSITION_EXTREME = "first_position_extreme"
    LENGTH_EXTREME = "length_extreme"
    TOO_FEW_BLOCKS = "too_few_blocks"
    BLOCKS_INCOMPLETE = "blocks_incomplete"
    BLOCK_VOID = "block_void"
    ENGINE_FAILED = "engine_failed"
    CLIENT_AT_CEILING = "client_at_ceiling"
    CLOCK_WENT_BACK = "clock_went_back"
    HOST_BUSY = "host_busy"
    A_A_BEYOND_SPREAD = "a_a_beyond_spread"
    NO_FULL_OCCUPANCY = "no_full_occupancy"
    WINDOW_SHORTENED = "window_shortened"
    FORCED_LENGTH = "forced_length"
    SYNTHETIC_ACCEPTANCE = "synthetic_acceptance"
    PROMPTS_DIFFER = "prompts_differ"
    SIMULATED_ENGINE = "simulated_engine"
    PREFIX_HITS_DIFFER = "prefix_hits_differ"
    NOT_STEADY = "not_steady"
    ORDER_DRIFT = "order_drift"
    ENGINE_NOT_RUN_HERE = "engine_not_run_here"
    MEMORY_DIFFERS = "memory_differs"
    SATURATED = "saturated"
    HISTORY_SUPPLIED = "history_supplied"
    EDGE_NOT_FOUND = "edge_not_found"


@dataclass(frozen=True, slots=True)
class Finding:
    """A typed doubt: can only move a verdict towards hold. `place` says where, e.g. `block 2, eagle3-k3, pool`."""

    code: FindingCode
    severity: Severity
    place: str
    detail: str = ""
    arm: str | None = None
    load: str | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """One exposition series as scraped. `value` is None where it was NaN or infinite (bad, not zero)."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float | None


@dataclass(frozen=True, slots=True)
class CounterSample:
    """Cumulative counters of one engine at one moment, in neutral terms. Shapes: one entry per engine (DP rank).

    A field is None where the engine does not export it; a *family* that is absent while the process is up counts as
    not yet used (0) only when a later sample of the same process has it: see `records.deltas`.
    """

    stamp_ns: int
    source: str  # "vllm /metrics", "llama.cpp /metrics", ...
    series: tuple[Series, ...]  # canonical names (records.deltas.CANONICAL), labels without model_name
    process_start: float | None = None  # process_start_time_seconds or a _created stamp
    problems: tuple[str, ...] = ()  # what could not be read


@dataclass(frozen=True, slots=True)
class SpecSteps:
    """Acceptance of one request as the engine reports it with the answer. Names follow AIPerf's record."""

    source: str  # "vllm per-request detailed", "vllm per-request summary", "llama.cpp timings (estimated)", ...
    num_spec_steps: int | None  # drafted steps
    num_draft_tokens: int | None
    num_accepted_draft_tokens: int | None
    num_spec_tokens: int | None  # K in force
    acceptance_histogram: tuple[int, ...] | None = None  # index: accepted drafts in a step
    per_step_accepted: tuple[int, ...] | None = None
    per_step_drafted: tuple[int, ...] | None = None
    estimated: bool = False  # steps derived, not reported
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One exchange, stamped by the client. Chunks are the reads that carried text: `chunk_ns` rises."""

    index: int  # place in the window's prompt list
    prompt_id: str
    prompt_sha256: str
    class_name: str
    intended_ns: int
    sent_ns: int
    outcome: Outcome
    first_byte_ns: int | None = None
    last_byte_ns: int | None = None  # last byte received, or the moment of the failure
    chunk_ns: tuple[int, ...] = ()  # one per event that carried text (content, reasoning or tool call)
    chunk_chars: tuple[int, ...] = ()  # characters of text in that event
    status: int | None = None
    error: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()
    spec: SpecSteps | None = None
    max_tokens: int | None = None
    session: str | None = None  # id of its agent session, unique within the window
    turn: int | None = None  # from 0 within the session
    phase: str | None = None  # what the agent does in this turn
    supplied: int | None = None  # recorded messages and calls in its history that stand in for the engine's own


class ArrivalKind(StrEnum):
    CLOSED = "closed"  # `concurrency` in flight
    OPEN = "open"  # at a rate, whatever is in flight
    TRACE = "trace"  # at the times of a trace
    SESSIONS = "sessions"  # `concurrency` sessions in flight, turn by turn


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a window's requests were meant to arrive. Rates are requests per second."""

    kind: ArrivalKind
    rate: float | None = None  # offered, the mean over the window
    burstiness: float | None = None
    ramp_from: float | None = None
    source: str = ""  # of a trace


@dataclass(frozen=True, slots=True)
class WindowRecord:
    id: int
    boot_id: int
    load: str
    kind: WindowKind
    class_name: str | None
    concurrency: int | None  # in flight in a closed loop, sessions in flight; None: open loop
    planned: int  # requests in its list
    started_ns: int
    ended_ns: int | None  # None: cut off
    before: CounterSample | None = None
    after: CounterSample | None = None
    client_lag_max_ns: int | None = None  # longest delay of the client's own event loop
    host_busy: float | None = None  # share of all cores used by processes other than the engine and the client
    arrival: Arrival | None = None  # None: closed loop


@dataclass(frozen=True, slots=True)
class Identity:
    """What the engine itself reports after its start. None: it does not say."""

    engine: str  # "vllm", "llama.cpp", "simulated"
    version: str | None = None
    model: str | None = None
    speculation: bool | None = None
    method: str | None = None  # neutral name, as resolved by the engine
    draft_tokens: int | None = None  # K in force
    draft: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # resolved configuration, flat, JSON scalars
    source: str = ""  # where this was read
    kv_cache_tokens: int | None = None  # room of its KV cache, in requests of the greatest length
    kv_cache_concurrency: float | None = None  # requests of that length at once


@dataclass(frozen=True, slots=True)
class BootRecord:
    id: int
    block: int  # from 0
    arm: str
    attempt: int  # from 0; the last complete attempt of a block and arm is scored
    position: int  # place in the block's order
    status: BootStatus
    started_ns: int
    started_unix_ns: int
    ready_ns: int | None = None
    ended_ns: int | None = None
    ended_unix_ns: int | None = None
    command: tuple[str, ...] = ()
    identity: Identity | None = None
    failure: str = ""
    log_path: str = ""  # relative to the study
    pid: int | None = None
    pid_started: float | None = None
    memory_bytes: int | None = None  # resident memory of the engine's process group after the windows


@dataclass(frozen=True)
class Requests:
    """Every request of a study as columns of equal length N; the text stays in the store.

    `float` columns hold NaN where not measured; `int64` stamps hold -1. `class_code` indexes `class_names`,
    `outcome_code` indexes `list(Outcome)`. `tokens` are the server's completion tokens.
    """

    window_id: np.ndarray  # int64
    index: np.ndarray  # int64
    class_code: np.ndarray  # int16
    outcome_code: np.ndarray  # int8
    intended_ns: np.ndarray  # int64
    sent_ns: np.ndarray  # int64
    first_text_ns: np.ndarray  # int64
    last_text_ns: np.ndarray  # int64
    ended_ns: np.ndarray  # int64: last byte, or the failure
    longest_gap_ns: np.ndarray  # int64
    chunks: np.ndarray  # int64: events that carried text
    tokens: np.ndarray  # float64
    prompt_tokens: np.ndarray  # float64
    cached_tokens: np.ndarray  # float64
    spec_steps: np.ndarray  # float64: drafted steps
    spec_drafted: np.ndarray  # float64
    spec_accepted: np.ndarray  # float64
    class_names: tuple[str, ...]
    # Row r's counts over steps that accepted at least i+1 tokens / proposed at least i+1 and had accepted i; (N, Kmax)
    spec_reached: np.ndarray  # float64 n_i
    spec_at_risk: np.ndarray  # float64 d_i; NaN where the engine reports no per-step drafted counts
    spec_source: tuple[str, ...] = ()  # distinct sources seen
    prompt_ids: tuple[str, ...] = ()  # distinct, in order of first use
    prompt_code: np.ndarray | None = None  # int64 into prompt_ids
    sessions: tuple[str, ...] = ()  # distinct
    session_code: np.ndarray | None = None  # int64 into sessions, -1: none
    turn: np.ndarray | None = None  # int64, -1: none
    phases: tuple[str, ...] = ()  # distinct
    phase_code: np.ndarray | None = None  # int16 into phases, -1: none
    supplied: np.ndarray | None = None  # int64, -1: not a turn with a history of the engine's own answers
    errors: tuple[str, ...] = ()  # distinct, shortened: what failed requests were told
    error_code: np.ndarray | None = None  # int64 into errors, -1: none

    def __len__(self) -> int:
        return len(self.window_id)

    def error_of(self, row: int) -> str:
        """What a failed request was told; empty where nothing is known."""
        code = -1 if self.error_code is None else int(self.error_code[row])
        return self.errors[code] if code >= 0 else ""


@dataclass(frozen=True, slots=True)
class StudyHeader:
    """Explains the record: the plan with every value in force, where and with what it was measured."""

    plan: dict[str, Any]  # Plan.model_dump(mode="json")
    plan_yaml: str
    plan_sha256: str  # of the canonical JSON of `plan`
    created_unix_ns: int
    provenance: dict[str, Any]  # specdyno version, python, host, CPU, memory, packages
    sizing: dict[str, int] = field(default_factory=dict)  # load name -> scored requests per mixed window
    memory: tuple[ArmMemory, ...] = ()  # what each arm was expected to take; none where it was not worked out


@dataclass(frozen=True)
class StudyRecords:
    """All that `judge` may look at."""

    header: StudyHeader
    boots: tuple[BootRecord, ...]
    windows: tuple[WindowRecord, ...]
    requests: Requests
    findings: tuple[Finding, ...] = ()  # raised while measuring
    # (window_id, index) -> chunk stamps and sizes, only for requests that were in flight at a border of a span
    border_chunks: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
