"""The plan's `workload`: kinds of traffic, their shares, and how the target samples."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from specdyno.plan.part import Part
from specdyno.plan.spelling import Fraction, Number, Whole


class Sampling(Part):
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


class TrafficClass(Part):
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


class Workload(Part):
    sampling: Sampling = Field(
        description="How the target samples; the same in every arm.", examples=["{temperature: 0.0}"]
    )
    classes: tuple[TrafficClass, ...] = Field(
        min_length=1,
        description="Kinds of traffic.",
        examples=["[{name: code, prompts: builtin:code, share: 1, max_tokens: 256}]"],
    )
