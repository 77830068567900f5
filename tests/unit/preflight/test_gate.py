"""A failed check ends the run unless the plan accepts it by name; doubt is shown and decides nothing."""

from __future__ import annotations

import pytest

from specdyno.errors import PlanError
from specdyno.preflight.gate import pass_or_refuse
from specdyno.preflight.schema import Check, Grade

KNOWN = {"vocabulary_equal", "hidden_size", "block_size"}
FAILED = Check(
    "vocabulary_equal", Grade.FAIL, "32 and 48 tokens", "Use another draft", "a-k1", place="candidates[0].draft"
)
OTHER = Check("hidden_size", Grade.FAIL, "8 and 16", "Use that draft", "b-k1", place="candidates[1].draft")
UNKNOWN = Check("block_size", Grade.UNKNOWN, "not stated", arm="c-k1")
WARNED = Check("block_size", Grade.WARN, "odd", "Look at it", arm="c-k1")
PASSED = Check("hidden_size", Grade.PASS, "both 8", arm="c-k1")


def refused(*checks: Check, accept: tuple[str, ...] = ()) -> PlanError:
    with pytest.raises(PlanError) as caught:
        pass_or_refuse(checks, accept, known=KNOWN)
    return caught.value


def test_every_failure_is_told_at_once_with_its_place_and_its_fix() -> None:
    problems = refused(FAILED, PASSED, OTHER).problems
    assert [problem.place for problem in problems] == ["candidates[0].draft", "candidates[1].draft"]
    assert str(problems[0]) == (
        "candidates[0].draft: a-k1: 32 and 48 tokens. Use another draft. "
        "To measure it nevertheless, write preflight: {accept: [vocabulary_equal]}"
    )


def test_an_accepted_failure_is_a_remark_and_the_others_still_refuse() -> None:
    remarks = pass_or_refuse([FAILED, PASSED], ["vocabulary_equal"], known=KNOWN)
    assert remarks == ["a-k1: vocabulary_equal: accepted: 32 and 48 tokens"]
    assert [problem.place for problem in refused(FAILED, OTHER, accept=("vocabulary_equal",)).problems] == [OTHER.place]


def test_what_is_not_known_and_what_is_doubted_are_remarks() -> None:
    remarks = pass_or_refuse([UNKNOWN, WARNED, PASSED], [], known=KNOWN)
    assert remarks == ["c-k1: block_size: not known: not stated", "c-k1: block_size: odd. Look at it"]


def test_a_name_that_no_check_has_is_refused_with_the_one_that_was_meant() -> None:
    error = refused(PASSED, accept=("block_size", "vocabulary-equl"))
    assert [problem.place for problem in error.problems] == ["preflight.accept[1]"]
    assert error.problems[0].remedy == "Did you mean vocabulary_equal?"
    assert "Known: block_size, hidden_size" in str(refused(accept=("zzz",)))


def test_nothing_to_say_is_no_remark() -> None:
    assert pass_or_refuse([PASSED], [], known=KNOWN) == []
