"""The plan's `objectives`: what is decided, by which measure, from which gain on."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from specdyno.plan.part import Part
from specdyno.plan.spelling import Fraction, Switch


class MeasureName(StrEnum):
    """Measures an objective may be decided by; directions stand in `statistics.measures`."""

    TIME_PER_JOB = "time_per_job"
    JOBS_PER_S = "jobs_per_s"
    OUTPUT_TOKENS_PER_S = "output_tokens_per_s"


class Objective(Part):
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
