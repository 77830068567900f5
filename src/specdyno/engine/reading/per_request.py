"""Acceptance that an engine reports with one answer: vLLM, SGLang, llama.cpp and TensorRT-LLM.

Owns the places and names of these objects in a response or in the last event of a stream. Never raises on odd input:
what cannot be used is None with a word in `problems`. Runs once per request in the load client, so it only looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from specdyno.records.schema import SpecSteps

_Object = Mapping[str, Any]
_LARGEST = 2**53  # beyond it a float no longer tells whole numbers apart
_LONGEST_KEY = 4  # digits of a draft length in a map, so that a broken one cannot ask for much memory


@dataclass(slots=True)
class _Found:
    """Counts on their way to a `SpecSteps`."""

    source: str
    steps: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    k: int | None = None
    histogram: tuple[int, ...] | None = None
    per_step_accepted: tuple[int, ...] | None = None
    per_step_drafted: tuple[int, ...] | None = None
    estimated: bool = False
    problems: list[str] = field(default_factory=list)


def spec_steps(payload: Any) -> SpecSteps | None:
    """Acceptance of one request from its answer, or from the last event of its stream; None if it has none.

    Where the engine gives no number of steps it is derived, and `estimated` is set.
    """
    if not isinstance(payload, dict):
        return None
    tokens = _completion_tokens(payload)
    for found in _candidates(payload, tokens):
        _check(found)
        return SpecSteps(
            source=found.source,
            num_spec_steps=found.steps,
            num_draft_tokens=found.drafted,
            num_accepted_draft_tokens=found.accepted,
            num_spec_tokens=found.k,
            acceptance_histogram=found.histogram,
            per_step_accepted=found.per_step_accepted,
            per_step_drafted=found.per_step_drafted,
            estimated=found.estimated,
            problems=tuple(found.problems),
        )
    return None


def usage_problems(usage: Any) -> list[str]:
    """What does not add up in a `usage` object, each with what to do; empty if all is well."""
    if not isinstance(usage, dict):
        return []
    problems: list[str] = []
    prompt = _usage_count(usage, "prompt_tokens", problems)
    completion = _usage_count(usage, "completion_tokens", problems)
    total = _usage_count(usage, "total_tokens", problems)
    reasoning = _detail(usage, "reasoning_tokens", "completion_tokens_details", problems)
    cached = _detail(usage, "cached_tokens", "prompt_tokens_details", problems)
    if reasoning is not None and completion is not None and reasoning > completion:
        problems.append(
            f"{reasoning} reasoning tokens of {completion} completion tokens: trust the completion tokens only "
            "after re-tokenising a sample"
        )
    if cached is not None and prompt is not None and cached > prompt:
        problems.append(f"{cached} cached tokens of {prompt} prompt tokens: do not use the cached count")
    if prompt is not None and completion is not None and total is not None and total != prompt + completion:
        problems.append(f"{prompt} prompt and {completion} completion tokens do not make {total} in total")
    return problems


def _usage_count(usage: _Object, name: str, problems: list[str]) -> int | None:
    value = usage.get(name)
    count = _count(value)
    if value is not None and count is None:
        problems.append(f"{name} is {value!r}, which is no count")
    return count


def _detail(usage: _Object, name: str, group: str, problems: list[str]) -> int | None:
    details = usage.get(group)
    return _usage_count(details if isinstance(details, dict) and name in details else usage, name, problems)


def _candidates(payload: _Object, tokens: int | None) -> Iterator[_Found]:
    choices = [choice for choice in _listed(payload.get("choices")) if isinstance(choice, dict)]
    places = [payload, *choices]
    reports = [report for place in places if (report := _steps_object(place)) is not None]
    if len(reports) > 1:
        yield _Found("several choices", problems=["acceptance on several choices cannot be told apart: n must be 1"])
    for report in reports[:1]:
        yield _from_steps_object(report)
    for place in places:
        if (details := _sglang_object(place)) is not None:
            yield _from_sglang(details, tokens)
    timings = payload.get("timings")
    if isinstance(timings, dict) and "draft_n" in timings:
        yield _from_timings(timings)
    for choice in choices[:1]:
        if (found := _from_mean(choice, tokens)) is not None:
            yield found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _steps_object(place: _Object) -> _Object | None:
    metrics = place.get("metrics")
    for holder in (metrics, place):
        report = holder.get("speculative_decoding") if isinstance(holder, dict) else None
        if isinstance(report, dict) and report:
            return report
    return None


def _from_steps_object(report: _Object) -> _Found:
    """The object of vLLM, and TensorRT-LLM's, which names its totals otherwise."""
    trtllm = "total_draft_tokens" in report or "total_accepted_draft_tokens" in report
    found = _Found("")
    found.steps = _named(report, "num_spec_steps", problems=found.problems)
    found.drafted = _named(report, "num_draft_tokens", "total_draft_tokens", problems=found.problems)
    found.accepted = _named(report, "num_accepted_draft_tokens", "total_accepted_draft_tokens", problems=found.problems)
    found.k = _named(report, "num_spec_tokens", problems=found.problems)
    found.histogram = _histogram(report.get("acceptance_histogram"), found)
    found.per_step_accepted = _sequence(report, "per_step_accepted", found)
    found.per_step_drafted = _sequence(report, "per_step_drafted", found)
    engine = "trtllm" if trtllm else "vllm"
    found.source = f"{engine} per-request {'summary' if found.per_step_accepted is None else 'detailed'}"
    return found


def _sglang_object(place: _Object) -> _Object | None:
    extension = place.get("sglext")
    details = extension.get("spec_tokens_details") if isinstance(extension, dict) else None
    for report in (details, place.get("meta_info")):
        if isinstance(report, dict) and "spec_verify_ct" in report:
            return report
    return None


def _from_sglang(details: _Object, tokens: int | None) -> _Found:
    found = _Found("sglang per-request")
    found.steps = _named(details, "spec_verify_ct", problems=found.problems)
    accepted = _named(details, "spec_num_correct_drafts", "spec_accept_token_num", problems=found.problems)
    drafted = _named(details, "spec_num_proposed_drafts", "spec_draft_token_num", problems=found.problems)
    if tokens is None:
        tokens = _count(details.get("completion_tokens"))
    # Older servers fill what they do not know with 0: steps without any proposal are such a case.
    if found.steps and not drafted:
        found.source = "sglang per-request (accepted from completion tokens)"
        found.estimated = True
        found.accepted = tokens - found.steps if tokens is not None and tokens >= found.steps else None
        return found
    found.accepted, found.drafted = accepted, drafted
    found.histogram = _histogram(details.get("spec_correct_drafts_histogram") or None, found)
    if found.steps and drafted is not None and drafted % found.steps == 0:
        found.k = drafted // found.steps
    return found


def _from_timings(timings: _Object) -> _Found:
    """llama.cpp gives tokens only. The first token comes from the prompt, each step adds one of the target's own."""
    found = _Found("llama.cpp timings (steps estimated)", estimated=True)
    found.drafted = _named(timings, "draft_n", problems=found.problems)
    found.accepted = _named(timings, "draft_n_accepted", problems=found.problems)
    predicted = _named(timings, "predicted_n", problems=found.problems)
    if predicted is not None and found.accepted is not None:
        steps = predicted - 1 - found.accepted
        if steps > 0:
            found.steps = steps
        else:
            found.problems.append(f"{predicted} tokens with {found.accepted} accepted leave no step: steps unknown")
    return found


def _from_mean(choice: _Object, tokens: int | None) -> _Found | None:
    """TensorRT-LLM's mean alone; 1 says nothing, since it is printed without speculation too."""
    mean = choice.get("avg_decoded_tokens_per_iter")
    if isinstance(mean, bool) or not isinstance(mean, int | float) or not 1 < mean < float("inf") or not tokens:
        return None
    steps = max(1, round(tokens / mean))
    return _Found("trtllm mean per iteration (estimated)", steps=steps, accepted=tokens - steps, estimated=True)


def _completion_tokens(payload: _Object) -> int | None:
    usage = payload.get("usage")
    return _count(usage.get("completion_tokens")) if isinstance(usage, dict) else None


def _count(value: Any) -> int | None:
    """A count: a whole number from 0 up, also where it is written as a float."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= _LARGEST
        or value != value // 1
    ):
        return None
    return int(value)


def _named(report: _Object, *names: str, problems: list[str]) -> int | None:
    for name in names:
        value = report.get(name)
        if value is None:
            continue
        count = _count(value)
        if count is None:
            problems.append(f"rejected: {name} is {str(value)[:40]}, which is no count")
        return count
    return None


def _sequence(report: _Object, name: str, found: _Found) -> tuple[int, ...] | None:
    value = report.get(name)
    if value is None:
        return None
    counts = [_count(item) for item in value] if isinstance(value, list) else [None]
    if any(count is None for count in counts):
        found.problems.append(f"rejected: {name} is no list of counts")
        return None
    return tuple(count for count in counts if count is not None)


def _histogram(value: Any, found: _Found) -> tuple[int, ...] | None:
    """Counts of steps by accepted tokens, from a list or from a map that leaves zeros out."""
    if value is None:
        return None
    if isinstance(value, dict):
        places = {
            _count(int(key)) if str(key).isdecimal() and len(str(key)) <= _LONGEST_KEY else None: _count(count)
            for key, count in value.items()
        }
        if None in places:
            found.problems.append("rejected: the acceptance histogram has a key that is no draft length")
            return None
        size = max([place for place in places if place is not None] + [found.k or 0], default=0) + 1
        counts = [places.get(place, 0) for place in range(size)]
    else:
        counts = [_count(item) for item in value] if isinstance(value, list) else [None]
    if not counts or any(count is None for count in counts):
        found.problems.append("rejected: the acceptance histogram is no list of counts")
        return None
    return tuple(count for count in counts if count is not None)


def _check(found: _Found) -> None:
    """Fill in what the histogram tells, then drop what contradicts itself or cannot be."""
    _check_per_step(found)
    _check_histogram(found)
    if found.accepted is not None and found.drafted is not None and found.accepted > found.drafted:
        found.problems.append(f"rejected: {found.accepted} accepted of {found.drafted} drafted tokens")
        found.accepted = found.histogram = None
    if found.estimated or not found.steps or found.k is None:
        return
    most = found.steps * found.k
    if found.drafted is not None and found.drafted > most:
        found.problems.append(f"rejected: {found.drafted} drafted tokens in {found.steps} steps of {found.k}")
        found.drafted = None
    if found.accepted is not None and found.accepted > most:
        found.problems.append(f"rejected: {found.accepted} accepted tokens in {found.steps} steps of {found.k}")
        found.accepted = found.histogram = None


def _check_per_step(found: _Found) -> None:
    accepted, drafted = found.per_step_accepted, found.per_step_drafted
    if accepted is None:
        found.per_step_drafted = None
        return
    reason = ""
    if drafted is not None and len(drafted) != len(accepted):
        reason = "are of different length"
    elif drafted is not None and any(a > d for a, d in zip(accepted, drafted, strict=True)):
        reason = "accept more than was drafted"
    elif found.steps is not None and len(accepted) != found.steps:
        reason = f"are {len(accepted)} where {found.steps} steps are reported"
    elif found.accepted is not None and sum(accepted) != found.accepted:
        reason = f"add up to {sum(accepted)} where {found.accepted} accepted tokens are reported"
    if reason:
        found.problems.append(f"rejected: the per-step lists {reason}")
        found.per_step_accepted = found.per_step_drafted = None
        return
    found.steps = len(accepted) if found.steps is None else found.steps
    found.accepted = sum(accepted) if found.accepted is None else found.accepted
    if found.drafted is None and drafted is not None:
        found.drafted = sum(drafted)


def _check_histogram(found: _Found) -> None:
    histogram = found.histogram
    if histogram is None:
        return
    steps, accepted = sum(histogram), sum(place * count for place, count in enumerate(histogram))
    deepest = max((place for place, count in enumerate(histogram) if count), default=0)
    reason = ""
    if found.steps is not None and steps != found.steps:
        reason = f"holds {steps} steps, {found.steps} are reported"
    elif found.accepted is not None and accepted != found.accepted:
        reason = f"holds {accepted} accepted tokens, {found.accepted} are reported"
    elif found.k is not None and deepest > found.k:
        reason = f"holds steps that accepted {deepest} of {found.k} draft tokens"
    if reason:
        found.problems.append(f"rejected: the acceptance histogram {reason}")
        found.histogram = None
        return
    found.steps = steps if found.steps is None else found.steps
    found.accepted = accepted if found.accepted is None else found.accepted
