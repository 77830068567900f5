"""What `settings` shows; the verdict's own rendering is `report.text`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import orjson
from rich.console import Group, RenderableType
from rich.text import Text

from specdyno.flow import Deployment
from specdyno.screens.parts import line, title
from specdyno.statistics.intervals import AT_LEAST, Interval


def deployments(found: Sequence[Deployment]) -> RenderableType:
    """What to deploy per objective: flags that can be pasted, and the traffic they hold for."""
    return Group(*(part for one in found for part in _deployment(one)))


def deployments_json(found: Sequence[Deployment]) -> str:
    """One entry per objective; `flags` is null where nothing is promoted."""
    entries = [
        {
            "objective": one.recommendation.objective,
            "load": one.recommendation.load,
            "decision": str(one.recommendation.decision),
            "arm": one.recommendation.arm,
            "classes": list(one.recommendation.classes),
            "without_speculation": list(one.recommendation.others),
            "flags": None if one.flags is None else list(one.flags),
            "up_to_in_flight": one.recommendation.up_to,
            "limited_flags": None if one.limited_flags is None else list(one.limited_flags),
        }
        for one in found
    ]
    return orjson.dumps(entries, option=orjson.OPT_INDENT_2).decode()


def _deployment(one: Deployment) -> list[RenderableType]:
    told = one.recommendation
    parts: list[RenderableType] = [title(f"{told.objective} (load {told.load}): {told.decision}")]
    if one.flags is None:
        parts.append(line("Deploy nothing: keep the engine as the baseline ran it."))
        return parts
    ratio = told.primary.ratio if told.primary is not None else None
    if told.primary is not None and isinstance(ratio, Interval):
        shown = f"{ratio.estimate:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
        if ratio.bound:
            shown = f"{ratio.bound} {ratio.low if ratio.bound == AT_LEAST else ratio.high:.3f}"
        parts.append(line(f"{told.arm}: {told.primary.measure.replace('_', ' ')}, {shown} times as good"))
    parts.append(Text(f"  {shlex.join(one.flags)}", no_wrap=True, overflow="ignore"))
    if told.up_to is not None:
        parts.append(line(f"Shown to pay up to {told.up_to} requests in flight; above that it is not."))
        if one.limited_flags is not None:
            parts.append(line("To draft up to there only:"))
            parts.append(Text(f"  {shlex.join(one.limited_flags)}", no_wrap=True, overflow="ignore"))
        else:
            parts.append(line("This engine cannot switch by load: cap its concurrency there, or run two replicas."))
    if told.others:
        parts.append(line(f"Only for: {', '.join(told.classes)}. Without speculation: {', '.join(told.others)}."))
        parts.append(line("Run one replica with and one without it, and route each class to its own."))
    parts.append(line("Holds where the fingerprint in the report is equal; elsewhere it is a test plan.", style="dim"))
    return parts
