"""Acceptance by position: what the draft got right, with its interval and its source.

Owns q_i, c_i, p_i, mean accepted length, rate, coverage and tokens per step of one arm at one load, for the whole mixed
traffic or one class of it. From what the engine reports with each answer where it does, else from its counters, which
know no classes. Nothing drafted or nothing measured is Undefined with the reason, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specdyno.records.deltas import CounterDelta, difference
from specdyno.statistics.analysis import Curve
from specdyno.statistics.intervals import Estimate, Interval, Undefined
from specdyno.statistics.shares import Share, share_interval
from specdyno.statistics.survival import Exposure, survival
from specdyno.statistics.windows import WindowView

COUNTERS = "counters"
DETAILED = "per-request detailed"
SUMMARY = "per-request summary"
TIMINGS = "timings (estimated)"


@dataclass(frozen=True)
class Tally:
    """Sums to resample: one row per request (or per boot, from counters). NaN: not reported.

    Shapes: (N,) and, for `reached` (n_i) and `at_risk` (d_i), (N, K). `decode_steps` counts all steps, drafted or not;
    `emitted` the tokens that came after the first.
    """

    source: str
    boot: np.ndarray
    steps: np.ndarray
    drafted: np.ndarray
    accepted: np.ndarray
    decode_steps: np.ndarray
    emitted: np.ndarray
    reached: np.ndarray
    at_risk: np.ndarray
    requests: int
    session: np.ndarray | None = None  # code of each row's session, -1: none


def tally_requests(views: Sequence[WindowView], k: int) -> Tally | None:
    """What the engine reported with each completed answer; None where it reported nothing."""
    parts = []
    for view in views:
        known = view.done & np.isfinite(view.column("spec_steps")) & np.isfinite(view.column("spec_accepted"))
        parts.append((view.boot.id, view.requests, view.rows[known]))
    rows = np.concatenate([part[2] for part in parts]) if parts else np.zeros(0, dtype=np.int64)
    if len(rows) == 0:
        return None
    requests = parts[0][1]
    steps, accepted = requests.spec_steps[rows], requests.spec_accepted[rows]
    drafted = requests.spec_drafted[rows]
    emitted = requests.tokens[rows] - 1
    reached, at_risk = (_to_depth(table[rows], k) for table in (requests.spec_reached, requests.spec_at_risk))
    # A whole step may overshoot the end of the answer: never fewer decode steps than drafted ones.
    decode_steps = np.maximum(steps, emitted - accepted)
    boot = np.concatenate([np.full(len(part[2]), part[0]) for part in parts])
    source = _source(requests.spec_source, at_risk)
    at_risk = _known_at_risk(steps, drafted, reached=reached, at_risk=at_risk, k=k)
    session = requests.session_code[rows] if requests.session_code is not None else None
    return Tally(source, boot, steps, drafted, accepted, decode_steps, emitted, reached, at_risk, len(rows), session)


def tally_counters(views: Sequence[WindowView], k: int) -> Tally | None:
    """What the engine's counters gained over each window; None where any window lacks them."""
    deltas = [delta_of(view) for view in views]
    known = [delta for delta in deltas if delta is not None and delta.drafts is not None]
    if not deltas or len(known) < len(deltas):
        return None
    columns = {
        name: np.array([_number(getattr(delta, name)) for delta in known])
        for name in ("drafts", "draft_tokens", "accepted_tokens", "decode_steps", "generation_tokens", "first_tokens")
    }
    positions = [tuple(_number(count) for count in delta.accepted_per_position or (None,) * k) for delta in known]
    reached = np.array([(row + (0.0,) * k)[:k] for row in positions]).reshape(len(known), k)
    steps, drafted = columns["drafts"], columns["draft_tokens"]
    at_risk = _known_at_risk(steps, drafted, reached=reached, at_risk=np.full_like(reached, np.nan), k=k)
    return Tally(
        COUNTERS,
        np.array([view.boot.id for view in views]),
        steps,
        drafted,
        columns["accepted_tokens"],
        columns["decode_steps"],
        columns["generation_tokens"] - columns["first_tokens"],
        reached,
        at_risk,
        sum(int(view.done.sum()) for view in views),
    )


def delta_of(view: WindowView) -> CounterDelta | None:
    """What the engine counted in this window; None where a sample is missing or the engine started anew."""
    if view.record.before is None or view.record.after is None:
        return None
    delta = difference(view.record.before, view.record.after)
    return None if delta.since_restart else delta


def measure_curve(views: Sequence[WindowView], cell: tuple[str, str, str | None], *, k: int | None, seed: int) -> Curve:
    """Acceptance of one arm at one load over `views` (its scored mixed windows).

    Args:
        views: one window per boot.
        cell: (arm, load, one class of the mixed windows or None for all traffic).
        k: K in force; None: unknown.
        seed: of the study; intervals by resampling depend on it and on the cell's name only.
    """
    depth = k or 0
    arm, load, class_name = cell
    counted = tally_counters(views, depth) if class_name is None else None
    mine = views if class_name is None else [view.of_class(class_name) for view in views]
    reported = tally_requests(mine, depth)
    if reported is not None and counted is not None and np.isnan(reported.reached).any():
        reported = None if not np.isnan(counted.reached).any() else reported
    tally = reported or counted
    name = f"{arm}/{load}/{class_name}"
    if tally is None or depth == 0:
        return _undefined(views, cell, k)
    share = _ShareOf(tally, seed, name)
    coverage, tokens_per_step = _over_all_steps(share, counted if tally is not counted else None, k=depth)
    return Curve(
        arm=arm,
        load=load,
        class_name=class_name,
        source=tally.source,
        draft_tokens=k,
        drafted_steps=_sum(tally.steps),
        drafted_tokens=_sum(tally.drafted),
        accepted_tokens=_sum(tally.accepted),
        boots=len(np.unique(tally.boot)),
        requests=tally.requests,
        joint=tuple(share("joint", tally.reached[:, i], tally.steps) for i in range(depth)),
        conditional=tuple(share("conditional", tally.reached[:, i], tally.at_risk[:, i]) for i in range(depth)),
        mean_accepted_length=share("length", tally.accepted, tally.steps, scale=depth, offset=1.0),
        rate=share("rate", tally.accepted, tally.drafted),
        coverage=coverage,
        tokens_per_step=tokens_per_step,
        survival=survival(
            Exposure(tally.reached, tally.at_risk, tally.boot, "boots" if tally.source == COUNTERS else "requests"),
            seed=seed,
            name=name,
        ),
    )


@dataclass(frozen=True, slots=True)
class Accepted:
    """Acceptance of some requests of one arm, wherever they were sent."""

    mean_accepted_length: Estimate
    rate: Estimate
    joint: tuple[Estimate, ...]
    drafted_steps: float | None


def measure_accepted(views: Sequence[WindowView], name: str, *, k: int | None, seed: int) -> Accepted:
    """Acceptance of the turns of sessions in `views`, from what the engine reported with each.

    Intervals as in `measure_curve`, but what is resampled within few boots are sessions: turns of one are alike.

    Args:
        views: one cut per boot, all its rows turns of sessions.
        name: of the cell, so that each resamples from its own stream.
        k: K in force; None or 0: nothing was drafted.
        seed: of the study.
    """
    tally = tally_requests(views, k) if k else None
    if tally is None or not k:
        nothing = Undefined("the engine reported no acceptance" if k else "nothing was drafted")
        return Accepted(nothing, nothing, (nothing,) * (k or 0), None)
    summed = _by_session(tally)
    share = _ShareOf(summed, seed, name, units="sessions")
    return Accepted(
        mean_accepted_length=share("length", summed.accepted, summed.steps, scale=k, offset=1.0),
        rate=share("rate", summed.accepted, summed.drafted),
        joint=tuple(share("joint", summed.reached[:, i], summed.steps) for i in range(k)),
        drafted_steps=_sum(summed.steps),
    )


def _by_session(tally: Tally) -> Tally:
    """One row per session of a boot."""
    if tally.session is None:
        return tally
    keys, row = np.unique(np.column_stack([tally.boot, tally.session]), axis=0, return_inverse=True)
    row = row.reshape(-1)

    def summed(values: np.ndarray) -> np.ndarray:
        total = np.zeros((len(keys), *values.shape[1:]))
        np.add.at(total, row, values)
        return total

    return replace(
        tally,
        boot=keys[:, 0],
        session=keys[:, 1],
        steps=summed(tally.steps),
        drafted=summed(tally.drafted),
        accepted=summed(tally.accepted),
        decode_steps=summed(tally.decode_steps),
        emitted=summed(tally.emitted),
        reached=summed(tally.reached),
        at_risk=summed(tally.at_risk),
    )


@dataclass(frozen=True)
class _ShareOf:
    """Intervals of ratios of one tally's columns."""

    tally: Tally
    seed: int
    name: str
    units: str = "requests"

    def __call__(
        self, key: str, part: np.ndarray, whole: np.ndarray, *, scale: float = 1.0, offset: float = 0.0
    ) -> Estimate:
        if not (np.isfinite(part).all() and np.isfinite(whole).all()):
            reason = "the length of each draft is not reported" if key == "conditional" else "not reported"
            return Undefined(reason, self.tally.requests)
        units = "boots" if self.tally.source == COUNTERS else self.units
        share = Share(part, whole, self.tally.boot, units=units, scale=scale, offset=offset)
        return share_interval(share, seed=self.seed, name=f"{self.name}/{key}")


def _over_all_steps(share: _ShareOf, counted: Tally | None, *, k: int) -> tuple[Estimate, Estimate]:
    """Coverage and tokens per step; the counters, where they are read, know the number of all steps exactly."""
    pair = []
    for key in ("coverage", "tokens per step"):
        own, exact = (
            None if tally is None else _step_share(_ShareOf(tally, share.seed, share.name), key, k=k)
            for tally in (share.tally, counted)
        )
        if isinstance(exact, Interval) and isinstance(own, Interval) and not exact.method.startswith("t over"):
            exact = _moved(own, exact.estimate)
        pair.append(exact if isinstance(exact, Interval) else own)
    return pair[0] or Undefined("not measured"), pair[1] or Undefined("not measured")


def _moved(interval: Interval, estimate: float) -> Interval:
    """The same relative width about a better estimate."""
    factor = estimate / interval.estimate if interval.estimate > 0 else 1.0
    low, high = min(estimate, interval.low * factor), max(estimate, interval.high * factor)
    return replace(interval, estimate=estimate, low=low, high=high)


def _step_share(share: _ShareOf, key: str, *, k: int) -> Estimate:
    tally = share.tally
    if key == "coverage":
        return share(key, tally.steps, tally.decode_steps)
    return share(key, tally.emitted - tally.decode_steps, tally.decode_steps, scale=k, offset=1.0)


def _to_depth(table: np.ndarray, k: int) -> np.ndarray:
    """Exactly K columns; positions that no row has were never reached."""
    if table.shape[1] >= k:
        return table[:, :k]
    missing = np.zeros((len(table), k - table.shape[1]))
    return np.concatenate([table, np.where(np.isnan(table[:, :1]), np.nan, missing)], axis=1) if table.size else missing


def _known_at_risk(
    steps: np.ndarray, drafted: np.ndarray, *, reached: np.ndarray, at_risk: np.ndarray, k: int
) -> np.ndarray:
    """d_i as reported, else from n_i where every drafted step proposed exactly K."""
    unknown = np.isnan(at_risk).any(axis=1)
    fixed = unknown & (drafted == k * steps)
    filled = at_risk.copy()
    filled[fixed] = np.concatenate([steps[:, None], reached[:, :-1]], axis=1)[fixed, :k]
    return filled


def _source(sources: tuple[str, ...], at_risk: np.ndarray) -> str:
    if any("timings" in source for source in sources) and np.isnan(at_risk).all():
        return TIMINGS
    if any("detailed" in source for source in sources):
        return DETAILED
    return SUMMARY


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _sum(values: np.ndarray) -> float | None:
    total = float(np.sum(values))
    return total if np.isfinite(total) else None


def _undefined(views: Sequence[WindowView], cell: tuple[str, str, str | None], k: int | None) -> Curve:
    reason = "the draft length is unknown" if k is None else "the engine reported no acceptance"
    nothing = Undefined(reason, 0)
    return Curve(
        *cell, "none", k, None, None, None, len({view.boot.id for view in views}), 0,
        (nothing,) * (k or 0), (nothing,) * (k or 0), nothing, nothing, nothing, nothing,
    )  # fmt: skip
