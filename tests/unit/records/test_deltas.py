"""What may be concluded from two samples of cumulative counters."""

from __future__ import annotations

import pytest

from specdyno.records.deltas import CANONICAL, CounterDelta, Family, difference
from specdyno.records.schema import CounterSample, Series

DRAFTS, DRAFTED, ACCEPTED = Family.SPEC_DRAFTS, Family.SPEC_DRAFT_TOKENS, Family.SPEC_ACCEPTED_TOKENS
PER_POSITION = Family.SPEC_ACCEPTED_PER_POSITION


def sample(counts, *, at=None, start=100.0, problems=(), engine="0"):
    series = [Series(family, (("engine", engine),), value) for family, value in counts.items()]
    for place, value in (at or {}).items():
        series.append(Series(PER_POSITION, (("engine", engine), ("position", str(place))), value))
    return CounterSample(0, "test", tuple(series), process_start=start, problems=problems)


def merged(*samples):
    return CounterSample(
        0, "test", tuple(s for one in samples for s in one.series), process_start=samples[0].process_start
    )


def test_a_delta_gives_length_rate_and_joint_acceptance():
    before = sample({DRAFTS: 21, DRAFTED: 105, ACCEPTED: 39}, at=dict(enumerate((9, 5, 9, 8, 8))))
    after = sample({DRAFTS: 100, DRAFTED: 500, ACCEPTED: 200}, at=dict(enumerate((60, 40, 40, 35, 25))))
    delta = difference(before, after)
    assert (delta.drafts, delta.draft_tokens, delta.accepted_tokens, delta.draft_tokens_k) == (79, 395, 161, 5)
    assert delta.accepted_per_position == (51, 35, 31, 27, 17)
    assert delta.mean_accepted_length == pytest.approx(1 + 161 / 79)
    assert delta.acceptance_rate == pytest.approx(161 / 395)
    assert delta.joint == pytest.approx(tuple(n / 79 for n in (51, 35, 31, 27, 17)))
    assert delta.active is True
    assert not delta.problems
    assert not delta.since_restart


def test_what_is_not_exported_is_unknown_and_not_zero():
    delta = difference(sample({Family.GENERATION_TOKENS: 1}), sample({Family.GENERATION_TOKENS: 6}))
    assert delta == CounterDelta(generation_tokens=5)
    assert delta.active is None
    assert (delta.mean_accepted_length, delta.acceptance_rate, delta.joint, delta.coverage) == (None,) * 4


def test_the_start_of_the_process_tells_a_reset_even_where_no_value_fell():
    delta = difference(sample({DRAFTS: 30, ACCEPTED: 50}), sample({DRAFTS: 40, ACCEPTED: 70}, start=500.0))
    assert (delta.drafts, delta.accepted_tokens) == (40, 70)
    assert delta.since_restart
    assert any("since restart" in problem for problem in delta.problems)


@pytest.mark.parametrize("start", [None, 100.0])
def test_a_fallen_value_tells_a_reset_of_everything_from_that_engine(start):
    before = sample({DRAFTS: 1000, ACCEPTED: 1800, Family.GENERATION_TOKENS: 10}, start=start)
    after = sample({DRAFTS: 40, ACCEPTED: 70, Family.GENERATION_TOKENS: 200}, start=start)
    delta = difference(before, after)
    assert (delta.drafts, delta.accepted_tokens, delta.generation_tokens) == (40, 70, 200)
    assert delta.mean_accepted_length == pytest.approx(2.75)
    assert delta.since_restart


def test_one_of_two_engines_restarting_leaves_the_other_counted_from_its_start():
    before = merged(sample({DRAFTS: 1000}), sample({DRAFTS: 500}, engine="1"))
    after = merged(sample({DRAFTS: 40}), sample({DRAFTS: 560}, engine="1"))
    delta = difference(before, after)
    assert delta.drafts == 40 + 60
    assert delta.since_restart


def test_a_family_that_first_appears_was_at_zero_in_the_same_process():
    before = sample({Family.GENERATION_TOKENS: 3})
    delta = difference(before, sample({Family.GENERATION_TOKENS: 40, DRAFTS: 12, DRAFTED: 36, ACCEPTED: 20}))
    assert delta.drafts == 12
    assert delta.draft_tokens_k == 3
    assert delta.mean_accepted_length == pytest.approx(2.67, abs=0.005)


def test_absence_proves_nothing_where_the_first_sample_was_not_read_whole():
    before = sample({Family.GENERATION_TOKENS: 3}, problems=("unreadable line dropped: vllm:spec",))
    delta = difference(before, sample({Family.GENERATION_TOKENS: 40, DRAFTS: 12}))
    assert delta.drafts is None
    assert delta.generation_tokens == 37
    assert delta.problems


def test_zero_drafts_mean_not_active_and_undefined_acceptance():
    counts = {DRAFTS: 0, DRAFTED: 0, ACCEPTED: 0}
    delta = difference(
        sample({**counts, Family.GENERATION_TOKENS: 100}), sample({**counts, Family.GENERATION_TOKENS: 5100})
    )
    assert delta.active is False
    assert delta.generation_tokens == 5000
    assert delta.mean_accepted_length is None
    assert delta.acceptance_rate is None
    assert delta.joint is None


@pytest.mark.parametrize(("was", "now"), [(5, 3), (3, 5)])
def test_another_number_of_positions_is_refused(was, now):
    before = sample({DRAFTS: 10, DRAFTED: 50, ACCEPTED: 20}, at=dict.fromkeys(range(was), 4))
    after = sample(
        {DRAFTS: 20, DRAFTED: 80, ACCEPTED: 30, Family.GENERATION_TOKENS: 9}, at=dict.fromkeys(range(now), 6)
    )
    delta = difference(before, after)
    assert (delta.drafts, delta.draft_tokens, delta.accepted_tokens, delta.draft_tokens_k) == (None,) * 4
    assert delta.accepted_per_position is None
    assert delta.generation_tokens == 9
    assert any("fresh baseline" in problem for problem in delta.problems)


def test_positions_that_were_not_there_yet_are_no_other_draft_length():
    before = sample({DRAFTS: 0, DRAFTED: 0, ACCEPTED: 0})
    delta = difference(before, sample({DRAFTS: 10, DRAFTED: 20, ACCEPTED: 9}, at={0: 6, 1: 3}))
    assert delta.accepted_per_position == (6, 3)
    assert not delta.problems


def test_speculation_that_went_away_is_unknown_and_said():
    before = sample({DRAFTS: 10, Family.GENERATION_TOKENS: 5})
    delta = difference(before, sample({Family.GENERATION_TOKENS: 9}, start=900.0))
    assert delta.drafts is None
    assert any("fresh baseline" in problem for problem in delta.problems)


@pytest.mark.parametrize("side", ["before", "after"])
def test_one_bad_engine_makes_the_family_unknown_and_leaves_others(side):
    bad = sample({DRAFTS: None, Family.GENERATION_TOKENS: 7}, engine="9")
    good = sample({DRAFTS: 3, Family.GENERATION_TOKENS: 7}, engine="9")
    before = merged(sample({DRAFTS: 1, Family.GENERATION_TOKENS: 1}), bad if side == "before" else good)
    after = merged(sample({DRAFTS: 5, Family.GENERATION_TOKENS: 4}), bad if side == "after" else good)
    delta = difference(before, after)
    assert delta.drafts is None
    assert delta.generation_tokens == 3
    assert any("spec_drafts" in problem for problem in delta.problems)


def test_series_that_vanish_make_the_family_unknown():
    before = merged(sample({DRAFTS: 1}), sample({DRAFTS: 1}, engine="1"))
    delta = difference(before, sample({DRAFTS: 5}))
    assert delta.drafts is None
    assert any("engine='1'" in problem for problem in delta.problems)


def test_a_vanished_engine_is_no_loss_after_a_restart():
    before = merged(sample({DRAFTS: 1}), sample({DRAFTS: 1}, engine="1"))
    delta = difference(before, sample({DRAFTS: 5}, start=900.0))
    assert delta.drafts == 5
    assert delta.since_restart


def test_more_accepted_than_drafted_is_rejected_with_the_reason():
    delta = difference(sample({}), sample({DRAFTS: 10, DRAFTED: 30, ACCEPTED: 31}, at={0: 12, 1: 10, 2: 9}))
    assert delta.accepted_tokens is None
    assert delta.accepted_per_position is None
    assert delta.mean_accepted_length is None
    assert delta.draft_tokens == 30
    assert any(problem.startswith("rejected: 31 accepted of 30") for problem in delta.problems)


@pytest.mark.parametrize("at", [{0: 3, 1: 5}, {0: 11, 1: 2}])
def test_positions_that_cannot_be_are_rejected(at):
    delta = difference(sample({}), sample({DRAFTS: 10, DRAFTED: 20, ACCEPTED: 8}, at=at))
    assert delta.accepted_per_position is None
    assert delta.accepted_tokens == 8
    assert any(problem.startswith("rejected") for problem in delta.problems)


def test_too_few_positions_for_the_counts_leave_k_unknown():
    delta = difference(sample({}), sample({DRAFTS: 500, DRAFTED: 1313, ACCEPTED: 1054}, at={0: 430}))
    assert delta.draft_tokens_k is None
    assert delta.mean_accepted_length == pytest.approx(3.108)
    assert delta.joint == (0.86,)


def test_a_gap_in_the_positions_stays_a_gap():
    delta = difference(sample({}), sample({DRAFTS: 10, DRAFTED: 30}, at={0: 6, 2: 3}))
    assert delta.accepted_per_position == (6, None, 3)
    assert delta.joint == (0.6, None, 0.3)
    assert any("positions 1 are missing" in problem for problem in delta.problems)


def test_drafted_and_accepted_by_position_give_the_totals():
    series = [
        Series(family, (("position", str(place)),), value)
        for family, values in {
            Family.SPEC_DRAFTED_PER_POSITION: (20, 18, 15),
            PER_POSITION: (15, 9, 3),
        }.items()
        for place, value in enumerate(values)
    ]
    delta = difference(CounterSample(0, "t", ()), CounterSample(1, "t", tuple(series)))
    assert (delta.drafts, delta.draft_tokens, delta.accepted_tokens, delta.draft_tokens_k) == (20, 53, 27, 3)
    assert delta.drafted_per_position == (20, 18, 15)


def test_tokens_per_step_counts_all_steps_and_length_only_drafted_ones():
    after = sample(
        {
            DRAFTS: 79,
            ACCEPTED: 161,
            Family.GENERATION_TOKENS: 704,
            Family.FIRST_TOKENS: 8,
            Family.DECODE_STEPS: 535,
        }
    )
    delta = difference(sample({}), after)
    assert delta.tokens_per_step == pytest.approx(696 / 535)
    assert delta.mean_accepted_length == pytest.approx(3.0380, abs=5e-5)
    assert delta.coverage == pytest.approx(79 / 535)


def test_foreign_names_are_left_alone():
    after = CounterSample(1, "t", (Series("python_gc_objects", (), 5.0),))
    assert difference(CounterSample(0, "t", ()), after) == CounterDelta()
    assert "python_gc_objects" not in CANONICAL
