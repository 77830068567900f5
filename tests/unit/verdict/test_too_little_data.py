"""No estimate without enough data appears as a number, and no verdict rests on one."""

from dataclasses import replace

import numpy as np
import pytest
from tests.simulation.generator import DEFAULT_PLAN, Truth, make_study

from specdyno.records.schema import Outcome
from specdyno.statistics.intervals import Interval, Undefined
from specdyno.verdict.decide import judge
from specdyno.verdict.schema import Decision, to_json

ONE = {
    **DEFAULT_PLAN,
    "candidates": [{"method": "eagle3", "draft": "org/draft", "draft_tokens": [3]}],
    "loads": [DEFAULT_PLAN["loads"][1]],
    "objectives": [DEFAULT_PLAN["objectives"][1]],
}
FAST = {"eagle3-k3": 1.5}
FAILED = list(Outcome).index(Outcome.BROKEN_STREAM)


def study(*, blocks=4, **truth):
    return make_study(ONE, blocks=blocks, speedups=FAST, truth=Truth(**truth))


def with_column(records, **columns):
    return replace(records, requests=replace(records.requests, **columns))


def only_candidate(verdict):
    return verdict.objectives[0].candidates[0]


def test_this_study_promotes_until_something_is_taken_away():
    assert only_candidate(judge(study())[1]).decision is Decision.PROMOTE


def test_one_block_gives_no_interval_over_blocks_and_no_promote():
    analysis, verdict = judge(study(blocks=1))
    assert only_candidate(verdict).decision is Decision.HOLD
    assert all(isinstance(contrast.ratio, Undefined) for contrast in analysis.contrasts)
    assert verdict.objectives[0].power == ()


def test_one_request_per_window_is_not_a_throughput_at_concurrency_four():
    analysis, verdict = judge(study(requests=1))
    assert only_candidate(verdict).decision is Decision.HOLD
    rates = [one for one in analysis.levels if one.measure == "jobs_per_s" and one.class_name is None]
    assert all(isinstance(one.value, Undefined) for one in rates)


@pytest.mark.parametrize(
    ("name", "value"), [("tokens", 0.0), ("tokens", np.inf), ("tokens", np.nan), ("ended_ns", -1), ("sent_ns", 2**62)]
)
def test_columns_of_nothing_but_bad_values_promote_nothing_and_write_no_nan(name, value):
    records = study()
    column = np.full_like(getattr(records.requests, name), value)
    analysis, verdict = judge(with_column(records, **{name: column}))
    assert only_candidate(verdict).decision is not Decision.PROMOTE
    assert "NaN" not in to_json(verdict, analysis)
    assert "Infinity" not in to_json(verdict, analysis)


def test_with_every_request_failed_nothing_is_measured():
    records = study()
    outcomes = np.full_like(records.requests.outcome_code, FAILED)
    analysis, verdict = judge(with_column(records, outcome_code=outcomes))
    assert only_candidate(verdict).decision is not Decision.PROMOTE
    shown = {one.measure for one in analysis.levels if isinstance(one.value, Interval)}
    assert shown == {"failed_share"}


def test_a_candidate_with_half_its_windows_missing_is_not_judged_on_the_rest():
    records = study()
    mine = {boot.id for boot in records.boots if boot.arm == "eagle3-k3" and boot.block > 1}
    windows = tuple(window for window in records.windows if window.boot_id not in mine)
    verdict = judge(replace(records, windows=windows))[1]
    assert only_candidate(verdict).decision is Decision.HOLD


@pytest.mark.parametrize("measure", ["ttft_p99", "e2e_p99", "stall_p99"])
def test_a_99th_percentile_waits_for_a_thousand_requests(measure):
    few, many = (judge(study(requests=requests, tokens=3.0))[0] for requests in (20, 260))
    for analysis, known in ((few, False), (many, True)):
        mixed = [one for one in analysis.levels if (one.measure, one.class_name) == (measure, None)]
        assert all(isinstance(one.value, Interval) == known for one in mixed)
    assert "1000 are needed" in next(o for o in few.levels if o.measure == measure).value.reason


def test_a_goodput_of_nought_has_no_ratio_and_is_not_said_to_be_unmeasured():
    objective = ONE["objectives"][0] | {"measure": "goodput", "service_level": {"ttft": "1ms"}}
    records = make_study({**ONE, "objectives": [objective]}, blocks=4, speedups=FAST, truth=Truth())
    primary = next(gate for gate in only_candidate(judge(records)[1]).gates if gate.name == "primary")
    assert isinstance(primary.ratio, Undefined)
    assert primary.ratio.reason == "measured in 0 of 4 blocks; it was 0 in 4, which has no ratio"
