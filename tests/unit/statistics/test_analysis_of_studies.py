from dataclasses import replace

import pytest
from tests.simulation.generator import HOUR_NS, Truth, make_study

from specdyno.errors import RecordError
from specdyno.records.schema import BootStatus, FindingCode, Severity
from specdyno.statistics.analyse import analyse, plan_of
from specdyno.statistics.blocks import sort_blocks, twice_failed
from specdyno.statistics.intervals import Interval, Undefined


def level_of(analysis, arm, measure, class_name=None, load="pool"):
    return next(
        level
        for level in analysis.levels
        if (level.arm, level.load, level.measure, level.class_name) == (arm, load, measure, class_name)
    )


def test_a_header_without_a_plan_is_a_record_error():
    records = make_study(blocks=1)
    with pytest.raises(RecordError, match="no valid plan"):
        plan_of(replace(records, header=replace(records.header, plan={"study": "x"})))


def test_the_last_complete_attempt_is_scored():
    records = make_study(blocks=4, truth=Truth(broken_boots=frozenset({(1, "eagle3-k1", 0)})))
    blocks = sort_blocks(records, plan_of(records))
    assert blocks.scored[1]["eagle3-k1"].attempt == 1
    assert [state.complete for state in blocks.states] == [True] * 4


def test_an_interrupted_boot_leaves_its_block_incomplete():
    records = make_study(blocks=4)
    boots = tuple(
        replace(b, status=BootStatus.INTERRUPTED) if (b.block, b.arm) == (3, "baseline") else b for b in records.boots
    )
    blocks = sort_blocks(replace(records, boots=boots), plan_of(records))
    assert [state.complete for state in blocks.states] == [True, True, True, False]
    assert blocks.states[3].reason == "no complete boot of baseline"
    assert list(blocks.scored) == [0, 1, 2]


def test_a_candidate_that_failed_twice_does_not_take_the_others_down():
    broken = frozenset({(0, "ngram-k3", 0), (0, "ngram-k3", 1)})
    records = make_study(blocks=4, truth=Truth(broken_boots=broken))
    assert twice_failed(records.boots) == {"ngram-k3"}
    assert list(sort_blocks(records, plan_of(records)).scored) == [0, 1, 2, 3]


def test_a_block_that_took_too_long_is_void():
    records = make_study(blocks=5)
    late = 7 * HOUR_NS
    boots = tuple(
        replace(b, started_unix_ns=b.started_unix_ns + late, ended_unix_ns=b.ended_unix_ns + late)
        if b.block == 2 and b.position == 3
        else b
        for b in records.boots
    )
    analysis = analyse(replace(records, boots=boots))
    assert [state.void for state in analysis.blocks] == [False, False, True, False, False]
    codes = {(f.code, f.severity) for f in analysis.findings}
    assert {(FindingCode.BLOCK_VOID, Severity.DOUBT), (FindingCode.BLOCKS_INCOMPLETE, Severity.DOUBT)} <= codes


def test_a_level_needs_two_blocks_for_an_interval_and_keeps_its_values():
    one, two = (level_of(analyse(make_study(blocks=n)), "baseline", "jobs_per_s") for n in (1, 2))
    assert isinstance(one.value, Undefined)
    assert len(one.by_block) == 1
    assert isinstance(two.value, Interval)


def test_a_quantile_waits_for_its_requests():
    few = analyse(make_study(blocks=4))
    many = analyse(make_study(blocks=4, truth=Truth(requests=60)))
    assert level_of(few, "baseline", "stall_p95").value == Undefined("96 completed requests; 200 are needed", 96)
    assert isinstance(level_of(many, "baseline", "stall_p95").value, Interval)


def test_classes_cut_add_up_to_the_whole():
    analysis = analyse(make_study(blocks=3))
    for arm in analysis.arms:
        mine = {s.class_name: s for s in analysis.summaries if s.arm == arm and s.load == "pool"}
        assert mine[None].requests == mine["code"].requests + mine["chat"].requests == 72
        assert mine[None].output_tokens == mine["code"].output_tokens + mine["chat"].output_tokens


def test_summaries_leave_out_quantiles_of_too_few():
    table = dict(analyse(make_study(blocks=3)).summaries[0].latency_ms)
    assert [name for name, _ in table["ttft"]] == ["mean", "median", "std"]
    assert [name for name, _ in table["itl"]] == ["mean"]
    big = dict(analyse(make_study(blocks=4, truth=Truth(requests=60))).summaries[0].latency_ms)
    assert [name for name, _ in big["tpot"]] == ["mean", "median", "std", "p95"]


def test_without_a_complete_block_single_arms_are_still_shown():
    records = make_study(blocks=1)
    only = tuple(boot for boot in records.boots if boot.arm != "baseline")
    analysis = analyse(replace(records, boots=only))
    assert analysis.contrasts == ()
    assert {curve.arm for curve in analysis.curves} == {"eagle3-k1", "eagle3-k3", "ngram-k3"}


def test_failed_requests_are_counted_by_block():
    analysis = analyse(make_study(blocks=2, truth=Truth(failed_share={"ngram-k3": 1.0})))
    counts = {(c.arm, c.block): (c.failed, c.requests) for c in analysis.outcome_counts if c.load == "pool"}
    assert counts["ngram-k3", 0] == (24, 24)
    assert counts["baseline", 1] == (0, 24)
