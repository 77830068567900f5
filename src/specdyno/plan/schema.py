"""The plan: typed, frozen, every key documented, unknown keys refused.

Owns the shape of `plan.yaml` and the arms that follow from it. Reads no files (see `plan.parse`). Durations are kept
in seconds, shares and margins as fractions; `"20m"`, `"5%"` and `"0.5pp"` are spellings of the file only.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from specdyno.plan.arms import A_A, BASELINE, Arm, Role, arms_of
from specdyno.plan.candidate import Candidate
from specdyno.plan.engine import NOT_RUN_HERE, Engine, EngineKind, Target
from specdyno.plan.load import Load
from specdyno.plan.methods import NEEDS_DRAFT, TAKES_NO_DRAFT, Method
from specdyno.plan.misfits import Parts, misfits
from specdyno.plan.objective import MeasureName, Objective, ServiceLevel
from specdyno.plan.part import Part
from specdyno.plan.preflight import Preflight
from specdyno.plan.spelling import Duration, Fraction, Switch, Whole, duration_s, fraction
from specdyno.plan.workload import History, Sampling, Sessions, TrafficClass, Workload

__all__ = [
    "A_A",
    "BASELINE",
    "NEEDS_DRAFT",
    "NOT_RUN_HERE",
    "TAKES_NO_DRAFT",
    "Arm",
    "Budget",
    "Candidate",
    "Engine",
    "EngineKind",
    "Experiment",
    "Guards",
    "History",
    "Load",
    "MeasureName",
    "Method",
    "Objective",
    "Plan",
    "Preflight",
    "Role",
    "Sampling",
    "ServiceLevel",
    "Sessions",
    "Target",
    "TrafficClass",
    "Workload",
    "duration_s",
    "fraction",
]

BlockCount = Annotated[Whole, Field(ge=1, le=100)]


class Guards(Part):
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


class Experiment(Part):
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


class Budget(Part):
    time: Duration | None = Field(
        default=None,
        description="No new block starts that would end after this much time. null: no limit.",
        examples=["2h"],
    )


class Plan(Part):
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
    preflight: Preflight = Field(
        default=Preflight(),
        description="What the checks before the first boot assume or overlook.",
        examples=["{accept: []}"],
    )
    budget: Budget = Field(default=Budget(), description="When to stop.", examples=["{time: 2h}"])

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        problems = misfits(
            Parts(
                flags=list(self.engine.args),
                body_keys=list(self.workload.sampling.extra_body),
                candidates=dict(enumerate(self.candidates)),
                classes=dict(enumerate(self.workload.classes)),
                loads=dict(enumerate(self.loads)),
                objectives=dict(enumerate(self.objectives)),
                whole=frozenset({"classes", "loads"}),
                names={
                    "workload.classes": [part.name for part in self.workload.classes],
                    "loads": [load.name for load in self.loads],
                    "objectives": [objective.name for objective in self.objectives],
                },
                rungs=[load.name for load in self.measured_loads],
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
        return arms_of(self)

    @property
    def measured_loads(self) -> tuple[Load, ...]:
        """The loads that get windows: every rung of a ladder is one."""
        return tuple(rung for load in self.loads for rung in load.rungs())

    def load(self, name: str) -> Load:
        """A measured load by name; a rung is named `ladder@concurrency`."""
        return next(load for load in self.measured_loads if load.name == name)

    def classes_at(self, load: Load) -> tuple[str, ...]:
        """Names of the classes that a load asks: those of sessions, or those of prompts."""
        replayed = load.sessions is not None
        return tuple(part.name for part in self.workload.classes if (part.sessions is not None) is replayed)

    def service_level(self, load: str) -> ServiceLevel:
        """What requests at a load must meet: the level of the first objective there that states one, else empty."""
        levels = (one.service_level for one in self.objectives if one.load == load)
        return next((level for level in levels if not level.empty), ServiceLevel())
