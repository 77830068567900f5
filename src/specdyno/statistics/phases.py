"""Agent sessions cut by what the agent does and by how far it is: acceptance, speed and prefix-cache hits.

Totals over an arm's scored session windows, each with its count, and acceptance with its interval; they explain and
decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specdyno.statistics.acceptance import measure_accepted
from specdyno.statistics.analysis import PhaseSummary
from specdyno.statistics.measures import MEASURES
from specdyno.statistics.windows import WindowView

LATE = 8
"""Turns from here on are taken together: later ones are rare."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """One phase, or one place in the session, of one arm at one load."""

    arm: str
    load: str
    phase: str | None
    turn: int | None

    @property
    def name(self) -> str:
        return f"{self.arm}/{self.load}/{f'turn {self.turn}' if self.phase is None else f'phase {self.phase}'}"


def summarise_phases(
    views: Sequence[WindowView], *, arm: str, load: str, k: int | None, seed: int
) -> tuple[PhaseSummary, ...]:
    """Phases in order of first use, then turns; empty where the windows hold no sessions.

    Args:
        views: one scored window per boot.
        arm: its name.
        load: its name.
        k: K in force; None: no drafts.
        seed: of the study; intervals by resampling depend on it and on the cell's name only.
    """
    held = [view for view in views if view.requests.phase_code is not None and view.requests.turn is not None]
    phases = held[0].requests.phases if held else ()
    cuts = [
        (_Cell(arm, load, phase, None), [view.where(view.column("phase_code") == code) for view in held])
        for code, phase in enumerate(phases)
    ]
    turns = sorted({min(int(turn), LATE) for view in held for turn in np.unique(view.column("turn")) if turn >= 0})
    cuts += [(_Cell(arm, load, None, turn), [view.where(_at_turn(view, turn)) for view in held]) for turn in turns]
    found = (_summary([view for view in cut if len(view.rows)], cell, k=k, seed=seed) for cell, cut in cuts)
    return tuple(one for one in found if one is not None)


def _at_turn(view: WindowView, turn: int) -> np.ndarray:
    there = view.column("turn")
    at: np.ndarray = there >= LATE if turn == LATE else there == turn
    return at


def _summary(cut: Sequence[WindowView], cell: _Cell, *, k: int | None, seed: int) -> PhaseSummary | None:
    """None without a request."""
    if not cut:
        return None
    done = np.concatenate([view.done for view in cut])

    def column(name: str) -> np.ndarray:
        values: np.ndarray = np.concatenate([view.column(name) for view in cut])[done]
        return values

    cached, asked = column("cached_tokens"), column("prompt_tokens")
    told = np.isfinite(cached) & np.isfinite(asked)
    tokens = float(np.sum(column("tokens"))) if done.any() else np.nan
    accepted = measure_accepted(cut, cell.name, k=k, seed=seed)
    return PhaseSummary(
        cell.arm,
        cell.load,
        cell.phase,
        cell.turn,
        requests=len(done),
        done=int(done.sum()),
        output_tokens=tokens if np.isfinite(tokens) else None,
        ttft_s=_mean(cut, "ttft"),
        tpot_s=_mean(cut, "tpot"),
        e2e_s=_mean(cut, "e2e"),
        cached_share=float(np.sum(cached[told]) / np.sum(asked[told])) if told.any() and np.sum(asked[told]) else None,
        mean_accepted_length=accepted.mean_accepted_length,
        rate=accepted.rate,
        joint=accepted.joint,
        drafted_steps=accepted.drafted_steps,
        boots=len({view.boot.id for view in cut}),
    )


def _mean(cut: Sequence[WindowView], name: str) -> float | None:
    """A measure over all windows, each weighted by its completed requests."""
    values = [(MEASURES[name].of(view), int(view.done.sum())) for view in cut]
    known = [(value, count) for value, count in values if value is not None and count]
    total = sum(count for _, count in known)
    return sum(value * count for value, count in known) / total if total else None
