"""The plan's `loads`: how requests arrive."""

from __future__ import annotations

from pydantic import Field

from specdyno.plan.part import Part
from specdyno.plan.spelling import Duration, Switch, Whole


class Load(Part):
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
