"""The counters of the simulated engine and their exposition under vLLM's names.

Owns what is counted when: accepted tokens before an answer is trimmed, generated tokens after, one inter-token
observation per request and decode step, so that generated - first tokens = decode steps + accepted - trimmed. Values
run from process start; the speculation family is absent when speculation is off.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

_STARTED = time.time()  # imported as the process starts
_LATENCY_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_TOKEN_BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)
FINISH_REASONS = ("stop", "length", "abort", "error")


@dataclass(slots=True)
class Histogram:
    """Observations counted by upper bound, with their sum."""

    bounds: tuple[float, ...] = _LATENCY_BOUNDS
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(slots=True)
class Counters:
    """Cumulative since start. `accepted_at[i]` counts drafts whose position i (from 0) was accepted."""

    draft_tokens: int
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_at: list[int] = field(default_factory=list)
    generated: int = 0
    prompt: int = 0
    prompt_cached: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISH_REASONS, 0))
    inter_token: Histogram = field(default_factory=Histogram)
    first_token: Histogram = field(default_factory=Histogram)
    whole_request: Histogram = field(default_factory=Histogram)
    iteration_tokens: Histogram = field(default_factory=lambda: Histogram(_TOKEN_BOUNDS))

    def __post_init__(self) -> None:
        self.accepted_at = [0] * self.draft_tokens

    def count_prefill(self, *, prompt_tokens: int, cached_tokens: int, waited_s: float) -> None:
        """A request's prompt was read and its first token came out of it."""
        self.prompt += prompt_tokens
        self.prompt_cached += cached_tokens
        self.prefix_queries += prompt_tokens
        self.prefix_hits += cached_tokens
        self.generated += 1
        self.first_token.observe(waited_s)

    def count_decode(self, *, proposed: int, accepted: int, emitted: int, took_s: float) -> None:
        """One decode step of one request; `emitted` is what was left after trimming."""
        if proposed:
            self.drafts += 1
            self.drafted += proposed
            self.accepted += accepted
            for position in range(accepted):
                self.accepted_at[position] += 1
        self.generated += emitted
        self.inter_token.observe(took_s)


@dataclass(frozen=True, slots=True)
class Gauges:
    """State at the moment of a scrape."""

    running: int
    waiting: int


class Exposition:
    """Renders counters as Prometheus text; `unreadable` turns every counter and sum into NaN."""

    def __init__(self, model: str, *, speculating: bool, unreadable: bool = False) -> None:
        self._labels = {"model_name": model, "engine": "0"}
        self._speculating = speculating
        self._unreadable = unreadable
        self._created = time.time()

    def render(self, counters: Counters, gauges: Gauges) -> bytes:
        """One scrape, text format 0.0.4."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Scrape(list(self._families(counters, gauges))))
        return generate_latest(registry)

    def _families(self, counters: Counters, gauges: Gauges) -> Iterator[Metric]:
        yield GaugeMetricFamily("process_start_time_seconds", "Start of the process.", value=_STARTED)
        yield self._gauge("vllm:num_requests_running", gauges.running)
        yield self._gauge("vllm:num_requests_waiting", gauges.waiting)
        yield self._counter("vllm:prompt_tokens", counters.prompt)
        yield self._counter("vllm:prompt_tokens_cached", counters.prompt_cached)
        yield self._counter("vllm:generation_tokens", counters.generated)
        yield self._counter("vllm:prefix_cache_queries", counters.prefix_queries)
        yield self._counter("vllm:prefix_cache_hits", counters.prefix_hits)
        yield self._counter("vllm:num_preemptions", 0)
        yield self._counters("vllm:request_success", "finished_reason", counters.finished)
        yield self._histogram("vllm:time_to_first_token_seconds", counters.first_token)
        yield self._histogram("vllm:inter_token_latency_seconds", counters.inter_token)
        yield self._histogram("vllm:e2e_request_latency_seconds", counters.whole_request)
        yield self._histogram("vllm:iteration_tokens_total", counters.iteration_tokens)
        if self._speculating:
            yield self._counter("vllm:spec_decode_num_drafts", counters.drafts)
            yield self._counter("vllm:spec_decode_num_draft_tokens", counters.drafted)
            yield self._counter("vllm:spec_decode_num_accepted_tokens", counters.accepted)
            by_position = {str(position): count for position, count in enumerate(counters.accepted_at)}
            yield self._counters("vllm:spec_decode_num_accepted_tokens_per_pos", "position", by_position)

    def _readable(self, value: float) -> float:
        return math.nan if self._unreadable else float(value)

    def _gauge(self, name: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, "As vLLM names it.", labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counter(self, name: str, value: float) -> Metric:
        family = CounterMetricFamily(name, "As vLLM names it.", labels=list(self._labels))
        family.add_metric(list(self._labels.values()), self._readable(value), created=self._created)
        return family

    def _counters(self, name: str, label: str, values: dict[str, int]) -> Metric:
        family = CounterMetricFamily(name, "As vLLM names it.", labels=[*self._labels, label])
        for key, value in values.items():
            family.add_metric([*self._labels.values(), key], self._readable(value), created=self._created)
        return family

    def _histogram(self, name: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(name, "As vLLM names it.", labels=list(self._labels))
        buckets: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
            below += count
            buckets.append(("+Inf" if math.isinf(bound) else str(bound), self._readable(below)))
        family.add_metric(list(self._labels.values()), buckets, self._readable(histogram.total))
        family.add_sample(f"{name}_created", self._labels, self._created)
        return family


class _Scrape:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families
