"""The plan's `loads`: how requests arrive."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from specdyno.plan.part import Part
from specdyno.plan.spelling import Duration, Fraction, Number, Switch, Whole, refusal

ARRIVALS = ("concurrency", "rate", "trace", "ladder", "sessions", "rates")
_MOST_WARM = 64


class Load(Part):
    """One way of arriving. `ladder` stands for several closed loops: see `rungs`."""

    name: str = Field(
        min_length=1,
        max_length=40,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]*$",
        description="Name of the load; objectives refer to it.",
        examples=["pool"],
    )
    concurrency: Whole | None = Field(
        default=None, ge=1, le=100_000, description="Closed loop: requests in flight.", examples=["16"]
    )
    ladder: tuple[Whole, ...] | None = Field(
        default=None,
        min_length=2,
        description="Closed loops, one after the other: `ladder: [1, 8]` of a load x makes the loads x@1 and x@8.",
        examples=["[1, 2, 4, 8, 16]"],
    )
    rate: Number | None = Field(
        default=None,
        gt=0,
        le=100_000,
        description="Open loop: requests per second, whatever is still in flight. With `trace`: scale it to this mean.",
        examples=["4.0"],
    )
    burstiness: Number = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="Open loop: shape of the gamma distribution of the gaps. 1 is Poisson, below it comes in bursts.",
        examples=["0.5"],
    )
    ramp_from: Number | None = Field(
        default=None,
        gt=0,
        le=100_000,
        description="Open loop: the rate at the start of the window; it goes evenly to `rate`. null: no ramp.",
        examples=["1.0"],
    )
    trace: str | None = Field(
        default=None,
        min_length=1,
        description="Arrival times from a file (Azure or BurstGPT CSV, Mooncake JSONL); the text is the plan's.",
        examples=["./azure.csv"],
    )
    sessions: Whole | None = Field(
        default=None, ge=1, le=100_000, description="Agent sessions in flight, each turn by turn.", examples=["8"]
    )
    rates: tuple[Number, ...] | None = Field(
        default=None,
        min_length=2,
        max_length=2,
        description="Open loop: search between these rates for the largest that meets the objective's service level.",
        examples=["[0.5, 8]"],
    )
    steps: Whole = Field(default=5, ge=2, le=12, description="With `rates`: windows of one search.", examples=["5"])
    attainment: Fraction = Field(
        default=0.9,
        gt=0,
        description="With `rates`: share of the requests that must meet the service level.",
        examples=["99%"],
    )
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

    @model_validator(mode="after")
    def _one_way_to_arrive(self) -> Self:
        stated = [name for name in ARRIVALS if getattr(self, name) is not None]
        if stated not in [[name] for name in ARRIVALS if name != "trace"] and stated not in [
            ["trace"],
            ["rate", "trace"],
        ]:
            seen = f"says {' and '.join(stated)}" if stated else "does not say how requests arrive"
            raise refusal(f"this load {seen}", f"Write one of: {', '.join(ARRIVALS)} (rate may go with trace)")
        if self.ladder is not None and (list(self.ladder) != sorted(set(self.ladder)) or self.ladder[0] < 1):
            raise refusal(f"the ladder {list(self.ladder)} does not rise", "Write rising numbers, e.g. [1, 2, 4, 8]")
        if self.rates is not None and not 0 < self.rates[0] < self.rates[1]:
            raise refusal(f"{list(self.rates)} is no range of rates", "Write the lower one first, e.g. [0.5, 8]")
        if self.ramp_from is not None and (self.rate is None or self.trace is not None):
            raise refusal("ramp_from stands without a rate to go to", "Add rate, or remove ramp_from")
        if self.class_windows and not (self.closed or self.ladder):
            raise refusal("class_windows needs a closed loop", "Use concurrency or ladder, or remove class_windows")
        return self

    @property
    def closed(self) -> bool:
        """Whether the next request waits for an answer."""
        return self.concurrency is not None

    @property
    def in_flight(self) -> int:
        """Requests that a warm-up of this load keeps in flight: its concurrency, else what its rate suggests.

        An open window can hold no more than it sends, and its warm-up asks no more.
        """
        if closed := self.concurrency or self.sessions:
            return closed
        fastest = self.rates[1] if self.rates is not None else self.rate
        return max(1, min(_MOST_WARM, self.requests or _MOST_WARM, round(fastest or 1)))

    def rungs(self) -> tuple[Load, ...]:
        """The loads that are measured: the load itself, or one closed loop for each rung of a ladder."""
        if self.ladder is None:
            return (self,)
        return tuple(
            self.model_copy(update={"name": f"{self.name}@{n}", "ladder": None, "concurrency": n}) for n in self.ladder
        )
