"""Which K are worth fresh blocks: predicted speed-ups from one deep run, one shallow run and plain decoding.

Speed-up(K) = tokens per step(K) / r(K): tokens per step by replay of the deepest run, r affine between the measured
depths of one load, forced not to fall, never extrapolated. A screen never promotes and never rejects: what it keeps is
to be confirmed on fresh blocks, because the best of several noisy cells overstates itself (by 0.56, 0.85, 1.03 or 1.35
standard errors for 2, 3, 4 or 7 cells).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scipy import optimize

from specdyno.statistics.intervals import Estimate, Undefined
from specdyno.statistics.replay import Replayed
from specdyno.statistics.stepcost import DepthSweep, Modelled, Point, depth_sweep

NEAR_BEST = 0.03
KEPT = 2
NEXT = "to be confirmed on fresh blocks"


@dataclass(frozen=True, slots=True)
class Predicted:
    """One K. `measured` of a `Modelled` says whether this K itself was run; `tokens_per_step` carries its interval."""

    draft_tokens: int
    tokens_per_step: Estimate | Modelled
    step_cost: Modelled
    speed_up: Modelled


@dataclass(frozen=True, slots=True)
class Screened:
    """What a screen says of one load; `next_step` is all that it recommends."""

    predicted: tuple[Predicted, ...]  # rising K
    kept: tuple[int, ...]  # at most two, rising K
    greedy: int  # where going from K to K + 1 first does not pay
    unpredicted: tuple[tuple[int, str], ...]  # K inside the measured range that must be run, with the reason
    replay_error: tuple[tuple[int, float], ...]  # by measured K below the deepest: replayed / measured tokens - 1
    levelled: bool  # whether a measured r fell with K and was made flat
    next_step: str = NEXT

    @property
    def best(self) -> Predicted:
        """The highest predicted speed-up; the smaller K of two equal ones."""
        return max(self.predicted, key=lambda one: (one.speed_up.value, -one.draft_tokens))


def screen(replays: Mapping[int, Replayed | Undefined], sweep: DepthSweep) -> Screened | Undefined:
    """Predict every K from the smallest to the largest measured one, and keep the few that are worth confirming.

    Args:
        replays: by K, from `replay_answers` of the run at the largest K.
        sweep: plain decoding (K 0), the smallest and the largest K, and any K between, all at one load: r does not
            transfer across concurrency.

    Undefined without plain decoding, without two measured K, or where a replay is of another run than the deepest.
    """
    ran = [point for point in sweep.points if point.draft_tokens > 0]
    if sweep.points[0].draft_tokens != 0:
        return Undefined("the sweep has no plain decoding (K 0) to compare with", len(sweep.points))
    if len(ran) < 2:
        return Undefined("r(K) needs a run at the smallest and one at the largest K", len(ran))
    smallest, largest = ran[0].draft_tokens, ran[-1].draft_tokens
    for found in replays.values():
        if isinstance(found, Replayed) and found.measured_draft_tokens != largest:
            return Undefined(f"a replay of K {found.measured_draft_tokens} where the deepest run has K {largest}")
    rising = _rising(sweep)
    predicted, unpredicted = [], []
    for k in range(smallest, largest + 1):
        one = _predict(k, replays.get(k), sweep=sweep, rising=rising)
        if isinstance(one, Predicted):
            predicted.append(one)
        else:
            unpredicted.append((k, one.reason))
    return Screened(
        predicted=tuple(predicted),
        kept=_keep(predicted),
        greedy=_climb(predicted),
        unpredicted=tuple(unpredicted),
        replay_error=tuple(_errors(replays, ran[:-1])),
        levelled=rising is not sweep,
    )


def _rising(sweep: DepthSweep) -> DepthSweep:
    """The sweep with step times that do not fall with K: the nearest such, by least squares over the depths run.

    Plain decoding stays as it is. The same object where nothing falls.
    """
    plain, *ran = sweep.points
    seconds = [point.seconds for point in ran]
    if seconds == sorted(seconds):
        return sweep
    level = optimize.isotonic_regression(seconds).x.tolist()
    points = [Point(p.draft_tokens, p.tokens_per_step, step_s=s) for p, s in zip(ran, level, strict=True)]
    return depth_sweep([plain, *points])


def _predict(
    k: int, replayed: Replayed | Undefined | None, *, sweep: DepthSweep, rising: DepthSweep
) -> Predicted | Undefined:
    """A measured K keeps what it measured, unless its step time was levelled; any other needs its replay."""
    measured, cost = sweep.speed_up(k), rising.step_cost(k)
    if isinstance(measured, Undefined) or isinstance(cost, Undefined):
        return measured if isinstance(measured, Undefined) else Undefined("no step cost")
    tokens = sweep.tokens_per_step(k)
    if measured.measured and isinstance(tokens, Modelled):
        untouched = cost == sweep.step_cost(k)
        cost = replace(cost, measured=untouched)
        return Predicted(k, tokens, cost, Modelled(tokens.value / cost.value, measured=untouched))
    if not isinstance(replayed, Replayed):
        return replayed or Undefined("not replayed")
    return Predicted(
        k, replayed.tokens_per_step, cost, Modelled(replayed.mean_accepted_length / cost.value, measured=False)
    )


def _keep(predicted: Sequence[Predicted]) -> tuple[int, ...]:
    """At most two K, the highest first to be chosen and the smaller of equals; all within 3 % of the best."""
    ranked = sorted(predicted, key=lambda one: (-one.speed_up.value, one.draft_tokens))
    floor = (1 - NEAR_BEST) * ranked[0].speed_up.value
    return tuple(sorted(one.draft_tokens for one in ranked[:KEPT] if one.speed_up.value >= floor))


def _climb(predicted: Sequence[Predicted]) -> int:
    """From the smallest K go on while the tokens that K + 1 adds outweigh speed-up(K) * (r(K + 1) - r(K)).

    The tokens added are those of the replay, not p_(K+1) of the deep run, so that the rule climbs the predicted curve
    itself. It stops at a K that could not be predicted.
    """
    here = predicted[0]
    for there in predicted[1:]:
        added = there.speed_up.value * there.step_cost.value - here.speed_up.value * here.step_cost.value
        dearer = there.step_cost.value - here.step_cost.value
        if there.draft_tokens != here.draft_tokens + 1 or added <= here.speed_up.value * dearer:
            break
        here = there
    return here.draft_tokens


def _errors(replays: Mapping[int, Replayed | Undefined], ran: Sequence[Point]) -> list[tuple[int, float]]:
    """What the labels' dependence on depth, and chance, did to the replay where it can be seen."""
    found = [(point, replays.get(point.draft_tokens)) for point in ran]
    return [
        (point.draft_tokens, one.mean_accepted_length / point.tokens_per_step - 1)
        for point, one in found
        if isinstance(one, Replayed)
    ]
