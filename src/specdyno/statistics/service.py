"""Requests that met a service level: goodput, attainment, and the largest rate that a server carries.

What it means to meet a level, and to carry a rate, stands in `records.service`: the search that runs and the estimate
made of its records judge alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specdyno.plan.schema import Load
from specdyno.records.queueing import Saturation, queueing
from specdyno.records.schema import Finding, FindingCode, Severity
from specdyno.records.service import attained, met_level, rate_carried
from specdyno.records.timings import Timings
from specdyno.statistics.intervals import Undefined
from specdyno.statistics.windows import WindowView


def goodput(view: WindowView) -> float | None:
    """Requests per second, inside the span, that met the level of the view's load; None where none is stated."""
    if view.level is None or view.level.empty or view.span_s is None:
        return None
    good = met_level(Timings.of_columns(view.requests, view.rows), view.level)
    return float(np.sum(view.share[good])) / view.span_s


def attainment(view: WindowView) -> float | None:
    """Share of the requests of a window that met the level of its load; None without a level or a request."""
    if view.level is None or view.level.empty or len(view.rows) == 0:
        return None
    return attained(Timings.of_columns(view.requests, view.rows), view.level)


@dataclass(frozen=True, slots=True)
class Carried:
    """The largest rate of one boot, between the largest that met the level and the smallest that did not."""

    rate: float  # requests/s, interpolated on log rate by attainment
    low: float | None  # met, with a queue that is known not to have grown; None: at no rate is that known
    high: float  # not met


@dataclass(frozen=True, slots=True)
class Beyond:
    """No edge among the rates of one boot's search: the largest rate is not below `above`, or not above `below`."""

    above: float | None = None  # requests/s: every rate was carried, this the highest whose queue is known
    below: float | None = None  # requests/s: no rate was carried, this the lowest


def largest_rate(probes: Sequence[WindowView], load: Load) -> Carried | Beyond | Undefined:
    """The largest rate of one boot's search that meets the level in `load.attainment` of the requests.

    A bound where every rate of the search met it, or none: to take a rate at the end of the search for the edge would
    flatter whichever arm reaches it, or the other. Undefined without a window.
    """
    points = sorted(point for view in probes if (point := _tried(view, load)) is not None)
    if not points:
        return Undefined("no window of the search was measured")
    edge, low_share = next(((rate, share) for rate, carried, share, _ in points if not carried), (math.inf, 0.0))
    held = [(rate, share) for rate, _, share, _ in points if rate < edge]
    sure = max((rate for rate, _, _, known in points if known and rate < edge), default=None)
    if math.isinf(edge):
        return Beyond(above=sure)
    if not held:
        return Beyond(below=edge)
    low, high_share = held[-1]
    # A rate whose queue grew may still have met the level in most requests: then nothing tells where between.
    part = (high_share - load.attainment) / (high_share - low_share) if low_share < load.attainment else 0.5
    return Carried(math.exp(math.log(low) + part * (math.log(edge) - math.log(low))), sure, edge)


def _tried(view: WindowView, load: Load) -> tuple[float, bool, float, bool] | None:
    """Of one window: its rate, whether it was carried, the share that met the level, whether its queue is known.

    None where not measured. Few requests, or long stays in a short window, do not tell whether a queue grew.
    """
    rate = view.record.arrival.rate if view.record.arrival is not None else None
    share = attainment(view)
    if rate is None or share is None or view.level is None:
        return None
    timings = Timings.of_columns(view.requests, view.rows)
    carried = rate_carried(timings, view.level, load.attainment)
    known = queueing(timings).saturated is not Saturation.UNKNOWN
    return None if carried is None else (rate, carried, share, known)


def edge_finding(arm: str, load: Load, edges: Mapping[int, Carried | Beyond | Undefined]) -> Finding | None:
    """Says in which blocks an arm's search found no edge, and between which rates a new study would; None: in none."""
    above = {block: one.above for block, one in edges.items() if isinstance(one, Beyond) and one.above is not None}
    below = {block: one.below for block, one in edges.items() if isinstance(one, Beyond) and one.below is not None}
    blind = {
        block: one for block, one in edges.items() if one == Beyond() or (isinstance(one, Carried) and one.low is None)
    }
    if load.rates is None or not (above or below or blind):
        return None
    told = [f"every rate up to {max(above.values()):g}/s met the service level {_in(above)}"] if above else []
    told += [f"no rate down to {min(below.values()):g}/s met the service level {_in(below)}"] if below else []
    low, high = load.rates
    wider = (low / 4 if below else low, high * 2 if above else high)
    if told:
        told = [f"{'; '.join(told)}: search `rates: [{wider[0]:g}, {wider[1]:g}]`"]
    if blind:
        told.append(
            f"whether the queue grew at the rates that were carried is not known {_in(blind)}: use longer windows"
        )
    detail = "; ".join(told)
    return Finding(FindingCode.EDGE_NOT_FOUND, Severity.DOUBT, f"{arm}, {load.name}", detail, arm, load.name)


def _in(blocks: Mapping[int, object]) -> str:
    return f"in block{'s' if len(blocks) > 1 else ''} {', '.join(str(block + 1) for block in sorted(blocks))}"
