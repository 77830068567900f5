"""Agent sessions cut by what the agent does and by how far it is: acceptance, speed and prefix-cache hits.

Totals over an arm's scored session windows, each with its count; they explain and decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specdyno.statistics.analysis import PhaseSummary
from specdyno.statistics.measures import MEASURES
from specdyno.statistics.windows import WindowView

LATE = 8
"""Turns from here on are taken together: later ones are rare."""


def summarise_phases(views: Sequence[WindowView], *, arm: str, load: str) -> tuple[PhaseSummary, ...]:
    """Phases in order of first use, then turns; empty where the windows hold no sessions."""
    held = [view for view in views if view.requests.phase_code is not None and view.requests.turn is not None]
    found = []
    phases = held[0].requests.phases if held else ()
    for code, phase in enumerate(phases):
        cut = [view.where(view.column("phase_code") == code) for view in held]
        found.append(_summary(cut, (arm, load, phase, None)))
    turns = sorted({int(turn) for view in held for turn in np.unique(view.column("turn")) if turn >= 0})
    for turn in sorted({min(turn, LATE) for turn in turns}):
        cut = [
            view.where(view.column("turn") >= LATE if turn == LATE else view.column("turn") == turn) for view in held
        ]
        found.append(_summary(cut, (arm, load, None, turn)))
    return tuple(one for one in found if one.requests)


def _summary(cut: Sequence[WindowView], cell: tuple[str, str, str | None, int | None]) -> PhaseSummary:
    done = np.concatenate([view.done for view in cut])

    def column(name: str) -> np.ndarray:
        values: np.ndarray = np.concatenate([view.column(name) for view in cut])[done]
        return values

    cached, asked = column("cached_tokens"), column("prompt_tokens")
    told = np.isfinite(cached) & np.isfinite(asked)
    steps, accepted = column("spec_steps"), column("spec_accepted")
    known = np.isfinite(steps) & np.isfinite(accepted)
    drafted = float(np.sum(steps[known])) if known.any() else None
    tokens = float(np.sum(column("tokens"))) if done.any() else np.nan
    return PhaseSummary(
        *cell,
        requests=len(done),
        done=int(done.sum()),
        output_tokens=tokens if np.isfinite(tokens) else None,
        ttft_s=_mean(cut, "ttft"),
        tpot_s=_mean(cut, "tpot"),
        e2e_s=_mean(cut, "e2e"),
        cached_share=float(np.sum(cached[told]) / np.sum(asked[told])) if told.any() and np.sum(asked[told]) else None,
        mean_accepted_length=1 + float(np.sum(accepted[known])) / drafted if drafted else None,
        drafted_steps=drafted,
    )


def _mean(cut: Sequence[WindowView], name: str) -> float | None:
    """A measure over all windows, each weighted by its completed requests."""
    values = [(MEASURES[name].of(view), int(view.done.sum())) for view in cut]
    known = [(value, count) for value, count in values if value is not None and count]
    total = sum(count for _, count in known)
    return sum(value * count for value, count in known) / total if total else None
