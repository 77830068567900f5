"""The plan's `preflight`: what the checks before the first boot may assume or overlook."""

from __future__ import annotations

from pydantic import Field

from specdyno.plan.part import Part
from specdyno.plan.spelling import Amount


class Preflight(Part):
    accept: tuple[str, ...] = Field(
        default=(),
        description="Names of pair or memory checks that may fail: shown, but the plan is measured nevertheless.",
        examples=["[draft_tokens_trained]"],
    )
    device_memory: Amount | None = Field(
        default=None,
        description="Memory of one device, all of it; null: asked of the devices of this host.",
        examples=["24 GiB"],
    )
