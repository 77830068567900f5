"""Suffix decoding live on vLLM: drafts whose length follows what the traffic repeats.

vLLM takes the suffix tree from arctic-inference; `make engines` builds that part of it where the machine can.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.engine.live import contract_plan, forks_from_baseline, ids_of_changed, measured, why_not

from lab import acceptance, boots, live_plans
from specdyno.errors import EngineError
from specdyno.plan import parse
from specdyno.records.deltas import CounterDelta, difference
from specdyno.records.schema import Outcome
from specdyno.workload.sources import load_pools

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

K = 7
_CHANGED: dict[str, tuple[int, ...]] = {}  # token ids of the answers that are not the baseline's, by prompt


def _reason() -> str:
    if reason := why_not("vllm"):
        return reason
    missing = importlib.util.find_spec("arctic_inference") is None
    return "the suffix tree of arctic-inference is not built (make engines)" if missing else ""


def _booted() -> boots.Booted:
    if reason := _reason():
        pytest.skip(reason)
    found = _boot()
    if isinstance(found, EngineError):  # an engine that would not serve is not tried again for every claim
        raise found
    return found


@functools.cache
def _boot() -> boots.Booted | EngineError:
    text = _plan_text()
    plan = parse.parse(text)
    (pool,) = load_pools(plan, Path()).values()
    then = ids_of_changed(measured("vllm", "baseline").rows, _CHANGED, plan)
    folder = Path(os.environ["SPECDYNO_TEST_LOGS"]) / "suffix"
    with boots.opened(folder, plan, text) as store:
        try:
            log = folder / "suffix.log"
            return boots.boot_once(store, plan, plan.arms()[1], prompts=pool.prompts, log=log, then=then)
        except EngineError as error:
            return error


def _plan_text() -> str:
    plan = yaml.safe_load(live_plans.text("vllm"))
    plan["candidates"] = [{"method": "suffix", "draft_tokens": [K]}]
    return yaml.safe_dump(plan)


def _delta() -> CounterDelta:
    window = _booted().window
    assert window.before is not None
    assert window.after is not None
    return difference(window.before, window.after)


def test_suffix_decoding_answers_with_the_draft_length_asked_for():
    booted = _booted()
    assert {row.outcome for row in booted.rows} <= {Outcome.FINISHED, Outcome.CUT_AT_LIMIT}
    identity = booted.boot.identity
    assert identity is not None
    assert (identity.method, identity.draft_tokens) == ("suffix", K)


def test_drafts_vary_in_length_up_to_k_and_not_every_step_has_one():
    drafted = list(chain.from_iterable(row.spec.per_step_drafted or () for row in _booted().rows if row.spec))
    assert len({length for length in drafted if length}) > 1
    assert max(drafted) <= K
    delta = _delta()
    assert delta.drafts < delta.decode_steps


def test_counters_move_and_agree_with_the_answers():
    delta, rows = _delta(), _booted().rows
    assert delta.problems == ()
    curve = acceptance.curve_of(rows, K)
    assert delta.drafts == curve.steps.sum() > 0
    assert delta.draft_tokens == sum(row.spec.num_draft_tokens for row in rows if row.spec)
    assert delta.accepted_per_position == tuple(curve.reached.sum(axis=0))
    assert delta.accepted_tokens == curve.reached.sum() > 0
    assert list(delta.accepted_per_position) == sorted(delta.accepted_per_position, reverse=True)


def test_no_step_accepts_more_than_it_drafted():
    for row in _booted().rows:
        assert row.spec is not None
        accepted, drafted = np.array(row.spec.per_step_accepted), np.array(row.spec.per_step_drafted)
        assert (accepted <= drafted).all()
        assert (accepted.sum(), drafted.sum()) == (row.spec.num_accepted_draft_tokens, row.spec.num_draft_tokens)


def test_generated_tokens_are_decode_steps_plus_accepted_less_the_trimmed_tail():
    delta, rows = _delta(), _booted().rows
    assert delta.generation_tokens == sum(row.completion_tokens or 0 for row in rows)
    trimmed = delta.decode_steps + delta.accepted_tokens - (delta.generation_tokens - delta.first_tokens)
    assert 0 <= trimmed <= len(rows) * K


def test_where_an_answer_leaves_the_baselines_the_baseline_saw_a_tie(tmp_path: Path):
    rows = _booted().rows
    assert len(_CHANGED) < len(rows)
    forks = forks_from_baseline(contract_plan("vllm"), [_CHANGED], tmp_path)
    assert [fork for fork in forks if not fork.tie] == []
