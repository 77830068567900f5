"""Totals of one arm at one load, for the table and the exported keys; nothing here decides.

Latencies follow `vllm bench serve`: ttft, tpot = (e2e - ttft) / (tokens - 1) per request, e2el, and itl, which is the
gap between chunks and under speculation a step time, not a time per token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specdyno.records.schema import Outcome
from specdyno.statistics.analysis import ArmSummary
from specdyno.statistics.windows import WindowView

QUANTILES = (("p95", 0.95, 200), ("p99", 0.99, 1000))
"""Name, quantile and the fewest values that can carry it."""


def summarise(views: Sequence[WindowView], *, arm: str, load: str, class_name: str | None) -> ArmSummary:
    """Sums over `views`, the scored mixed windows of the arm at the load, or one class's cut of them."""
    windows = [(view.record.id, _duration_s(view)) for view in views]
    cut = list(views) if class_name is None else [view.of_class(class_name) for view in views]
    codes = _column(cut, "outcome_code")
    done = np.concatenate([view.done for view in cut]) if cut else np.zeros(0, dtype=bool)
    outcomes = tuple(
        (outcome.value, int(np.sum(codes == code)))
        for code, outcome in enumerate(Outcome)
        if len(codes) and np.any(codes == code)
    )
    prompts = {
        int(code) for view in cut if view.requests.prompt_code is not None for code in view.column("prompt_code")
    }
    return ArmSummary(
        arm=arm,
        load=load,
        class_name=class_name,
        boots=len({view.boot.id for view in views}),
        requests=len(codes),
        done=int(done.sum()),
        failed=int((~done).sum()),
        outcomes=outcomes,
        prompt_tokens=_total(_column(cut, "prompt_tokens")[done]),
        output_tokens=_total(_column(cut, "tokens")[done]),
        duration_s=sum(seconds for _, seconds in windows),
        distinct_prompts=len(prompts),
        latency_ms=_latencies(cut, done),
    )


def _column(views: Sequence[WindowView], name: str) -> np.ndarray:
    return np.concatenate([view.column(name) for view in views]) if views else np.zeros(0)


def _total(values: np.ndarray) -> float | None:
    total = float(np.sum(values)) if len(values) else np.nan
    return total if np.isfinite(total) else None


def _duration_s(view: WindowView) -> float:
    sent, ended = view.column("sent_ns"), view.column("ended_ns")
    known = (sent >= 0) & (ended >= sent)
    return float(ended[known].max() - sent[known].min()) / 1e9 if known.any() else 0.0


def _latencies(views: Sequence[WindowView], done: np.ndarray) -> tuple[tuple[str, tuple[tuple[str, float], ...]], ...]:
    names = ("intended_ns", "first_text_ns", "last_text_ns", "ended_ns", "tokens", "chunks")
    start, first, last, ended, tokens, chunks = (_column(views, name)[done] for name in names)
    text = (first >= start) & (start >= 0)
    whole = text & (ended >= first)
    with np.errstate(invalid="ignore"):
        several = whole & (tokens >= 2)
    streamed = text & (chunks >= 2) & (last > first)
    tables = [
        ("ttft", _described((first - start)[text] / 1e6)),
        ("tpot", _described((ended - first)[several] / 1e6 / (tokens[several] - 1))),
        ("e2el", _described((ended - start)[whole] / 1e6)),
    ]
    if streamed.any():
        gap = float(np.sum((last - first)[streamed]) / np.sum(chunks[streamed] - 1) / 1e6)
        tables.insert(2, ("itl", (("mean", gap),)))
    return tuple((name, table) for name, table in tables if table)


def _described(values: np.ndarray) -> tuple[tuple[str, float], ...]:
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return ()
    table = [("mean", float(np.mean(values))), ("median", float(np.median(values))), ("std", float(np.std(values)))]
    table += [(name, float(np.quantile(values, at))) for name, at, least in QUANTILES if len(values) >= least]
    return tuple(table)
