"""Tells by its content what kind of text an engine printed, and reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specdyno.engine.reading import llamacpp_log, metrics, per_request, result_files, sglang_info, sglang_log, vllm_log
from specdyno.engine.reading.metrics import read_pair
from specdyno.engine.reading.schema import Kind, Reading, checked, length, lines, number
from specdyno.records.schema import SpecSteps


def read(text: str) -> Reading:
    """Acceptance from a text of unknown kind. Never raises on odd text: an unknown one says so in `problems`."""
    clean = "\n".join(lines(text)).strip()
    if not clean:
        return Reading(Kind.UNKNOWN, problems=("the text is empty",))
    found = [reader(clean) for holds, reader in _LOGS if holds(clean)]
    if clean[0] in "{[" or clean.startswith("data:"):
        page = _read_json(clean)
        found = [page, *found] if page is not None and (not found or page.kind is not Kind.UNKNOWN) else found
    if len(found) > 1:
        return Reading(Kind.MIXED, notes=("several kinds of output: read apart",), parts=tuple(found))
    return found[0] if found else _read_file(clean)


def _read_file(text: str) -> Reading:
    if result_files.is_offline(text):
        return result_files.read_offline(text)
    if (found := metrics.read(text)) is not None:
        return found
    if result_files.is_golden(text):
        return result_files.read_golden(text)
    return Reading(Kind.UNKNOWN, problems=("no known output of an engine was found in the text",))


__all__ = ["read", "read_pair"]

_LOGS: tuple[tuple[Callable[[str], bool], Callable[[str], Reading]], ...] = (
    (lambda text: vllm_log.MARK in text, vllm_log.read),
    (lambda text: sglang_log.MARK.search(text) is not None, sglang_log.read),
    (llamacpp_log.holds, llamacpp_log.read),
)


def _read_json(text: str) -> Reading | None:
    """JSON, JSON lines, or a recorded stream. None if the text is none of these."""
    try:
        return _from_json(json.loads(text))
    except (ValueError, RecursionError):
        pass
    objects: list[Any] = []
    broken = 0
    for line in text.split("\n"):
        body = line.strip().removeprefix("data:").strip()
        if not body or body == "[DONE]":
            continue
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            broken += 1
            continue
        objects.extend([found] if isinstance(found, dict | list) else [])
    if not objects:
        return Reading(Kind.UNKNOWN, problems=("the JSON is cut off or broken",)) if text[0] != "[" else None
    reading = _from_stream(objects) if text.startswith("data:") else _from_json(objects)
    problem = (f"{broken} lines are no JSON and were left out",) if broken else ()
    return replace(reading, problems=(*problem, *reading.problems)) if reading else None


def _from_stream(objects: list[Any]) -> Reading | None:
    """The last event that carries acceptance, or usage."""
    pages = [page for page in objects if isinstance(page, dict)]
    telling = [page for page in pages if per_request.spec_steps(page) is not None]
    if telling or pages:
        return _from_answer((telling or pages)[-1])
    return None


def _from_json(page: Any) -> Reading | None:
    if isinstance(page, list):
        return _from_list(page)
    if not isinstance(page, dict):
        return None
    if sglang_info.holds(page):
        return sglang_info.read(page)
    if result_files.is_bench(page):
        return result_files.read_bench(page)
    if isinstance(page.get("specDecodingStats"), dict):
        return _from_iterations([page])
    return _from_answer(page)


def _from_list(pages: list[Any]) -> Reading | None:
    objects = [page for page in pages if isinstance(page, dict)]
    iterations = [page for page in objects if isinstance(page.get("specDecodingStats"), dict)]
    if iterations:
        return _from_iterations(iterations)
    parts = [part for page in objects if (part := _from_json(page)) is not None]
    if len(parts) == 1:
        return parts[0]
    kinds = {part.kind for part in parts}
    kind = kinds.pop() if len(kinds) == 1 else Kind.MIXED
    notes = (f"{len(parts)} results: kept apart",)
    return Reading(kind, notes=notes, parts=tuple(parts)) if parts else None


def _from_iterations(pages: Sequence[Mapping[str, Any]]) -> Reading:
    """TensorRT-LLM's iteration statistics, each of one iteration, summed."""

    def total(name: str) -> float | None:
        values = [number(page["specDecodingStats"].get(name)) for page in pages]
        return None if None in values else sum(value for value in values if value is not None)

    return checked(
        Reading(
            Kind.TRTLLM_STATISTICS,
            "trtllm iteration statistics",
            steps=total("numRequestsWithDraftTokens"),
            draft_tokens=total("numDraftTokens"),
            accepted_tokens=total("numAcceptedTokens"),
            notes=(f"{len(pages)} iterations summed",),
        )
    )


def _from_answer(page: Mapping[str, Any]) -> Reading:
    steps = per_request.spec_steps(page)
    usage = tuple(per_request.usage_problems(page.get("usage")))
    if steps is None:
        known = any(key in page for key in ("usage", "choices", "timings", "metrics", "meta_info", "sglext"))
        if not known:
            return Reading(Kind.UNKNOWN, problems=("the JSON holds no acceptance that is known",))
        return Reading(Kind.ANSWER, notes=("no acceptance was reported with this answer",), problems=usage)
    return _from_steps(steps, usage)


def _from_steps(steps: SpecSteps, problems: tuple[str, ...]) -> Reading:
    joint: dict[int, float] = {}
    if steps.acceptance_histogram and steps.num_spec_steps:
        reached = steps.num_spec_steps
        for place, count in enumerate(steps.acceptance_histogram[:-1]):
            reached -= count
            joint[place] = reached / steps.num_spec_steps
    return checked(
        Reading(
            Kind.ANSWER,
            steps.source,
            steps=steps.num_spec_steps,
            draft_tokens=steps.num_draft_tokens,
            accepted_tokens=steps.num_accepted_draft_tokens,
            draft_tokens_k=steps.num_spec_tokens,
            mean_accepted_length=length(steps.num_accepted_draft_tokens, steps.num_spec_steps),
            joint=joint,
            estimated=steps.estimated,
            notes=("steps are estimated, not reported",) if steps.estimated else (),
            problems=(*problems, *steps.problems),
        )
    )
