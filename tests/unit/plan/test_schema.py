"""Arms follow from the plan; what a plan cannot say is refused by the model alone, too."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from specdyno.plan.schema import Plan, Role
from specdyno.plan.spelling import duration_s, duration_text, quoted


def data(**changes: Any) -> dict[str, Any]:
    return {
        "study": "s",
        "target": {"model": "m"},
        "engine": {"kind": "vllm"},
        "candidates": [{"method": "ngram", "draft_tokens": [1, 3]}, {"method": "mtp", "draft_tokens": 2}],
        "workload": {
            "sampling": {"temperature": 0},
            "classes": [{"name": "code", "prompts": "builtin:code", "share": 1, "max_tokens": 8}],
        },
        "loads": [{"name": "pool", "concurrency": 8, "window": "60s"}],
        "objectives": [{"name": "pool", "load": "pool", "measure": "jobs_per_s"}],
        **changes,
    }


def test_arms_are_the_baseline_and_each_length_of_each_candidate() -> None:
    arms = Plan.model_validate(data(experiment={"a_a": True})).arms()
    assert [arm.name for arm in arms] == ["baseline", "ngram-k1", "ngram-k3", "mtp-k2", "baseline-again"]
    assert [arm.role for arm in arms] == [Role.BASELINE, *[Role.CANDIDATE] * 3, Role.A_A]


def test_one_method_with_two_drafts_gives_two_names() -> None:
    drafts = [{"method": "eagle3", "draft": name, "draft_tokens": [2]} for name in ("a", "b")]
    arms = Plan.model_validate(data(candidates=drafts)).arms()
    assert [(arm.name, arm.draft) for arm in arms[1:]] == [("eagle3-k2", "a"), ("eagle3-k2-2", "b")]


def test_misfits_are_refused_without_a_file() -> None:
    with pytest.raises(ValidationError, match="there is no load"):
        Plan.model_validate(data(objectives=[{"name": "o", "load": "none", "measure": "jobs_per_s"}]))


def test_infinite_numbers_are_refused_without_a_file() -> None:
    with pytest.raises(ValidationError):
        Plan.model_validate(data(guards={"tpot": float("nan")}))


@pytest.mark.parametrize("seconds", [0.001, 0.25, 1.0, 59.5, 60.0, 90.0, 3600.0, 86400.0, 1e-7, 0.1 + 0.2])
def test_durations_survive_writing(seconds: float) -> None:
    assert duration_s(duration_text(seconds)) == seconds


def test_quoted_text_stays_on_one_short_line() -> None:
    assert quoted("a\x1b[31m\nb") == r'"a\x1b[31m\nb"'
    assert len(quoted("x" * 500)) == 63
