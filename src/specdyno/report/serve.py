"""The keys of `vllm bench serve`, unchanged in meaning, per arm and load over the scored mixed windows.

Units are theirs: milliseconds, percent for the acceptance rate, fractions for the acceptance per position. A key is
absent where it was not measured. Totals are sums over boots, so a rate is a mean over them and not a median.
"""

from __future__ import annotations

from typing import Any

from specdyno.records.schema import StudyHeader
from specdyno.statistics.analysis import Analysis, ArmSummary, Curve
from specdyno.statistics.intervals import Interval

_STATISTICS = ("mean", "median", "std", "p95", "p99")
_LATENCIES = ("ttft", "tpot", "itl", "e2el")


def entries(header: StudyHeader, analysis: Analysis) -> list[dict[str, Any]]:
    """One flat record per arm and load, in the order of the analysis; `arm` and `load` say which."""
    loads = {load["name"]: load for load in header.plan.get("loads", ())}
    curves = {(one.arm, one.load): one for one in analysis.curves if one.class_name is None}
    return [
        {
            "arm": one.arm,
            "load": one.load,
            **_without_none({"max_concurrency": loads.get(one.load, {}).get("concurrency")}),
            **_totals(one),
            **_latencies(one),
            **(_acceptance(curves[one.arm, one.load]) if (one.arm, one.load) in curves else {}),
        }
        for one in analysis.summaries
        if one.class_name is None
    ]


def _totals(one: ArmSummary) -> dict[str, Any]:
    parts = (one.prompt_tokens, one.output_tokens)
    tokens = None if None in parts else sum(part for part in parts if part is not None)
    return _without_none(
        {
            "num_prompts": one.requests,
            "completed": one.done,
            "failed": one.failed,
            "duration": one.duration_s if one.duration_s > 0 else None,
            "total_input_tokens": _whole(one.prompt_tokens),
            "total_output_tokens": _whole(one.output_tokens),
            "request_throughput": _rate(one.done, one.duration_s),
            "output_throughput": _rate(one.output_tokens, one.duration_s),
            "total_token_throughput": _rate(tokens, one.duration_s),
        }
    )


def _latencies(one: ArmSummary) -> dict[str, float]:
    found = {name: dict(values) for name, values in one.latency_ms}
    return {
        f"{statistic}_{name}_ms": found[name][statistic]
        for name in _LATENCIES
        for statistic in _STATISTICS
        if statistic in found.get(name, {})
    }


def _acceptance(curve: Curve) -> dict[str, Any]:
    rate = 100 * curve.rate.estimate if isinstance(curve.rate, Interval) else None
    length = curve.mean_accepted_length
    whole_curve = all(isinstance(value, Interval) for value in curve.joint) and bool(curve.joint)
    return _without_none(
        {
            "spec_decode_acceptance_rate": rate,
            "spec_decode_acceptance_length": length.estimate if isinstance(length, Interval) else None,
            "spec_decode_num_drafts": _whole(curve.drafted_steps),
            "spec_decode_draft_tokens": _whole(curve.drafted_tokens),
            "spec_decode_accepted_tokens": _whole(curve.accepted_tokens),
            "spec_decode_per_position_acceptance_rates": [
                value.estimate for value in curve.joint if isinstance(value, Interval)
            ]
            if whole_curve
            else None,
        }
    )


def _rate(total: float | None, seconds: float) -> float | None:
    return total / seconds if total is not None and seconds > 0 else None


def _whole(value: float | None) -> int | float | None:
    return int(value) if value is not None and value == int(value) else value


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
