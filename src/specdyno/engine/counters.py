"""An engine's `/metrics` page as counters in neutral terms.

Owns the spellings under which vLLM, SGLang, llama.cpp and TensorRT-LLM export the same counter, whatever prefix
stands before it. The exposition itself is parsed by prometheus-client. A line that it refuses is dropped and named;
the counter on it becomes unknown. Gauges that hold an interval or a lifetime mean are kept apart (`gauges`): they can
not be differenced.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from specdyno.records.deltas import POSITION, Family, Labels
from specdyno.records.schema import CounterSample, Series

# In order of preference: where one engine exports two spellings of a family, only the first is counted.
# Written without prefix and without the ending `_total`.
SPELLINGS: dict[Family, tuple[str, ...]] = {
    Family.SPEC_DRAFTS: ("spec_decode_num_drafts", "spec_verify_calls", "draft_verify_steps"),
    Family.SPEC_DRAFT_TOKENS: ("spec_decode_num_draft_tokens", "spec_tokens_drafted", "draft_tokens"),
    Family.SPEC_ACCEPTED_TOKENS: ("spec_decode_num_accepted_tokens", "spec_tokens_accepted", "draft_tokens_accepted"),
    Family.SPEC_ACCEPTED_PER_POSITION: ("spec_decode_num_accepted_tokens_per_pos", "spec_decode_accepted_tokens"),
    Family.SPEC_DRAFTED_PER_POSITION: ("spec_decode_num_draft_tokens_per_pos", "spec_decode_drafted_tokens"),
    Family.GENERATION_TOKENS: ("generation_tokens", "tokens_predicted"),
    Family.PROMPT_TOKENS: ("prompt_tokens",),
    Family.CACHED_PROMPT_TOKENS: ("prompt_tokens_cached", "prompt_cached_tokens", "cached_tokens"),
    # One observation per request and engine output, so its count is a count of steps. SGLang observes once per token,
    # but there every decode step of a request is a verification.
    Family.DECODE_STEPS: (
        "spec_verify_calls",
        "inter_token_latency_seconds_count",
        "time_per_output_token_seconds_count",
    ),
    Family.FIRST_TOKENS: ("time_to_first_token_seconds_count",),
    Family.REQUESTS_FINISHED: ("request_success", "num_requests_completed", "num_requests"),
    Family.PREFIX_QUERIES: ("prefix_cache_queries",),
    Family.PREFIX_HITS: ("prefix_cache_hits",),
    Family.PREEMPTIONS: ("num_preemptions",),
}
GAUGES = (
    "spec_accept_length",
    "spec_accept_rate",
    "spec_cap_length",
    "spec_block_accept_length",
    "spec_num_steps",
    "spec_num_draft_tokens",
    "spec_decode_acceptance_length",
    "spec_decode_draft_acceptance_rate",
    "draft_acceptance_rate",
    "draft_mean_accept_len",
    "avg_decoded_tokens_per_iter",
)

_RANKS: dict[str, list[tuple[Family, int]]] = defaultdict(list)
for _family, _spellings in SPELLINGS.items():
    for _rank, _spelling in enumerate(_spellings):
        _RANKS[_spelling].append((_family, _rank))

_ENGINE_WORD = re.compile(r"^(?:vllm|sglang|sgl|llamacpp|llama_cpp|llama|trtllm|trt_llm|tensorrt_llm)_(?=[a-z])")
_PER_TOKEN_ENGINES = (
    "sglang",
    "trtllm",
    "trt_llm",
    "tensorrt_llm",
)  # their latency histograms count tokens or requests
_STEP_HISTOGRAMS = ("inter_token_latency_seconds_count", "time_per_output_token_seconds_count")
_POSITION_LABELS = ("position", "token_position", "pos")
_NOT_KEPT = frozenset({"model_name", *_POSITION_LABELS})
_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_UNREADABLE = (ValueError, IndexError, KeyError)  # what the parser raises on broken lines
_SHOWN = 80  # characters of a broken line to quote


def parse(text: str, *, stamp_ns: int, source: str) -> CounterSample:
    """The canonical counters of one scrape. Never raises on odd text: see `problems` of the result.

    Series are labelled without `model_name`, unless several models are served; a draft position is labelled
    `position` and counted from 0.
    """
    problems: list[str] = []
    samples, broken = _samples(text, problems)
    best = _preferred(samples)
    found = [(family, sample) for sample in samples for family, rank in _families(sample.name) if best[family] == rank]
    series = _series(found, problems)
    lost = {
        family for line in broken for family, rank in _families(_leading_name(line)) if rank <= best.get(family, rank)
    }
    series.extend(Series(family, (), None) for family in sorted(lost))
    if not samples:
        problems.append("no metric in the text: an empty or failed scrape")
    return CounterSample(
        stamp_ns=stamp_ns,
        source=source,
        series=tuple(series),
        process_start=_process_start(samples),
        problems=tuple(problems),
    )


def gauges(text: str) -> tuple[Series, ...]:
    """Gauges about speculation: the value of the last interval or of a lifetime, so never to be differenced."""
    samples, _ = _samples(text, [])
    return tuple(
        Series(name, tuple(sorted(sample.labels.items())), _finite(sample.value))
        for sample in samples
        if (name := next((tail for tail in _tails(sample.name) if tail in GAUGES), None))
    )


def _samples(text: str, problems: list[str]) -> tuple[list[Sample], list[str]]:
    """All samples, and the lines that had to be dropped."""
    text = _COLOUR.sub("", text.removeprefix("\ufeff")).replace("\0", "")
    try:
        return list(_parsed(text)), []
    except _UNREADABLE:
        pass
    samples: list[Sample] = []
    broken: list[str] = []
    for line in text.split("\n"):
        try:
            samples.extend(_parsed(line))
        except _UNREADABLE:
            broken.append(line.strip())
            problems.append(f"unreadable line dropped: {line.strip()[:_SHOWN]}")
    return samples, broken


def _parsed(text: str) -> Iterator[Sample]:
    for metric in text_string_to_metric_families(text):
        yield from metric.samples


def _leading_name(line: str) -> str:
    return re.split(r"[{\s]", line, maxsplit=1)[0]


def _tails(name: str) -> Iterator[str]:
    """The name under each reading of what its prefix is, `_total` cut off.

    A prefix ends with a colon or is an engine's name; names that begin with `spec_` are telling enough to stand
    after any prefix.
    """
    name = name.removesuffix("_total")
    local = name.rpartition(":")[2]
    yield local
    short = _ENGINE_WORD.sub("", local)
    if short != local:
        yield short
    at = local.find("_spec_")
    if at >= 0:
        yield local[at + 1 :]


def _families(name: str) -> list[tuple[Family, int]]:
    """The families that a metric counts, each with the rank of the spelling."""
    for tail in _tails(name):
        if tail in _STEP_HISTOGRAMS and name.startswith(_PER_TOKEN_ENGINES):
            return []
        if tail in _RANKS:
            return _RANKS[tail]
    return []


def _preferred(samples: Iterable[Sample]) -> dict[Family, int]:
    """The best spelling present of each family."""
    best: dict[Family, int] = {}
    for sample in samples:
        for family, rank in _families(sample.name):
            best[family] = min(rank, best.get(family, rank))
    return best


def _series(found: list[tuple[Family, Sample]], problems: list[str]) -> list[Series]:
    first = _first_positions(found)
    by_labels: dict[tuple[Family, Labels], list[Sample]] = defaultdict(list)
    for family, sample in found:
        by_labels[family, _labels(sample, first.get(family, 0))].append(sample)
    series: list[Series] = []
    for (family, labels), twins in by_labels.items():
        models = {sample.labels.get("model_name", "") for sample in twins}
        if len(twins) > 1 and len(models) == len(twins):
            for sample in twins:
                named = tuple(sorted((*labels, ("model_name", sample.labels.get("model_name", "")))))
                series.append(Series(family, named, _count(sample, problems)))
            continue
        if len({sample.value for sample in twins}) > 1:
            problems.append(f"{twins[0].name} stands more than once with different values: unknown")
            series.append(Series(family, labels, None))
            continue
        series.append(Series(family, labels, _count(twins[0], problems)))
    return series


def _labels(sample: Sample, first_position: int) -> Labels:
    labels = {name: value for name, value in sample.labels.items() if name not in _NOT_KEPT}
    place = _position(sample)
    if place is not None:
        labels[POSITION] = str(int(place) - first_position) if first_position and place.isdecimal() else place
    return tuple(sorted(labels.items()))


def _position(sample: Sample) -> str | None:
    return next((sample.labels[name].strip() for name in _POSITION_LABELS if name in sample.labels), None)


def _first_positions(found: list[tuple[Family, Sample]]) -> dict[Family, int]:
    """1 for a family whose `token_position`s are counted from 1; `position` counts from 0 by its definition."""
    places: dict[Family, set[int]] = defaultdict(set)
    for family, sample in found:
        text = sample.labels.get("token_position", "").strip()
        if text.isdecimal() and len(text) < 5:
            places[family].add(int(text))
    return {family: 1 for family, seen in places.items() if 0 not in seen}


def _count(sample: Sample, problems: list[str]) -> float | None:
    value = _finite(sample.value)
    if value is None:
        problems.append(f"{sample.name} is {sample.value}: unknown")
    elif value < 0:
        problems.append(f"rejected: {sample.name} is {value:g}, a count cannot be negative")
        return None
    return value


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _process_start(samples: Iterable[Sample]) -> float | None:
    """The process's own stamp, else the earliest stamp of a known counter. Seconds since 1970."""
    own: list[float] = []
    created: list[float] = []
    for sample in samples:
        if not math.isfinite(sample.value):
            continue
        if sample.name.rpartition(":")[2] == "process_start_time_seconds":
            own.append(float(sample.value))
        elif sample.name.endswith("_created") and _families(_counted_name(sample.name)):
            created.append(float(sample.value))
    return min(own or created, default=None)


def _counted_name(name: str) -> str:
    """The counter or histogram that a `_created` stamp belongs to."""
    stem = name.removesuffix("_created")
    return f"{stem}_count" if stem.endswith("_seconds") else stem
