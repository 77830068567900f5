"""The plan's `candidates`: what is tried against the baseline."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from specdyno.plan.methods import NEEDS_DRAFT, TAKES_NO_DRAFT, Method
from specdyno.plan.part import Part
from specdyno.plan.spelling import Whole

DraftLength = Annotated[Whole, Field(ge=1, le=128)]


class Candidate(Part):
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
