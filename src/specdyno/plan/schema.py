"""The plan: typed, frozen, every key documented, unknown keys refused.

Owns the shape of `plan.yaml` and the arms that follow from it. Reads no files (see `plan.parse`). Durations are kept
in seconds, shares and margins as fractions; `"20m"`, `"5%"` and `"0.5pp"` are spellings of the file only.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from specdyno.plan.misfits import Parts, misfits
from specdyno.plan.spelling import (
    Duration,
    EnvironmentText,
    Flag,
    Fraction,
    Number,
    Switch,
    VariableName,
    Whole,
    duration_s,
    fraction,
)

__all__ = [
    "A_A",
    "BASELINE",
    "NEEDS_DRAFT",
    "TAKES_NO_DRAFT",
    "Arm",
    "Budget",
    "Candidate",
    "Engine",
    "EngineKind",
    "Experiment",
    "Guards",
    "Load",
    "MeasureName",
    "Method",
    "Objective",
    "Plan",
    "Role",
    "Sampling",
    "Target",
    "TrafficClass",
    "Workload",
    "duration_s",
    "fraction",
]


DraftLength = Annotated[Whole, Field(ge=1, le=128)]
BlockCount = Annotated[Whole, Field(ge=1, le=100)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)


class Method(StrEnum):
    """Engine-neutral names of the ways to draft."""

    NGRAM = "ngram"
    SUFFIX = "suffix"
    DRAFT_MODEL = "draft_model"
    PARD = "pard"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MTP = "mtp"
    GEMMA4_MTP = "gemma4_mtp"
    DFLASH = "dflash"
    DSPARK = "dspark"
    MEDUSA = "medusa"


class Target(_Part):
    model: str = Field(
        min_length=1, description="Hub id, local folder or GGUF file of the target model.", examples=["org/model"]
    )
    revision: str | None = Field(default=None, description="Hub revision; null means the engine's default.")


class EngineKind(StrEnum):
    VLLM = "vllm"
    LLAMACPP = "llamacpp"
    SIMULATED = "simulated"


class Engine(_Part):
    kind: EngineKind = Field(description="Which adapter: vllm, llamacpp or simulated.", examples=["vllm"])
    command: tuple[str, ...] = Field(
        default=(),
        description='How the engine is started, as a list; "{python}" is this interpreter. Empty: the usual one.',
        examples=['["{python}", -m, vllm.entrypoints.openai.api_server]'],
    )
    args: dict[str, Flag] = Field(
        default_factory=dict,
        description="Flags for every arm, without the leading dashes. true or null: a bare flag.",
        examples=["{max-num-seqs: 32}"],
    )
    env: dict[str, EnvironmentText] = Field(
        default_factory=dict,
        description="Environment variables added for the engine.",
        examples=['{VLLM_NO_USAGE_STATS: "1"}'],
    )
    ready_timeout: Duration = Field(
        default=1200.0, description="Longest wait from start to the first healthy answer.", examples=["20m"]
    )
    request_timeout: Duration = Field(default=300.0, description="Longest time for one request.", examples=["5m"])
    api_key_env: VariableName | None = Field(
        default=None,
        description="Name of the environment variable that holds the API key.",
        examples=["ENGINE_API_KEY"],
    )


class Candidate(_Part):
    method: Method = Field(description="How tokens are drafted.", examples=["eagle3"])
    draft: str | None = Field(
        default=None,
        description="Hub id or folder of the draft; none for ngram, suffix and native mtp.",
        examples=["org/draft"],
    )
    draft_tokens: tuple[DraftLength, ...] = Field(
        min_length=1, description="Draft lengths K to measure; one arm each.", examples=["[1, 3]"]
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Further keys of the method (lookup sizes, draft TP, draft sampling).",
        examples=["{prompt_lookup_max: 4}"],
    )

    @model_validator(mode="before")
    @classmethod
    def _one_length_is_a_list(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("draft_tokens"), int):
            return {**data, "draft_tokens": [data["draft_tokens"]]}
        return data

    @property
    def needs_draft(self) -> bool:
        return self.method in NEEDS_DRAFT

    @property
    def takes_no_draft(self) -> bool:
        return self.method in TAKES_NO_DRAFT


class Sampling(_Part):
    temperature: Number = Field(ge=0, le=2, description="No default: state what production uses.", examples=["0.0"])
    top_p: Number | None = Field(
        default=None, gt=0, le=1, description="Nucleus sampling; null: not sent.", examples=["0.95"]
    )
    stop: tuple[str, ...] | None = Field(
        default=None, description="Stop strings; null: not sent.", examples=['["###"]']
    )
    extra_body: dict[str, Any] = Field(
        default_factory=dict, description="Further keys of every request body.", examples=["{top_k: 20}"]
    )


class TrafficClass(_Part):
    name: str = Field(
        min_length=1,
        max_length=40,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]*$",
        description="Name of the class, as the report shows it.",
        examples=["code"],
    )
    prompts: str = Field(
        min_length=1,
        description="builtin:NAME or a path to a prompt file, relative to the plan.",
        examples=["builtin:code"],
    )
    share: Fraction = Field(
        gt=0, description="Share of requests; the shares of all classes add up to 1.", examples=["0.5"]
    )
    max_tokens: Whole = Field(ge=1, le=1_000_000, description="Limit of output tokens per request.", examples=["256"])


class Workload(_Part):
    sampling: Sampling = Field(
        description="How the target samples; the same in every arm.", examples=["{temperature: 0.0}"]
    )
    classes: tuple[TrafficClass, ...] = Field(
        min_length=1,
        description="Kinds of traffic.",
        examples=["[{name: code, prompts: builtin:code, share: 1, max_tokens: 256}]"],
    )


class Load(_Part):
    name: str = Field(
        min_length=1,
        max_length=40,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]*$",
        description="Name of the load; objectives refer to it.",
        examples=["pool"],
    )
    concurrency: Whole = Field(ge=1, le=100_000, description="Requests in flight (closed loop).", examples=["16"])
    window: Duration = Field(
        description="How long one window of the baseline should last; the prompt list is sized from it once per study.",
        examples=["60s"],
    )
    requests: Whole | None = Field(
        default=None, ge=1, description="Exact number of scored requests, instead of sizing.", examples=["200"]
    )
    class_windows: Switch = Field(
        default=False,
        description="Also one window of each class alone; an objective may then promote single classes (its scopes).",
        examples=["true"],
    )


class MeasureName(StrEnum):
    """Measures an objective may be decided by; directions stand in `statistics.measures`."""

    TIME_PER_JOB = "time_per_job"
    JOBS_PER_S = "jobs_per_s"
    OUTPUT_TOKENS_PER_S = "output_tokens_per_s"


class Objective(_Part):
    name: str = Field(min_length=1, max_length=60, description="Name of the objective.", examples=["background pool"])
    load: str = Field(description="Name of a load of this plan.", examples=["pool"])
    measure: MeasureName = Field(
        description="time_per_job, jobs_per_s or output_tokens_per_s.", examples=["jobs_per_s"]
    )
    minimum_gain: Fraction = Field(default=0.05, description="Smallest gain worth promoting.", examples=["5%"])
    scopes: Switch = Field(
        default=True,
        description="Where the load has class windows: promote single classes if the whole traffic is not. "
        "Takes a fifth of the allowed error.",
        examples=["false"],
    )


class Guards(_Part):
    tpot: Fraction | None = Field(
        default=0.05,
        description="Largest rise of mean TPOT; binds where the primary is throughput. null: off.",
        examples=["5%"],
    )
    failed_requests: Fraction | None = Field(
        default=0.005, description="Largest rise of the share of failed requests. null: off.", examples=["0.5pp"]
    )
    output_length: Fraction | None = Field(
        default=0.03, description="Largest change of output tokens per job, either way. null: off.", examples=["3%"]
    )


class Experiment(_Part):
    looks: tuple[BlockCount, ...] = Field(
        default=(4, 6, 8, 12),
        min_length=1,
        description="Numbers of complete blocks at which the study may decide.",
        examples=["[4, 6, 8, 12]"],
    )
    a_a: Switch = Field(
        default=False,
        description="Also boot the baseline twice per block and compare it with itself.",
        examples=["true"],
    )
    max_block_span: Duration = Field(
        default=21600.0, description="A block whose arms lie further apart is void.", examples=["6h"]
    )
    accept_differences: tuple[str, ...] = Field(
        default=(),
        description="Names of settings that may differ between the arms without forbidding a promote.",
        examples=["[max_num_batched_tokens]"],
    )


class Budget(_Part):
    time: Duration | None = Field(
        default=None,
        description="No new block starts that would end after this much time. null: no limit.",
        examples=["2h"],
    )


class Plan(_Part):
    study: str = Field(
        min_length=1,
        max_length=80,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]*$",
        description="Name of the study, as the report shows it.",
        examples=["agent-pool"],
    )
    seed: Whole = Field(
        default=1,
        ge=0,
        lt=2**63,
        description="Seed of the order of the arms and of the draw of the prompts.",
        examples=["1"],
    )
    target: Target = Field(description="The model to be made faster.", examples=["{model: org/model}"])
    engine: Engine = Field(description="What runs the target.", examples=["{kind: vllm}"])
    candidates: tuple[Candidate, ...] = Field(
        min_length=1,
        description="What is tried against the baseline.",
        examples=["[{method: ngram, draft_tokens: [3, 5]}]"],
    )
    workload: Workload = Field(
        description="What is asked, and how it is sampled.",
        examples=[
            "{sampling: {temperature: 0.0}, classes: [{name: code, prompts: builtin:code, share: 1, max_tokens: 256}]}"
        ],
    )
    loads: tuple[Load, ...] = Field(
        min_length=1,
        description="How requests arrive.",
        examples=["[{name: interactive, concurrency: 1, window: 20s}]"],
    )
    objectives: tuple[Objective, ...] = Field(
        min_length=1,
        description="What is decided.",
        examples=["[{name: interactive, load: interactive, measure: time_per_job}]"],
    )
    guards: Guards = Field(
        default=Guards(), description="What must not get worse, as margins.", examples=["{tpot: 5%}"]
    )
    experiment: Experiment = Field(
        default=Experiment(), description="How often the engine is booted.", examples=["{looks: [4, 6, 8, 12]}"]
    )
    budget: Budget = Field(default=Budget(), description="When to stop.", examples=["{time: 2h}"])

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        problems = misfits(
            Parts(
                flags=list(self.engine.args),
                body_keys=list(self.workload.sampling.extra_body),
                candidates=dict(enumerate(self.candidates)),
                shares=[part.share for part in self.workload.classes],
                names={
                    "workload.classes": [part.name for part in self.workload.classes],
                    "loads": [load.name for load in self.loads],
                    "objectives": [objective.name for objective in self.objectives],
                },
                objective_loads={index: objective.load for index, objective in enumerate(self.objectives)},
                looks=self.experiment.looks,
            )
        )
        if problems:
            message = "; ".join(str(problem) for problem in problems)
            raise PydanticCustomError("plan_misfits", "{message}", {"message": message})
        return self

    def arms(self) -> tuple[Arm, ...]:
        """Baseline first, then every candidate at every draft length, then the A/A arm if asked for."""
        return _arms(self)

    def load(self, name: str) -> Load:
        return next(load for load in self.loads if load.name == name)


BASELINE = "baseline"
A_A = "baseline-again"


class Role(StrEnum):
    BASELINE = "baseline"
    CANDIDATE = "candidate"
    A_A = "a_a"


class Arm(_Part):
    """One configuration that is booted and measured."""

    name: str
    role: Role
    method: Method | None = None
    draft: str | None = None
    draft_tokens: int | None = None
    options: dict[str, Any] = Field(default_factory=dict)


def _arms(plan: Plan) -> tuple[Arm, ...]:
    arms = [Arm(name=BASELINE, role=Role.BASELINE)]
    taken: dict[str, int] = {}
    for candidate in plan.candidates:
        for k in candidate.draft_tokens:
            name = f"{candidate.method}-k{k}"
            taken[name] = taken.get(name, 0) + 1
            if taken[name] > 1:
                name = f"{name}-{taken[name]}"
            arms.append(
                Arm(
                    name=name,
                    role=Role.CANDIDATE,
                    method=candidate.method,
                    draft=candidate.draft,
                    draft_tokens=k,
                    options=candidate.options,
                )
            )
    if plan.experiment.a_a:
        arms.append(Arm(name=A_A, role=Role.A_A))
    return tuple(arms)


NEEDS_DRAFT = frozenset(
    {
        Method.DRAFT_MODEL,
        Method.PARD,
        Method.EAGLE,
        Method.EAGLE3,
        Method.GEMMA4_MTP,
        Method.DFLASH,
        Method.DSPARK,
        Method.MEDUSA,
    }
)
TAKES_NO_DRAFT = frozenset({Method.NGRAM, Method.SUFFIX})
