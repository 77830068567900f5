"""Studies with a known truth: whole records as an engine and a client would have left them, without either.

`make_study` draws every boot, window, request and counter of a study from stated acceptance, speed-ups and spreads, so
that tests know what the statistics should find. Time runs on one simulated monotonic clock. The speed-up of a
candidate holds for the work of a window as a whole: step time = plain step time x realised tokens per step / speed-up.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specdyno.plan.schema import Arm, Load, Plan, Role
from specdyno.records.deltas import POSITION, Family
from specdyno.records.schema import (
    BootRecord,
    BootStatus,
    CounterSample,
    Identity,
    Outcome,
    Requests,
    Series,
    StudyHeader,
    StudyRecords,
    WindowKind,
    WindowRecord,
)

ByClass = Mapping[str, float]
Speedups = Mapping[str, float | Mapping[str, float | ByClass]]

DEFAULT_PLAN: dict[str, Any] = {
    "study": "synthetic",
    "seed": 7,
    "target": {"model": "org/target"},
    "engine": {"kind": "simulated"},
    "candidates": [
        {"method": "eagle3", "draft": "org/draft", "draft_tokens": [1, 3]},
        {"method": "ngram", "draft_tokens": [3]},
    ],
    "workload": {
        "sampling": {"temperature": 0.0},
        "classes": [
            {"name": "code", "prompts": "builtin:code", "share": 0.5, "max_tokens": 96},
            {"name": "chat", "prompts": "builtin:chat", "share": 0.5, "max_tokens": 96},
        ],
    },
    "loads": [
        {"name": "interactive", "concurrency": 1, "window": "20s"},
        {"name": "pool", "concurrency": 4, "window": "20s", "class_windows": True},
    ],
    "objectives": [
        {"name": "interactive", "load": "interactive", "measure": "time_per_job"},
        {"name": "background pool", "load": "pool", "measure": "jobs_per_s"},
    ],
}
DEFAULT_SPEEDUPS: Speedups = {
    "eagle3-k1": {"interactive": 1.30, "pool": 1.15},
    "eagle3-k3": {"interactive": 1.50, "pool": 0.85},
    "ngram-k3": 0.90,
}
MS = 1_000_000
HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true of the simulated engine and host. Rates are conditional, c_1 first; the last one is repeated."""

    acceptance: Mapping[str, tuple[float, ...]] = field(
        default_factory=lambda: {"code": (0.80, 0.70, 0.60), "chat": (0.55, 0.45, 0.35)}
    )
    coverage: Mapping[str, float] = field(default_factory=lambda: {"ngram": 0.4})  # share of drafted steps, by method
    boot_spread: float = 0.01  # standard deviation of the log of a boot's pace
    requests: int = 24  # scored requests per mixed window
    tokens: float = 60.0  # mean output tokens of a job
    ttft_ms: float = 20.0
    step_ms: float = 10.0  # plain decode step at concurrency 1; grows by a tenth per further request in flight
    length_factor: Mapping[str, float] = field(default_factory=dict)  # arm -> factor on output tokens
    failed_share: Mapping[str, float] = field(default_factory=dict)  # arm -> share of requests that fail
    broken_boots: frozenset[tuple[int, str, int]] = frozenset()  # (block, arm, attempt) where the engine dies
    per_request: bool = True  # the engine sends ordered per-step counts with each answer
    counters: bool = True
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # arm -> resolved settings that differ


@dataclass
class _Rows:
    """Columns of `Requests` while they grow."""

    columns: dict[str, list[Any]] = field(default_factory=dict)
    reached: list[np.ndarray] = field(default_factory=list)
    at_risk: list[np.ndarray] = field(default_factory=list)
    border: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    prompts: dict[str, int] = field(default_factory=dict)

    def add(self, **values: Any) -> None:
        for name, value in values.items():
            self.columns.setdefault(name, []).append(value)


@dataclass
class _Engine:
    """Cumulative counters of one simulated process."""

    k: int
    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    generated: int = 0
    steps: int = 0
    first: int = 0
    per_position: list[int] = field(default_factory=list)

    def sample(self, stamp_ns: int) -> CounterSample:
        values = {
            Family.GENERATION_TOKENS: self.generated,
            Family.DECODE_STEPS: self.steps,
            Family.FIRST_TOKENS: self.first,
        }
        if self.k:
            values |= {
                Family.SPEC_DRAFTS: self.drafts,
                Family.SPEC_DRAFT_TOKENS: self.draft_tokens,
                Family.SPEC_ACCEPTED_TOKENS: self.accepted,
            }
        series = [Series(name.value, (), float(value)) for name, value in values.items()]
        series += [
            Series(Family.SPEC_ACCEPTED_PER_POSITION.value, ((POSITION, str(place)),), float(value))
            for place, value in enumerate(self.per_position)
        ]
        return CounterSample(stamp_ns, "simulated", tuple(series), process_start=1.0)


@dataclass(frozen=True, slots=True)
class _Job:
    prompt_id: str
    class_name: str
    tokens: int
    outcome: Outcome
    accepted: np.ndarray  # accepted drafts of each decode step
    drafted: np.ndarray  # proposed drafts of each decode step


def make_study(
    plan_dict: Mapping[str, Any] | None = None,
    *,
    blocks: int = 4,
    speedups: Speedups | None = None,
    seed: int = 1,
    truth: Truth | None = None,
) -> StudyRecords:
    """Records of a finished study. `speedups` maps arm -> speed-up, or arm -> {load: speed-up}, or {load: {class:
    speed-up}}; absent arms get 1.

    >>> len({boot.block for boot in make_study(blocks=4).boots})
    4
    """
    plan = Plan.model_validate(dict(plan_dict) if plan_dict is not None else DEFAULT_PLAN)
    return _Study(plan, DEFAULT_SPEEDUPS if speedups is None else speedups, truth or Truth(), seed).run(blocks)


class _Study:
    def __init__(self, plan: Plan, speedups: Speedups, truth: Truth, seed: int) -> None:
        self.plan, self.speedups, self.truth, self.seed = plan, speedups, truth, seed
        self.rng = np.random.default_rng(seed)
        self.now = 1_000 * MS
        self.boots: list[BootRecord] = []
        self.windows: list[WindowRecord] = []
        self.rows = _Rows()

    def run(self, blocks: int) -> StudyRecords:
        for block in range(blocks):
            order = [self.plan.arms()[place] for place in self.rng.permutation(len(self.plan.arms()))]
            for position, arm in enumerate(order):
                attempt = 0
                while not self._boot(block, arm, attempt=attempt, position=position) and attempt == 0:
                    attempt += 1
        header = StudyHeader(
            plan=self.plan.model_dump(mode="json"),
            plan_yaml="",
            plan_sha256=hashlib.sha256(repr(self.plan).encode()).hexdigest(),
            created_unix_ns=0,
            provenance={"specdyno": "test"},
            sizing={load.name: self.truth.requests for load in self.plan.loads},
        )
        return StudyRecords(
            header, tuple(self.boots), tuple(self.windows), self._requests(), border_chunks=self.rows.border
        )

    def _boot(self, block: int, arm: Arm, *, attempt: int, position: int) -> bool:
        started, boot_id = self.now, len(self.boots) + 1
        dies = (block, arm.name, attempt) in self.truth.broken_boots
        self.now += 5_000 * MS
        ready = self.now
        pace = float(np.exp(self.rng.normal(0.0, self.truth.boot_spread)))
        if not dies:
            engine = _Engine(arm.draft_tokens or 0, per_position=[0] * (arm.draft_tokens or 0))
            self._windows(boot_id, block, arm=arm, engine=engine, pace=pace)
        self.now += 1_000 * MS
        self.boots.append(
            BootRecord(
                boot_id,
                block,
                arm.name,
                attempt,
                position,
                BootStatus.FAILED if dies else BootStatus.COMPLETE,
                started,
                started,
                ready_ns=None if dies else ready,
                ended_ns=self.now,
                ended_unix_ns=self.now,
                identity=self._identity(arm),
                failure="the engine died" if dies else "",
                memory_bytes=500_000_000,
            )
        )
        return not dies

    def _identity(self, arm: Arm) -> Identity:
        settings: dict[str, Any] = {"dtype": "bfloat16", "max_num_seqs": 32, "num_gpu_blocks": 1000}
        if arm.role is Role.CANDIDATE:
            settings["num_gpu_blocks"] = 900
        settings |= self.truth.settings.get(arm.name, {})
        return Identity(
            "simulated",
            version="1",
            model=self.plan.target.model,
            speculation=arm.role is Role.CANDIDATE,
            method=arm.method.value if arm.method else None,
            draft_tokens=arm.draft_tokens,
            draft=arm.draft,
            settings=settings,
            source="generator",
        )

    def _windows(self, boot_id: int, block: int, *, arm: Arm, engine: _Engine, pace: float) -> None:
        for load in self.plan.loads:
            kinds: list[tuple[WindowKind, str | None]] = [(WindowKind.WARM_UP, None), (WindowKind.MIXED, None)]
            if load.class_windows:
                kinds += [(WindowKind.CLASS, part.name) for part in self.plan.workload.classes]
            for kind, class_name in kinds:
                jobs = self._jobs(block, arm, load=load, kind=kind, class_name=class_name)
                self._window(jobs, boot_id, load=load, kind=(kind, class_name), engine=(engine, arm, pace))

    def _jobs(self, block: int, arm: Arm, *, load: Load, kind: WindowKind, class_name: str | None) -> list[_Job]:
        """The window's list: lengths depend on block, load and place only, so every arm sees the same prompts."""
        count = 4 if kind is WindowKind.WARM_UP else self.truth.requests if class_name is None else 8
        place = f"{self.seed}/{block}/{load.name}/{kind}/{class_name}"
        lists = np.random.default_rng(int.from_bytes(hashlib.sha256(place.encode()).digest()[:8], "big"))
        parts = self.plan.workload.classes
        names = [parts[i].name for i in lists.choice(len(parts), size=count, p=[part.share for part in parts])]
        lengths = 2 + lists.poisson(max(self.truth.tokens - 2, 0), size=count)
        jobs = []
        for index, (name, length) in enumerate(zip(names, lengths, strict=True)):
            mine = class_name or name
            limit = next(part.max_tokens for part in parts if part.name == mine)
            tokens = min(max(2, round(length * self.truth.length_factor.get(arm.name, 1.0))), limit)
            failed = self.rng.random() < self.truth.failed_share.get(arm.name, 0.0)
            outcome = Outcome.CUT_AT_LIMIT if tokens == limit else Outcome.FINISHED
            accepted, drafted = self._steps(arm, mine, tokens)
            prompt = f"{mine}-{place}-{index}"
            jobs.append(_Job(prompt, mine, tokens, Outcome.BROKEN_STREAM if failed else outcome, accepted, drafted))
        return jobs

    def _steps(self, arm: Arm, class_name: str, tokens: int) -> tuple[np.ndarray, np.ndarray]:
        k = arm.draft_tokens or 0
        if k == 0:
            zero = np.zeros(tokens - 1, dtype=int)
            return zero, zero
        rates = self.truth.acceptance.get(class_name, (0.6,))
        rates = np.array((rates + (rates[-1],) * k)[:k])
        accepted = np.cumprod(self.rng.random((tokens, k)) < rates, axis=1).sum(axis=1)
        drafted = np.where(self.rng.random(tokens) < self.truth.coverage.get(str(arm.method), 1.0), k, 0)
        accepted = np.where(drafted > 0, accepted, 0)
        steps = int(np.searchsorted(np.cumsum(accepted + 1), tokens - 1)) + 1
        return accepted[:steps], drafted[:steps]

    def _window(
        self,
        jobs: list[_Job],
        boot_id: int,
        *,
        load: Load,
        kind: tuple[WindowKind, str | None],
        engine: tuple[_Engine, Arm, float],
    ) -> None:
        counters, arm, pace = engine
        window_id = len(self.windows) + 1
        before = counters.sample(self.now) if self.truth.counters else None
        started = self.now + MS
        scale = pace / self._speedup(arm.name, load.name, kind[1])
        plain = self.truth.step_ms * (1 + 0.1 * (load.concurrency - 1))
        per_step = sum(job.tokens - 1 for job in jobs) / sum(len(job.accepted) for job in jobs)
        step_ns, ttft_ns = plain * scale * per_step * MS, self.truth.ttft_ms * scale * MS
        free = [float(started)] * load.concurrency
        for index, job in enumerate(jobs):
            sent = heapq.heappop(free)
            heapq.heappush(free, self._request(job, sent, at=(window_id, index), paces=(ttft_ns, step_ns)))
            self._count(counters, job)
        ended = int(max(free)) + MS
        self.now = ended + MS
        after = counters.sample(self.now) if self.truth.counters else None
        self.windows.append(
            WindowRecord(
                window_id, boot_id, load.name, *kind, load.concurrency, len(jobs), started, ended, before, after,
                client_lag_max_ns=MS, host_busy=0.01,
            )
        )  # fmt: skip

    def _speedup(self, arm: str, load: str, class_name: str | None) -> float:
        """Of a class in its own window; of mixed traffic the time that its jobs take together."""
        speedup = self.speedups.get(arm, 1.0)
        speedup = speedup if isinstance(speedup, float | int) else speedup.get(load, 1.0)
        if isinstance(speedup, float | int):
            return float(speedup)
        if class_name is not None:
            return speedup[class_name]
        return 1 / sum(part.share / speedup[part.name] for part in self.plan.workload.classes)

    @staticmethod
    def _count(engine: _Engine, job: _Job) -> None:
        engine.generated += job.tokens
        engine.first += 1
        engine.steps += len(job.accepted)
        engine.drafts += int((job.drafted > 0).sum())
        engine.draft_tokens += int(job.drafted.sum())
        engine.accepted += int(job.accepted.sum())
        engine.per_position = [n + int((job.accepted > i).sum()) for i, n in enumerate(engine.per_position)]

    def _request(self, job: _Job, sent: float, *, at: tuple[int, int], paces: tuple[float, float]) -> float:
        """Adds the row; returns the moment the slot is free again. A failed request breaks half-way."""
        ttft_ns, step_ns = paces
        failed = not job.outcome.done
        sizes = np.concatenate(([1], job.accepted + 1))
        sizes[-1] -= max(0, int(sizes.sum()) - job.tokens)
        stamps = (sent + ttft_ns + step_ns * np.arange(len(sizes))).astype(np.int64)
        if failed:
            half = max(1, len(sizes) // 2)
            stamps, sizes = stamps[:half], sizes[:half]
        ended = int(stamps[-1]) + 1000
        self.rows.border[at] = (stamps, sizes * 4)
        spec = self.truth.per_request and not failed and bool(job.drafted.any())
        prompts = self.rows.prompts
        self.rows.add(
            window_id=at[0], index=at[1], class_code=self._class_code(job.class_name),
            outcome_code=list(Outcome).index(job.outcome), intended_ns=int(sent), sent_ns=int(sent),
            first_text_ns=int(stamps[0]), last_text_ns=int(stamps[-1]), ended_ns=ended,
            longest_gap_ns=int(np.diff(stamps).max()) if len(stamps) > 1 else -1, chunks=len(stamps),
            tokens=np.nan if failed else float(job.tokens), prompt_tokens=100.0, cached_tokens=0.0,
            spec_steps=float((job.drafted > 0).sum()) if spec else np.nan,
            spec_drafted=float(job.drafted.sum()) if spec else np.nan,
            spec_accepted=float(job.accepted.sum()) if spec else np.nan,
            prompt_code=prompts.setdefault(job.prompt_id, len(prompts)),
        )  # fmt: skip
        kmax = max((arm.draft_tokens or 0) for arm in self.plan.arms())
        depth = np.arange(kmax)
        reached = (job.accepted[:, None] > depth).sum(axis=0).astype(float)
        at_risk = ((job.drafted[:, None] > depth) & (job.accepted[:, None] >= depth)).sum(axis=0).astype(float)
        self.rows.reached.append(reached if spec else np.full(kmax, np.nan))
        self.rows.at_risk.append(at_risk if spec else np.full(kmax, np.nan))
        return float(ended)

    def _class_code(self, name: str) -> int:
        return [part.name for part in self.plan.workload.classes].index(name)

    def _requests(self) -> Requests:
        floats = {"tokens", "prompt_tokens", "cached_tokens", "spec_steps", "spec_drafted", "spec_accepted"}
        small = {"class_code": np.int16, "outcome_code": np.int8}
        names = [name for name in Requests.__dataclass_fields__ if name in _COLUMNS]
        columns = {
            name: np.array(
                self.rows.columns.get(name, []), dtype=np.float64 if name in floats else small.get(name, np.int64)
            )
            for name in names
        }
        kmax = max((arm.draft_tokens or 0) for arm in self.plan.arms())
        return Requests(
            **columns,
            class_names=tuple(part.name for part in self.plan.workload.classes),
            spec_reached=np.array(self.rows.reached).reshape(-1, kmax),
            spec_at_risk=np.array(self.rows.at_risk).reshape(-1, kmax),
            spec_source=("vllm per-request detailed",) if self.truth.per_request else (),
            prompt_ids=tuple(self.rows.prompts),
        )


_COLUMNS = frozenset(
    {
        "window_id", "index", "class_code", "outcome_code", "intended_ns", "sent_ns", "first_text_ns", "last_text_ns",
        "ended_ns", "longest_gap_ns", "chunks", "tokens", "prompt_tokens", "cached_tokens", "spec_steps",
        "spec_drafted", "spec_accepted", "prompt_code",
    }
)  # fmt: skip
