import json
from dataclasses import replace

import pytest
from tests.simulation.generator import DEFAULT_PLAN, DEFAULT_SPEEDUPS, Truth, make_study

from specdyno.records.schema import BootStatus, Finding, FindingCode, Severity
from specdyno.verdict.decide import decide, judge
from specdyno.verdict.schema import Decision, GateStatus, Reason, to_json

ONE = {
    **DEFAULT_PLAN,
    "candidates": [{"method": "eagle3", "draft": "org/draft", "draft_tokens": [3]}],
    "objectives": [DEFAULT_PLAN["objectives"][1]],
}


def one(speedup, *, plan=None, blocks=4, **truth):
    """The only candidate's verdict in a study of one objective (jobs per second)."""
    records = make_study({**ONE, **(plan or {})}, blocks=blocks, speedups={"eagle3-k3": speedup}, truth=Truth(**truth))
    return judge(records)[1].objectives[0].candidates[0]


def test_one_setting_two_objectives_two_verdicts():
    verdict = judge(make_study(blocks=4))[1]
    interactive, pool = verdict.objectives
    decisions = {c.candidate: c.decision for c in pool.candidates}
    assert decisions == {"eagle3-k1": Decision.PROMOTE, "eagle3-k3": Decision.REJECT, "ngram-k3": Decision.REJECT}
    assert (interactive.recommended, pool.recommended) == ("eagle3-k3", "eagle3-k1")
    assert verdict.outcome is Decision.PROMOTE
    assert verdict.quality == "not measured"


@pytest.mark.parametrize(
    ("speedup", "decision", "reason"),
    [
        (1.20, Decision.PROMOTE, Reason.GAIN_SHOWN),
        (1.05, Decision.HOLD, Reason.PRIMARY_UNDECIDED),
        (0.98, Decision.REJECT, Reason.GAIN_EXCLUDED),
    ],
)
def test_gain_decides(speedup, decision, reason):
    candidate = one(speedup)
    assert (candidate.decision, candidate.reason, candidate.deciding_gate) == (decision, reason, "primary")


def test_fewer_than_four_blocks_never_promote():
    for looks, blocks in (((4,), 3), ((2, 3), 3), ((3,), 3)):
        candidate = one(2.0, plan={"experiment": {"looks": looks}}, blocks=blocks)
        assert (candidate.decision, candidate.reason) == (Decision.HOLD, Reason.TOO_FEW_BLOCKS)


def test_a_study_cut_off_in_its_first_block_wants_blocks():
    records = make_study(ONE, blocks=1)
    boots = tuple(replace(boot, status=BootStatus.INTERRUPTED) for boot in records.boots)
    assert judge(replace(records, boots=boots))[1].objectives[0].candidates[0].reason is Reason.TOO_FEW_BLOCKS


def test_the_first_crossing_is_frozen():
    records = make_study(ONE, blocks=12, speedups={"eagle3-k3": 1.2})
    analysis, verdict = judge(records)
    later = tuple(
        replace(c, by_block=tuple((b, y if b < 4 else -1.0) for b, y in c.by_block)) for c in analysis.contrasts
    )
    again = decide(records, replace(analysis, contrasts=later))
    assert verdict.objectives[0].candidates[0].look == 4
    assert again.objectives[0].candidates[0].decision is Decision.PROMOTE
    assert again.objectives[0].candidates[0].gates == verdict.objectives[0].candidates[0].gates


@pytest.mark.parametrize(
    ("blocks", "decision", "reason"),
    [
        ({}, Decision.PROMOTE, Reason.GAIN_SHOWN),
        (dict.fromkeys(range(4), (0.0, 0.6)), Decision.HOLD, Reason.PRIMARY_UNDECIDED),
        ({0: (0.30, None)}, Decision.PROMOTE, Reason.GAIN_SHOWN),
        ({0: (-0.30, None)}, Decision.HOLD, Reason.PRIMARY_UNDECIDED),
        ({0: (None, 0.30)}, Decision.HOLD, Reason.PRIMARY_UNDECIDED),
        (dict.fromkeys(range(4), (None, -0.3)), Decision.REJECT, Reason.GAIN_EXCLUDED),
        ({0: (None, None)}, Decision.HOLD, Reason.NOT_MEASURED),
    ],
)
def test_blocks_of_which_a_side_is_known_decide_on_that_side_alone(blocks, decision, reason):
    plan = {**ONE, "objectives": [{**ONE["objectives"][0], "scopes": False}]}
    records = make_study(plan, blocks=4, speedups={"eagle3-k3": 1.35})
    analysis = judge(records)[0]
    contrasts = tuple(
        replace(
            c,
            by_block=tuple(pair for pair in c.by_block if pair[0] not in blocks),
            bounds=tuple((block, *blocks.get(block, (y - 0.01, y + 0.01))) for block, y in c.by_block),
        )
        if (c.measure, c.class_name, c.load) == ("jobs_per_s", None, "pool")
        else c
        for c in analysis.contrasts
    )
    candidate = decide(records, replace(analysis, contrasts=contrasts)).objectives[0].candidates[0]
    assert (candidate.decision, candidate.reason) == (decision, reason)
    assert candidate.blocks_needed is None


def test_blocks_past_the_last_complete_look_are_not_used():
    five, four = one(1.05, blocks=5), one(1.05, blocks=4)
    assert five.gates == four.gates


def test_a_shorter_answer_is_not_a_faster_one():
    candidate = one(1.4, length_factor={"eagle3-k3": 0.8}, boot_spread=0.003)
    assert (candidate.decision, candidate.deciding_gate) == (Decision.REJECT, "output_length")
    assert FindingCode.OUTPUT_LENGTH_DIFFERS in {f.code for f in candidate.findings}


def test_failing_requests_break_a_guard():
    candidate = one(1.4, failed_share={"eagle3-k3": 0.4})
    gate = next(gate for gate in candidate.gates if gate.name == "failed_requests")
    assert gate.status is GateStatus.MISSED
    assert candidate.decision is Decision.REJECT


def test_a_guard_that_is_off_is_no_gate():
    candidate = one(1.4, plan={"guards": {"tpot": None, "output_length": None, "failed_requests": None}})
    assert [gate.name for gate in candidate.gates] == ["primary"]


def test_tpot_binds_only_where_the_primary_is_throughput():
    interactive, pool = judge(make_study(blocks=4))[1].objectives
    assert "tpot" not in {g.name for g in interactive.candidates[0].gates}
    assert "tpot" in {g.name for g in pool.candidates[0].gates}


def test_an_engine_that_failed_twice_is_rejected_and_once_is_a_finding():
    once = one(1.3, broken_boots=frozenset({(1, "eagle3-k3", 0)}))
    assert once.decision is Decision.PROMOTE
    assert FindingCode.ENGINE_FAILED in {f.code for f in once.findings}
    twice = one(1.3, broken_boots=frozenset({(1, "eagle3-k3", 0), (1, "eagle3-k3", 1)}))
    assert (twice.decision, twice.reason) == (Decision.REJECT, Reason.FAILED_TO_RUN)


def test_one_candidates_harm_spares_the_others():
    broken = frozenset({(0, "ngram-k3", 0), (0, "ngram-k3", 1)})
    verdict = judge(make_study(blocks=4, truth=Truth(broken_boots=broken)))[1]
    assert verdict.objectives[0].recommended == "eagle3-k3"


def test_a_forbidding_finding_holds_and_never_lifts_a_reject():
    records = make_study(blocks=4)
    doubt = Finding(FindingCode.FOREIGN_TRAFFIC, Severity.FORBIDS, "by hand")
    before, after = judge(records)[1], judge(replace(records, findings=(doubt,)))[1]
    assert after.outcome is Decision.HOLD
    for old, new in zip(before.objectives[1].candidates, after.objectives[1].candidates, strict=True):
        assert new.decision is (Decision.REJECT if old.decision is Decision.REJECT else Decision.HOLD)
    assert after.objectives[0].candidates[0].reason is Reason.FINDING_FORBIDS


def test_a_finding_about_one_candidate_or_load_stays_there():
    records = make_study(blocks=4)
    doubt = Finding(FindingCode.FOREIGN_TRAFFIC, Severity.FORBIDS, "by hand", arm="eagle3-k3", load="interactive")
    verdict = judge(replace(records, findings=(doubt,)))[1]
    assert [o.recommended for o in verdict.objectives] == ["eagle3-k1", "eagle3-k1"]


def test_more_than_a_third_of_the_blocks_incomplete_forbids():
    records = make_study(ONE, blocks=6, speedups={"eagle3-k3": 1.3})
    boots = tuple(
        replace(b, status=BootStatus.INTERRUPTED) if b.arm == "baseline" and b.block in (1, 3) else b
        for b in records.boots
    )
    assert judge(replace(records, boots=boots))[1].outcome is Decision.PROMOTE
    boots = tuple(replace(b, status=BootStatus.INTERRUPTED) if b.block == 5 else b for b in boots)
    verdict = judge(replace(records, boots=boots))[1]
    assert (verdict.outcome, verdict.blocks_incomplete) == (Decision.HOLD, 3)


def test_a_measure_missing_in_one_block_is_not_measured():
    records = make_study(ONE, blocks=4, speedups={"eagle3-k3": 1.3})
    analysis = judge(records)[0]
    gap = tuple(replace(c, by_block=c.by_block[1:]) if c.measure == "jobs_per_s" else c for c in analysis.contrasts)
    candidate = decide(records, replace(analysis, contrasts=gap)).objectives[0].candidates[0]
    assert (candidate.decision, candidate.reason) == (Decision.HOLD, Reason.NOT_MEASURED)


def test_within_noise_of_the_best_the_smallest_k_is_recommended():
    same = make_study(blocks=4, speedups={"eagle3-k1": 1.30, "eagle3-k3": 1.305, "ngram-k3": 0.9})
    apart = make_study(blocks=4, speedups=DEFAULT_SPEEDUPS)
    assert judge(same)[1].objectives[0].recommended == "eagle3-k1"
    assert judge(apart)[1].objectives[0].recommended == "eagle3-k3"


def test_a_hold_says_how_many_blocks_would_settle_it():
    candidate = one(1.065, boot_spread=0.02)
    assert candidate.reason is Reason.PRIMARY_UNDECIDED
    low, high = candidate.blocks_needed
    assert 5 <= low < high
    assert one(1.3).blocks_needed is None


def test_the_same_records_give_the_same_bytes_without_nan():
    first, second = (to_json(*reversed(judge(make_study(blocks=4)))) for _ in range(2))
    assert first == second
    assert "NaN" not in first
    gate = json.loads(first)["verdict"]["objectives"][0]["candidates"][0]["gates"][0]
    assert set(gate["ratio"]) == {"estimate", "low", "high", "level", "method", "count"}


def test_what_is_undefined_is_written_with_its_reason():
    text = json.loads(to_json(*reversed(judge(make_study(blocks=1)))))
    assert text["verdict"]["objectives"][0]["candidates"][0]["gates"][0]["ratio"] == {
        "undefined": "one block: no spread between boots",
        "count": 1,
    }


def test_the_fingerprint_names_what_the_evidence_holds_for():
    print_ = judge(make_study(blocks=4))[1].fingerprint
    assert print_["engine"] == "simulated"
    assert print_["arms"]["eagle3-k3"] == {"method": "eagle3", "draft_tokens": 3, "draft": "org/draft"}
    assert print_["settings"]["dtype"] == "bfloat16"
