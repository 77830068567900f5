"""The plan's `objectives`: what is decided, by which measure, from which gain on."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from specdyno.plan.part import Part
from specdyno.plan.spelling import Duration, Fraction, Switch


class MeasureName(StrEnum):
    """Measures an objective may be decided by; directions stand in `statistics.measures`."""

    TIME_PER_JOB = "time_per_job"
    JOBS_PER_S = "jobs_per_s"
    OUTPUT_TOKENS_PER_S = "output_tokens_per_s"
    GOODPUT = "goodput"
    LARGEST_RATE = "largest_rate"
    SESSIONS_PER_H = "sessions_per_h"


class ServiceLevel(Part):
    """Limits that a request must meet to count, each at most; null: no limit."""

    ttft: Duration | None = Field(default=None, description="Longest time to the first token.", examples=["500ms"])
    tpot: Duration | None = Field(default=None, description="Longest time per output token.", examples=["50ms"])
    e2el: Duration | None = Field(default=None, description="Longest time to the last token.", examples=["20s"])

    @property
    def empty(self) -> bool:
        return self.ttft is None and self.tpot is None and self.e2el is None


class Objective(Part):
    name: str = Field(min_length=1, max_length=60, description="Name of the objective.", examples=["background pool"])
    load: str = Field(description="Name of a load of this plan; of a ladder, one rung, e.g. pool@8.", examples=["pool"])
    measure: MeasureName = Field(
        description="time_per_job, jobs_per_s, output_tokens_per_s, goodput, largest_rate or sessions_per_h.",
        examples=["jobs_per_s"],
    )
    service_level: ServiceLevel = Field(
        default=ServiceLevel(),
        description="What a request must meet to count for goodput and largest_rate.",
        examples=["{ttft: 500ms, tpot: 50ms}"],
    )
    minimum_gain: Fraction = Field(default=0.05, description="Smallest gain worth promoting.", examples=["5%"])
    scopes: Switch = Field(
        default=True,
        description="Where the load has class windows: promote single classes if the whole traffic is not. "
        "Takes a fifth of the allowed error.",
        examples=["false"],
    )
