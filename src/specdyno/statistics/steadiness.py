"""Did the rate of a window settle? MSER-5 on the token rate, as a check that raises a doubt and cuts nothing.

K. P. White, "An effective truncation heuristic for bias reduction in simulation output" (1997): of all cuts at the
front, the one that makes the standard error of the rest smallest. A cut that finds nothing but noise changes little.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from specdyno.records.schema import Finding, FindingCode, Severity
from specdyno.statistics.windows import WindowView

BATCH, MOST_BATCHES, LEAST_BATCHES = 5, 40, 10
REQUESTS_PER_BATCH = 10
"""A batch holds so many requests and lasts as long as one at least; finer ones are lumps, in which chance cuts."""
LARGE, STANDARD_ERRORS = 0.02, 4.0
"""The window's rate must change by so much without its front, and the front differ by so many standard errors."""
_ROWS = 20_000


def token_rate(view: WindowView) -> np.ndarray | None:
    """Tokens per second in equal parts of the span of full occupancy, `BATCH` to a batch; None for too few requests.

    Texts are taken as flowing evenly from their first to their last stamp.
    """
    if view.span is None or view.span_s is None:
        return None
    first, last, tokens = (view.column(name) for name in ("first_text_ns", "last_text_ns", "tokens"))
    known = (first >= 0) & (last > first) & np.isfinite(tokens)
    count = int(known.sum())
    batches = min(MOST_BATCHES, count // REQUESTS_PER_BATCH, count // (view.record.concurrency or 1))
    if batches < LEAST_BATCHES:
        return None
    bins = batches * BATCH
    edges = np.linspace(view.span[0], view.span[1], bins + 1)
    arrived = np.zeros(bins + 1)
    start, length, weight = first[known], (last - first)[known], tokens[known]
    for part in range(0, len(start), _ROWS):
        cut = slice(part, part + _ROWS)
        share = (edges[None] - start[cut, None]) / length[cut, None]
        arrived += weight[cut] @ np.clip(share, 0.0, 1.0)
    return np.diff(arrived) / (view.span_s / bins)


def mser_cut(values: np.ndarray, batch: int = BATCH) -> int:
    """How many batches MSER cuts off the front: at most half of them.

    >>> mser_cut(np.array([0.0] * 20 + [1.0, 1.1] * 40))
    4
    """
    means = values[: len(values) // batch * batch].reshape(-1, batch).mean(axis=1)
    count = len(means)
    scores = [float(np.sum((means[d:] - means[d:].mean()) ** 2)) / (count - d) ** 2 for d in range(count // 2)]
    return int(np.argmin(scores)) if scores else 0


def front_effect(values: np.ndarray) -> float | None:
    """What the front that MSER would cut adds to the mean, as a share of the rest; None where it is nothing to name."""
    cut = mser_cut(values)
    means = values[: len(values) // BATCH * BATCH].reshape(-1, BATCH).mean(axis=1)
    rest, front = means[cut:], means[:cut]
    if cut == 0 or rest.mean() <= 0:
        return None
    error = float(np.std(rest, ddof=1)) * np.sqrt(1 / cut + 1 / len(rest))
    effect = float(means.mean() / rest.mean() - 1)
    if abs(effect) <= LARGE or abs(float(front.mean() - rest.mean())) <= STANDARD_ERRORS * error:
        return None
    return effect


def steadiness_findings(views: Iterable[WindowView]) -> list[Finding]:
    """One doubt per arm and load whose mixed windows had not settled: where, and the largest effect."""
    effects: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for view in views:
        rate = token_rate(view)
        effect = front_effect(rate) if rate is not None and np.isfinite(rate).all() else None
        if effect is not None:
            effects.setdefault((view.boot.arm, view.record.load), []).append((view.boot.block, effect))
    found = []
    for (arm, load), seen in effects.items():
        blocks = ", ".join(str(block + 1) for block, _ in seen)
        worst = max((effect for _, effect in seen), key=abs)
        detail = f"the start of the window moves its token rate by up to {worst:+.1%}"
        place = f"block{'s' if len(seen) > 1 else ''} {blocks}, {arm}, {load}"
        found.append(Finding(FindingCode.NOT_STEADY, Severity.DOUBT, place, detail, arm, load))
    return found
