from dataclasses import replace

import pytest
from tests.unit.report.hand_made_study import interval, verdict

from specdyno.records.schema import Finding, FindingCode, Severity
from specdyno.report import headlines, sentences
from specdyno.statistics.intervals import Undefined
from specdyno.verdict.schema import Decision, GateStatus, Reason


def changed(objective, **changes):
    """The objective with every candidate holding, changed as told."""
    candidates = tuple(replace(one, decision=Decision.HOLD, look=None, **changes) for one in objective.candidates)
    return replace(objective, decision=Decision.HOLD, recommended=None, candidates=candidates)


def test_a_promote_names_candidate_gain_interval_blocks_and_what_was_not_checked():
    said = headlines.headline(verdict().objectives[0], verdict())
    assert said == (
        "Promote eagle3-k3 for interactive (speed only: answers were not checked): "
        "+21.3 % (98.27 % interval +15.4 % to +27.5 %), 4 blocks."
    )


def test_a_hold_says_which_gate_is_open_what_could_be_seen_and_what_would_settle_it():
    objective = verdict().objectives[1]
    said = headlines.headline(objective, verdict())
    assert "a gain of at least 5 % is neither shown nor excluded" in said
    seen, needed = headlines.details(objective, verdict())
    assert "reaches about 5.0 % either way: with this much data a gain of +10.3 % or more would have been shown" in seen
    assert "About 9 to 14 complete blocks in total would settle it; there are 4." in needed
    assert "new study with looks up to 14" in needed


def test_a_hopeless_hold_is_called_so():
    objective = changed(verdict().objectives[1], blocks_needed=(400, 10_000))
    assert "too close to the limit to settle" in headlines.details(objective, verdict())[-1]


def test_a_hold_that_the_plan_can_settle_asks_for_no_new_study():
    objective = changed(verdict().objectives[1], blocks_needed=(6, 8))
    assert headlines.details(objective, verdict())[-1].endswith("there are 4.")


def test_an_open_guard_is_named_with_its_value_and_margin():
    base = verdict().objectives[0]
    gate = replace(base.candidates[0].gates[1], name="tpot", ratio=interval(0.97, 0.03), threshold=1 / 1.05)
    objective = changed(
        base, reason=Reason.GUARD_UNDECIDED, deciding_gate="tpot", gates=(base.candidates[0].gates[0], gate)
    )
    said = headlines.headline(objective, verdict())
    assert "time per output token at \u22123.0 %" in said
    assert "allowed not below \u22124.8 %" in said


def test_a_reject_says_why():
    objective = verdict().objectives[1]
    rejected = replace(objective, decision=Decision.REJECT, best="eagle3-k3")
    said = headlines.headline(rejected, verdict())
    assert said.startswith(
        "Reject for background pool: a gain of at least 5 % is excluded. eagle3-k3 shows \u22124.2 %"
    )


def test_a_forbidding_finding_is_quoted_and_a_mere_note_is_not():
    findings = (
        Finding(FindingCode.FOREIGN_TRAFFIC, Severity.FORBIDS, "block 1"),
        Finding(FindingCode.HOST_BUSY, Severity.DOUBT, "block 2"),
    )
    objective = changed(verdict().objectives[0], reason=Reason.FINDING_FORBIDS, findings=findings)
    said = headlines.headline(objective, verdict())
    assert sentences.FINDINGS[FindingCode.FOREIGN_TRAFFIC].says.rstrip(".") in said
    assert sentences.FINDINGS[FindingCode.HOST_BUSY].says.rstrip(".") not in said


@pytest.mark.parametrize(
    ("complete", "looks", "said"),
    [(2, (4, 6), "2, and the first look is at 4"), (2, (2,), "2, and no promote rests on fewer than 4")],
)
def test_too_few_blocks_are_counted(complete, looks, said):
    whole = replace(verdict(), blocks_complete=complete, looks=looks)
    assert said in headlines.headline(changed(whole.objectives[0], reason=Reason.TOO_FEW_BLOCKS), whole)


def test_what_was_not_measured_gives_its_reason_and_no_number():
    base = verdict().objectives[0]
    gate = replace(base.candidates[0].gates[0], ratio=Undefined("no usage", 0), status=GateStatus.UNDECIDED)
    said = headlines.headline(changed(base, reason=Reason.NOT_MEASURED, gates=(gate,)), verdict())
    assert "time per job was not measured (no usage)" in said
    assert "nan" not in said.lower()


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("decision", list(Decision))
def test_every_reason_gives_a_whole_sentence_even_without_gates(reason, decision):
    base = changed(verdict().objectives[0], reason=reason, gates=(), deciding_gate=None)
    said = headlines.headline(replace(base, decision=decision), verdict())
    assert said.endswith(".")
    assert "None" not in said


def test_the_summary_says_that_objectives_disagree_or_agree():
    assert headlines.summary(verdict()) == (
        "The objectives disagree: promote eagle3-k3 for interactive; hold for background pool."
    )
    agreed = replace(verdict(), objectives=tuple(replace(o, decision=Decision.REJECT) for o in verdict().objectives))
    assert headlines.summary(agreed) == "Reject for interactive and background pool."


def test_two_promotes_of_different_arms_disagree():
    first, second = verdict().objectives
    apart = replace(second, decision=Decision.PROMOTE, recommended="eagle3-k1")
    assert headlines.summary(replace(verdict(), objectives=(first, apart))) == (
        "The objectives disagree: promote eagle3-k3 for interactive; promote eagle3-k1 for background pool."
    )
    alike = replace(apart, recommended="eagle3-k3")
    assert headlines.summary(replace(verdict(), objectives=(first, alike))) == (
        "Promote eagle3-k3 for interactive and background pool."
    )


def test_the_recommendation_names_the_larger_estimate_it_passed_over():
    objective = replace(verdict().objectives[0], recommended="eagle3-k1", best="eagle3-k3")
    assert "eagle3-k3 has the largest estimate, +21.3 %" in headlines.details(objective, verdict())[0]
