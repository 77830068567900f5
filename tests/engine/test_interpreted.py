"""vLLM's second runner, its Triton kernels interpreted: DSpark live, and acceptance whose truth is known.

DSpark needs vLLM's V2 runner, which needs Triton. Where there is no GPU, Triton's interpreter runs its kernels as
Python, some twenty times slower: few prompts, few boots. The same runner can accept drafts at stated rates, whatever
they say, which is a truth for specdyno's measuring, and text that no candidate may be promoted on.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from scipy import stats
from tests.engine.live import contract_plan, forks_from_baseline, ids_of_changed, why_not

from lab import acceptance, boots, live_plans
from specdyno.errors import EngineError
from specdyno.plan import parse
from specdyno.records.deltas import CounterDelta, difference
from specdyno.records.schema import FindingCode, Outcome, Severity, StudyRecords
from specdyno.statistics.analyse import analyse
from specdyno.statistics.analysis import Curve
from specdyno.statistics.intervals import Interval
from specdyno.verdict.decide import judge
from specdyno.verdict.schema import Decision
from specdyno.workload.sources import load_pools

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

BACKEND = Path(sys.prefix) / "interpreted"
DSPARK, SYNTHETIC = "dspark-k5", "dspark-k3"
CANDIDATES = [DSPARK, SYNTHETIC]
ARMS = ["baseline", *CANDIDATES]
RATES = (0.8, 0.5, 0.3)
ASKED = tuple(f"listed/{kind}-{number}" for number in (1, 2) for kind in ("code", "json", "chat"))
CLIENTS = 4
_CHANGED: dict[str, tuple[int, ...]] = {}  # token ids of DSpark's answers that are not the baseline's, by prompt


def _reason() -> str:
    if reason := why_not("vllm"):
        return reason
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed for this platform"
    if not (BACKEND / "interpreted_triton").is_dir():
        return "Triton's interpreting backend is not installed (make engines)"
    return ""


@functools.cache
def _plan_text() -> str:
    plan = yaml.safe_load(live_plans.text("vllm-interpreted"))
    plan["engine"]["env"] |= {"TRITON_INTERPRET": "1", "PYTHONPATH": str(BACKEND)}
    options = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": list(RATES)}
    plan["candidates"].append({**plan["candidates"][0], "draft_tokens": [len(RATES)], "options": options})
    plan["loads"][0]["concurrency"] = CLIENTS
    return yaml.safe_dump(plan)


def _booted(name: str) -> boots.Booted:
    if reason := _reason():
        pytest.skip(reason)
    found = _boot(name)
    if isinstance(found, EngineError):  # an engine that would not serve is not tried again for every claim
        raise found
    return found


@functools.cache
def _boot(name: str) -> boots.Booted | EngineError:
    plan = parse.parse(_plan_text())
    arm = next(arm for arm in plan.arms() if arm.name == name)
    (pool,) = load_pools(plan, Path()).values()
    asked = [prompt for prompt in pool.prompts if prompt.id in ASKED]
    assert len(asked) == len(ASKED)
    then = ids_of_changed(_booted("baseline").rows, _CHANGED, plan) if name == DSPARK else None
    with boots.opened(_folder(), plan, _plan_text()) as store:
        try:
            return boots.boot_once(store, plan, arm, prompts=asked, log=_folder() / f"{name}.log", then=then)
        except EngineError as error:
            return error


def _folder() -> Path:
    return Path(os.environ["SPECDYNO_TEST_LOGS"]) / "interpreted"


@functools.cache
def _records() -> StudyRecords:
    for name in ARMS:
        _booted(name)
    with boots.opened(_folder(), parse.parse(_plan_text()), _plan_text()) as store:
        return store.read_study()


def _delta(name: str) -> CounterDelta:
    window = _booted(name).window
    assert window.before is not None
    assert window.after is not None
    return difference(window.before, window.after)


def _curve(name: str) -> Curve:
    return next(one for one in analyse(_records()).curves if one.arm == name and one.class_name is None)


@pytest.mark.parametrize("name", ARMS)
def test_vllm_runs_its_second_runner_and_answers(name):
    booted = _booted(name)
    assert {row.outcome for row in booted.rows} <= {Outcome.FINISHED, Outcome.CUT_AT_LIMIT}
    assert all(row.text and row.completion_tokens for row in booted.rows)
    assert "Using V2 Model Runner" in (_folder() / f"{name}.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("on_path", [False, True])
def test_vllm_sees_triton_only_where_the_backend_is_put_on_the_path(on_path):
    if reason := _reason():
        pytest.skip(reason)
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "TRITON_INTERPRET"}}
    if on_path:
        environment |= {"PYTHONPATH": str(BACKEND), "TRITON_INTERPRET": "1"}
    ask = "from vllm.triton_utils import HAS_TRITON; print('seen', HAS_TRITON)"
    done = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True)
    assert f"seen {on_path}" in done.stdout


@pytest.mark.parametrize("name", CANDIDATES)
def test_method_and_draft_length_in_force_are_those_asked_for(name):
    booted = _booted(name)
    identity = booted.boot.identity
    assert identity is not None
    assert (identity.method, identity.draft_tokens) == (str(booted.arm.method), booted.arm.draft_tokens)


@pytest.mark.parametrize("name", CANDIDATES)
def test_counters_move_and_agree_with_the_answers(name):
    booted, delta = _booted(name), _delta(name)
    assert delta.problems == ()
    curve = acceptance.curve_of(booted.rows, booted.arm.draft_tokens or 0)
    assert delta.drafts == curve.steps.sum() > 0
    assert delta.accepted_per_position == tuple(curve.reached.sum(axis=0))
    assert delta.accepted_tokens == curve.reached.sum() > 0
    assert delta.generation_tokens == sum(row.completion_tokens or 0 for row in booted.rows)


@pytest.mark.parametrize("name", ARMS)
def test_generated_tokens_are_decode_steps_plus_accepted_less_the_trimmed_tail(name):
    delta, booted = _delta(name), _booted(name)
    trimmed = delta.decode_steps + (delta.accepted_tokens or 0) - (delta.generation_tokens - delta.first_tokens)
    assert 0 <= trimmed <= len(booted.rows) * (booted.arm.draft_tokens or 0)


def test_where_a_dspark_answer_leaves_the_baselines_the_baseline_saw_a_tie(tmp_path: Path):
    assert len(_CHANGED) < len(_booted(DSPARK).rows)
    forks = forks_from_baseline(contract_plan("vllm"), [_CHANGED], tmp_path)
    assert [fork for fork in forks if not fork.tie] == []


def test_dspark_accepts_what_was_recorded_for_the_same_prompts():
    curve = acceptance.curve_of(_booted(DSPARK).rows, 5)
    entry = acceptance.read()[f"vllm-interpreted/{DSPARK}"]
    same = {name: counts for name, counts in entry["by_prompt"].items() if name in ASKED}
    assert acceptance.outside(curve, acceptance.from_entry({"by_prompt": same})) == []


def test_specdyno_measures_the_rates_at_which_drafts_were_accepted():
    curve = _curve(SYNTHETIC)
    steps = round(curve.drafted_steps or 0)
    assert curve.draft_tokens == len(RATES)
    for estimate, rate in zip(curve.joint, RATES, strict=True):
        assert isinstance(estimate, Interval)
        accepted = round(estimate.estimate * steps)
        assert stats.binomtest(accepted, steps, rate).pvalue > 1e-4, (accepted, steps, rate)
        # A 95 % interval misses one time in twenty; one of twice its width next to never.
        assert 2 * estimate.low - estimate.estimate < rate < 2 * estimate.high - estimate.estimate
    length = curve.mean_accepted_length
    assert isinstance(length, Interval)
    assert length.estimate == pytest.approx(1 + sum(one.estimate for one in curve.joint))


def test_text_of_synthetic_acceptance_is_not_the_baselines():
    baseline = {row.prompt_id: row.text for row in _booted("baseline").rows}
    assert all(row.text != baseline[row.prompt_id] for row in _booted(SYNTHETIC).rows)


def test_synthetic_acceptance_forbids_a_promote_and_dspark_is_only_short_of_blocks():
    _, verdict = judge(_records())
    forbids = {
        name: {one.code for one in verdict.findings if one.severity is Severity.FORBIDS and one.arm in (name, None)}
        for name in CANDIDATES
    }
    assert FindingCode.SYNTHETIC_ACCEPTANCE in forbids[SYNTHETIC]
    assert forbids[DSPARK] <= {FindingCode.TOO_FEW_BLOCKS}
    assert verdict.outcome is Decision.HOLD
