"""What every open window was offered and what came of it: rates, how late the client was, the queue, the service level.

One entry per window, so that the steps of a search can be followed; it explains and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdyno.plan.schema import Load
from specdyno.records.queueing import queueing
from specdyno.records.schema import ArrivalKind, WindowKind
from specdyno.records.service import attained, rate_carried
from specdyno.records.timings import Timings
from specdyno.statistics.analysis import OpenWindow
from specdyno.statistics.windows import WindowView


def open_windows(views: Sequence[WindowView], *, arm: str, load: Load) -> tuple[OpenWindow, ...]:
    """Every window of `views` whose requests came at times of their own, in the order of the blocks."""
    found = []
    for view in sorted(views, key=lambda one: (one.boot.block, one.record.started_ns)):
        meant = view.record.arrival
        if meant is None or meant.kind not in (ArrivalKind.OPEN, ArrivalKind.TRACE) or not len(view.rows):
            continue
        timings = Timings.of_columns(view.requests, view.rows)
        queue, search = queueing(timings, meant), view.record.kind is WindowKind.PROBE
        level = view.level if view.level is not None and not view.level.empty else None
        found.append(
            OpenWindow(
                arm=arm,
                load=load.name,
                block=view.boot.block,
                search=search,
                planned_per_s=meant.rate,
                offered_per_s=queue.offered_per_s,
                sent_per_s=queue.sent_per_s,
                achieved_per_s=queue.achieved_per_s,
                late_p95_s=queue.late_p95_ns / 1e9,
                in_flight=queue.in_flight,
                saturated=queue.saturated.value,
                attained=attained(timings, level) if level is not None else None,
                carried=rate_carried(timings, level, load.attainment) if search and level is not None else None,
            )
        )
    return tuple(found)
