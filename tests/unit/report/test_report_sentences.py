import pytest

from specdyno.records.schema import FindingCode, Outcome, Severity
from specdyno.report import sentences
from specdyno.statistics.measures import MEASURES
from specdyno.verdict import gates
from specdyno.verdict.schema import Decision, GateStatus, Reason


@pytest.mark.parametrize(
    ("members", "table"),
    [
        (FindingCode, sentences.FINDINGS),
        (Severity, sentences.SEVERITIES),
        (Reason, sentences.REASONS),
        (Decision, sentences.DECISIONS),
        (GateStatus, sentences.GATE_STATUSES),
        (Outcome, sentences.OUTCOMES),
    ],
)
def test_every_member_has_its_own_sentence(members, table):
    assert set(table) == set(members)
    assert len(set(table.values())) == len(table)


@pytest.mark.parametrize("code", list(FindingCode))
def test_a_finding_says_what_was_seen_and_what_to_do(code):
    advice = sentences.FINDINGS[code]
    assert advice.says.endswith(".")
    assert advice.do.endswith(".")
    assert advice.do != advice.says


def test_every_measure_and_gate_has_words():
    assert set(MEASURES) <= set(sentences.MEASURES)
    assert {gates.PRIMARY, gates.TPOT, gates.OUTPUT_LENGTH, gates.FAILED_REQUESTS} == set(sentences.GATES)


def test_the_words_of_the_design_are_defined():
    defined = {word for word, _ in sentences.WORDS}
    assert {"baseline", "candidate", "step", "chunk", "boot", "block", "class", "load", "window", "speed-up"} <= defined
