"""The search for the largest rate that meets a service level: within one boot, by bisection of the rate's logarithm.

Owns which rate comes next. Each step is an open window of its own prompts, drawn in advance and alike in every arm;
the rates follow what this boot carried, so they differ between arms. Every window is kept with its rate, and the
measure is made from the records (`records.service.rate_carried` judges a window here and there alike).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from specdyno.load.window import Job, WindowPlan
from specdyno.plan.schema import Load, ServiceLevel
from specdyno.records.schema import Arrival, ArrivalKind, RequestRecord, WindowKind
from specdyno.records.service import rate_carried
from specdyno.records.timings import Timings
from specdyno.workload import arrivals

Tried = tuple[float, bool]  # a rate, and whether it was carried


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """A load with `rates`: the prompts of each step, and the label that seeds its arrivals."""

    load: Load
    level: ServiceLevel
    steps: tuple[tuple[Job, ...], ...]
    label: str

    def window(self, step: int, rate: float) -> WindowPlan:
        """The window of one step: as many of its prompts as the rate asks for within the load's window."""
        wanted = self.load.requests or max(2, round(rate * self.load.window))
        jobs = self.steps[step][:wanted]
        return WindowPlan(
            load=self.load.name,
            kind=WindowKind.PROBE,
            class_name=None,
            concurrency=None,
            jobs=jobs,
            offsets_ns=arrivals.offsets(self.load, len(jobs), label=f"{self.label}/{step}", rate=rate),
            arrival=Arrival(ArrivalKind.OPEN, rate=rate, burstiness=self.load.burstiness),
        )


def next_rate(bounds: tuple[float, float], tried: Sequence[Tried], *, left: int) -> float:
    """The geometric middle between the largest rate that was carried and the smallest that was not.

    The last step asks a bound itself where all rates before it were carried, or none was: otherwise the range would
    have been taken for granted.

    >>> round(next_rate((1.0, 16.0), [(4.0, True)], left=3), 6)
    8.0
    """
    carried = max((rate for rate, held in tried if held), default=None)
    failed = min((rate for rate, held in tried if not held), default=None)
    if left == 1 and tried and carried is None:
        return bounds[0]
    if left == 1 and tried and failed is None:
        return bounds[1]
    low, high = bounds[0] if carried is None else carried, bounds[1] if failed is None else failed
    return math.sqrt(low * high)


async def search(
    plan: SearchPlan, run: Callable[[WindowPlan, Callable[[RequestRecord], None]], Awaitable[object]]
) -> tuple[Tried, ...]:
    """All steps of a search in one boot; `run` measures a window and hands on each row that was kept."""
    bounds = plan.load.rates
    assert bounds is not None  # noqa: S101 - only loads with rates make a search; for the type checker
    tried: list[Tried] = []
    for step in range(len(plan.steps)):
        rate = next_rate((bounds[0], bounds[1]), tried, left=len(plan.steps) - step)
        rows: list[RequestRecord] = []
        await run(plan.window(step, rate), rows.append)
        held = rate_carried(Timings.of_records(rows), plan.level, plan.load.attainment)
        tried.append((rate, bool(held)))
    return tuple(tried)
