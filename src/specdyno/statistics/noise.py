"""Where the spread of a study comes from: order within a block, prompts, finite windows, restarts.

Explains and never decides. Order is balanced over blocks, so a drift widens intervals and leaves estimates alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from specdyno.records.schema import Finding, FindingCode, Severity
from specdyno.statistics.analysis import Drift, NoiseBudget
from specdyno.statistics.intervals import Estimate, Interval, Undefined, spread, t_quantile
from specdyno.statistics.windows import WindowView

LEVEL = 0.95
LARGE_DRIFT = 0.03
"""Change from the first place of a block to the last, beyond which a shown drift is a doubt."""

Places = Mapping[tuple[int, str], int]  # (block, arm) -> place in the block's order


def drift(values: Mapping[str, Mapping[int, float]], places: Places, *, sign: int) -> Estimate:
    """The change of sign x log(value) per place in the block's order, with blocks and arms taken out.

    Args:
        values: arm -> block -> value.
        places: where each boot stood in its block.
        sign: +1 where higher is better.

    Least squares over boots; the interval is Student's with what blocks, arms and the slope leave of the boots.
    """
    rows = [
        (block, arm, places[block, arm], sign * math.log(value))
        for arm, by_block in values.items()
        for block, value in by_block.items()
        if (block, arm) in places and 0 < value < math.inf
    ]
    blocks, arms = (sorted({row[side] for row in rows}, key=str) for side in (0, 1))
    if len(blocks) < 2 or len(arms) < 2:
        return Undefined("fewer than two blocks or arms", len(rows))
    design = np.zeros((len(rows), len(blocks) + len(arms)))
    for i, (block, arm, place, _) in enumerate(rows):
        design[i, blocks.index(block)] = 1.0
        if arms.index(arm):
            design[i, len(blocks) + arms.index(arm) - 1] = 1.0
        design[i, -1] = place
    others, ys, order = design[:, :-1], np.array([row[3] for row in rows]), design[:, -1]
    # What is left of the place once blocks and arms have explained theirs (Frisch, Waugh and Lovell).
    order = order - others @ np.linalg.lstsq(others, order, rcond=None)[0]
    degrees = len(rows) - int(np.linalg.matrix_rank(design))
    weight = float(order @ order)
    if degrees < 1 or weight < 1e-9:
        return Undefined("the order of the boots does not tell place from arm", len(rows))
    ys = ys - others @ np.linalg.lstsq(others, ys, rcond=None)[0]
    slope = float(order @ ys) / weight
    error = math.sqrt(float(np.sum((ys - slope * order) ** 2)) / degrees / weight)
    half = t_quantile(0.5 + LEVEL / 2, degrees) * error
    return Interval(slope, slope - half, slope + half, LEVEL, "least squares over boots, on logs", len(rows))


def drift_finding(found: Drift, arms: int) -> Finding | None:
    """Doubt where a drift is shown and moves the last boot of a block by more than 3 % against the first."""
    slope = found.per_position
    if not isinstance(slope, Interval) or slope.low <= 0 <= slope.high:
        return None
    across = slope.estimate * (arms - 1)
    if abs(across) <= LARGE_DRIFT:
        return None
    detail = f"{found.measure} changes by {math.expm1(across):+.1%} from the first boot of a block to the last"
    return Finding(FindingCode.ORDER_DRIFT, Severity.DOUBT, found.load, detail, load=found.load)


def noise_budget(
    ys: Sequence[tuple[int, float]], pairs: Mapping[int, tuple[WindowView, WindowView]], *, cell: tuple[str, str, str]
) -> NoiseBudget | None:
    """The parts of s of y_b; None below two blocks.

    Args:
        ys: (block, y_b).
        pairs: block -> (candidate's mixed window, baseline's).
        cell: (candidate, load, measure).

    A window's mean time varies with its requests: by the linearised ratio, paired by place in the list, the part of
    y_b that a longer window would take away. The part that both arms share by their prompts cancels in y_b.
    """
    total = spread([y for _, y in ys])
    if total is None or not math.isfinite(total):
        return None
    per_token = cell[2] == "output_tokens_per_s"
    parts = [_window_variances(*pairs[block], per_token=per_token) for block, _ in ys if block in pairs]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(ys):
        return NoiseBudget(*cell, total, None, None, None)
    window, prompts = (math.sqrt(sum(part[side] for part in known) / len(known)) for side in (0, 1))
    boot = math.sqrt(total**2 - window**2) if total > window else None
    return NoiseBudget(*cell, total, prompts, window, boot)


def _window_variances(candidate: WindowView, baseline: WindowView, *, per_token: bool) -> tuple[float, float] | None:
    """(variance of y_b from the requests of one pair of windows, variance that the shared prompts would add)."""
    places, mine, theirs = np.intersect1d(candidate.column("index"), baseline.column("index"), return_indices=True)
    sides = [_deviations(view, rows, per_token=per_token) for view, rows in ((candidate, mine), (baseline, theirs))]
    known = np.isfinite(sides[0]) & np.isfinite(sides[1])
    count = int(known.sum())
    if count < 3 or len(places) == 0:
        return None
    own = float(np.var((sides[0] - sides[1])[known], ddof=1)) / count
    shared = float(np.cov(sides[0][known], sides[1][known])[0, 1]) / count
    return own, max(0.0, shared)


def _deviations(view: WindowView, rows: np.ndarray, *, per_token: bool) -> np.ndarray:
    """Each request's pull on the window's log time per job (or per token); NaN where it was not completed."""
    time = (view.column("ended_ns") - view.column("sent_ns"))[rows].astype(float)
    deviations = _over_mean(np.where(view.done[rows], time, np.nan))
    if per_token:
        deviations = deviations - _over_mean(np.where(view.done[rows], view.column("tokens")[rows], np.nan))
    return deviations


def _over_mean(values: np.ndarray) -> np.ndarray:
    known = values[np.isfinite(values)]
    mean = float(known.mean()) if len(known) else 0.0
    divided: np.ndarray = values / mean if mean > 0 else np.full(len(values), np.nan)
    return divided
