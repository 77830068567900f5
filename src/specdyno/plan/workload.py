"""The plan's `workload`: kinds of traffic, their shares, and how the target samples."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self

from pydantic import Field, model_validator

from specdyno.plan.part import Part
from specdyno.plan.spelling import Fraction, Number, Whole, refusal


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
    prompts: str | None = Field(
        default=None,
        min_length=1,
        description="builtin:NAME, package:NAME or a path to a prompt file, relative to the plan.",
        examples=["builtin:code"],
    )
    sessions: str | None = Field(
        default=None,
        min_length=1,
        description="Instead of prompts: builtin:agent, package:NAME or a file of sessions, for loads with `sessions`.",
        examples=["builtin:agent"],
    )
    share: Fraction = Field(
        gt=0,
        description="Share of requests (of sessions, where it holds sessions); the shares of each kind add up to 1.",
        examples=["0.5"],
    )
    max_tokens: Whole = Field(ge=1, le=1_000_000, description="Limit of output tokens per request.", examples=["256"])

    @model_validator(mode="after")
    def _prompts_or_sessions(self) -> Self:
        if (self.prompts is None) == (self.sessions is None):
            raise refusal("a class holds prompts or sessions", "Write exactly one of the two keys")
        return self

    @property
    def source(self) -> str:
        """Where its prompts or sessions come from, as written."""
        return self.prompts or self.sessions or ""


class History(StrEnum):
    """Whose answers stand in the history of a session's later turns."""

    ENGINE = "engine"
    RECORDED = "recorded"


class Sessions(Part):
    history: History = Field(
        default=History.ENGINE,
        description="Whose answers later turns see: the engine's own, or those recorded in the session file.",
        examples=["recorded"],
    )
    pace: Number = Field(
        default=1.0,
        ge=0,
        le=100,
        description="Factor on the think time and tool time of the sessions; 0: no pauses.",
        examples=["0.25"],
    )


class Workload(Part):
    sampling: Sampling = Field(
        description="How the target samples; the same in every arm.", examples=["{temperature: 0.0}"]
    )
    classes: tuple[TrafficClass, ...] = Field(
        min_length=1,
        description="Kinds of traffic.",
        examples=["[{name: code, prompts: builtin:code, share: 1, max_tokens: 256}]"],
    )
    sessions: Sessions = Field(
        default=Sessions(), description="How agent sessions are replayed.", examples=["{history: engine, pace: 1.0}"]
    )
