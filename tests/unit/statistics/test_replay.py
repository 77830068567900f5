"""Replay at a smaller K: hand-worked strings, an account by enumeration, and what is refused."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdyno.plan.schema import Method
from specdyno.records.schema import SpecSteps
from specdyno.statistics.intervals import Interval, Undefined
from specdyno.statistics.replay import BLOCK, HISTORY, replay, replay_answers


def cut(accepted, k, *, measured):
    return replay(accepted, [[measured] * len(row) for row in accepted], draft_tokens=k)


def report(accepted, drafted=None, k=4):
    drafted = [k] * len(accepted) if drafted is None else drafted
    return SpecSteps(
        "vllm per-request detailed", len(accepted), sum(drafted), sum(accepted), k,
        per_step_accepted=tuple(accepted), per_step_drafted=tuple(drafted),
    )  # fmt: skip


def test_the_string_is_cut_again_by_hand():
    # 4, 3, 0 of 4 is the string 1111? 1110 0, and c_4 = 1/2 stands for the bonus token
    two, one = cut([[4, 3, 0]], 2, measured=4), cut([[4, 3, 0]], 1, measured=4)
    assert (two.steps, two.accepted_per_position) == (4.5, (3.0, 2.5))
    assert (one.steps, one.accepted_per_position) == (6.0, (4.0,))
    assert (two.labels, two.unknown, two.beyond, two.imputed_rate) == (10, 1, 0.0, 0.5)
    assert two.mean_accepted_length == 1 + 5.5 / 4.5


def test_without_a_fully_accepted_draft_nothing_is_imputed():
    # 3, 2 of 4 is 1110 110; K 2 cuts 11(1) 0 11(0)
    found = cut([[3, 2]], 2, measured=4)
    assert (found.steps, found.accepted_per_position) == (3.0, (2.0, 2.0))
    assert (found.unknown, found.imputed_rate) == (0, None)


def test_a_last_step_runs_past_the_end_instead_of_being_dropped():
    # 1110 and 1111?: K 3 cuts 111(0) and 111(1) ?.. with 1/2 for each of the three tokens from the last on
    found = cut([[3], [4]], 3, measured=4)
    assert found.steps == 3.0
    assert found.accepted_per_position == (2.5, 2.25, 2.125)
    assert found.beyond == pytest.approx(0.25 * 1 + 0.125 * 2 + 0.125 * 3)


def enumerated(rows, k, measured):
    """Mean counts over every way to fill the unknown labels, each cut by a plain loop."""
    pooled = [a for row in rows for a in row]
    rate = sum(a == measured for a in pooled) / max(1, sum(a >= measured - 1 for a in pooled))
    steps = accepted = 0.0
    for row in rows:
        string = [label for a in row for label in [1] * a + [None if a == measured else 0]]
        padded = string + [None] * k
        holes = [i for i, label in enumerate(padded) if label is None]
        for fill in product((0, 1), repeat=len(holes)):
            weight = rate ** sum(fill) * (1 - rate) ** (len(fill) - sum(fill))
            filled = dict(zip(holes, fill, strict=True))
            at = 0
            while at < len(string):
                ones = 0
                while ones < k and filled.get(at + ones, padded[at + ones]):
                    ones += 1
                steps, accepted, at = steps + weight, accepted + weight * ones, at + ones + 1
    return steps, accepted


@given(st.data())
def test_counts_are_the_mean_over_every_way_to_fill_the_unknown_labels(data):
    measured = data.draw(st.integers(1, 4))
    k = data.draw(st.integers(1, measured))
    rows = data.draw(st.lists(st.lists(st.integers(0, measured), min_size=1, max_size=5), min_size=1, max_size=3))
    found = cut(rows, k, measured=measured)
    steps, accepted = enumerated(rows, k, measured)
    assert found.steps == pytest.approx(steps)
    assert found.accepted == pytest.approx(accepted)


@given(st.data())
def test_labels_are_kept_or_dropped_and_every_step_adds_one_token(data):
    measured = data.draw(st.integers(1, 6))
    k = data.draw(st.integers(1, measured))
    rows = data.draw(st.lists(st.lists(st.integers(0, measured), min_size=1, max_size=30), min_size=1, max_size=5))
    drafted = [[measured] * len(row) for row in rows]
    if data.draw(st.booleans()):
        drafted[0][-1] = rows[0][-1] = measured - 1
    found = replay(rows, drafted, draft_tokens=k, measured=measured)
    if isinstance(found, Undefined):
        assert [len(row) for row in rows] == [1], "the only step was cut by the end of its answer"
        return
    assert found.labels + found.dropped == sum(sum(row) + len(row) for row in rows)
    assert found.steps + found.accepted == pytest.approx(found.labels + found.beyond)
    assert found.beyond >= -1e-9
    assert list(found.accepted_per_position) == sorted(found.accepted_per_position, reverse=True)
    assert found.accepted_per_position[0] <= found.steps + 1e-9
    assert found.tokens_per_step.low <= found.tokens_per_step.estimate <= found.tokens_per_step.high


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=20), min_size=1, max_size=5))
def test_at_the_measured_k_a_replay_is_the_run_itself(rows):
    found = cut(rows, 5, measured=5)
    pooled = [a for row in rows for a in row]
    assert found.steps == len(pooled)
    assert found.accepted_per_position == tuple(sum(a > i for a in pooled) for i in range(5))
    assert found.beyond == 0


def test_answers_of_any_length_and_number_are_cut_alike():
    rows = [[(7 * i + j) % 5 for j in range(1 + i % 9)] for i in range(1200)]
    drafted = [[4] * len(row) for row in rows]
    found, turned = (replay(r, d, draft_tokens=2) for r, d in ((rows, drafted), (rows[::-1], drafted[::-1])))
    assert found.steps == pytest.approx(turned.steps)
    assert found.answers == 1200
    assert found.steps + found.accepted == pytest.approx(found.labels + found.beyond)


def test_the_interval_resamples_answers_and_says_of_how_many_boots():
    reports = [report([4, i % 3, 2, 4 - i % 2]) for i in range(30)]
    one = replay_answers(reports, 2, method=Method.DRAFT_MODEL).tokens_per_step
    assert isinstance(one, Interval)
    assert one.method == "bootstrap over requests, within one boot"
    assert one.low < one.estimate < one.high
    two = replay_answers(reports, 2, method=Method.DRAFT_MODEL, boots=[0, 1] * 15).tokens_per_step
    assert two.method == "bootstrap over requests, within 2 boots"
    assert replay_answers(reports, 2, method=Method.DRAFT_MODEL).tokens_per_step == one, "same records, same interval"


@pytest.mark.parametrize(("method", "by_depth"), [("draft_model", False), ("eagle3", True), ("mtp", True)])
def test_chains_say_that_their_labels_may_depend_on_depth(method, by_depth):
    assert replay_answers([report([4, 1])], 2, method=Method(method)).by_depth is by_depth


@pytest.mark.parametrize("method", sorted(HISTORY | BLOCK))
def test_history_and_block_methods_are_refused(method):
    found = replay_answers([report([4, 1])], 2, method=method)
    assert isinstance(found, Undefined)
    assert "run each K" in found.reason


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"parallel_drafting": True}, "block"),
        ({"speculative_token_tree": "[(0,), (1,)]"}, "tree"),
        ({"speculative_eagle_topk": 4}, "tree"),
    ],
)
def test_options_that_make_trees_or_blocks_are_refused(options, word):
    assert word in replay_answers([report([4, 1])], 2, method=Method.EAGLE3, options=options).reason
    assert replay_answers([report([4, 1])], 2, method=Method.EAGLE3, options={"speculative_eagle_topk": 1}).steps


SUMMARY = SpecSteps("vllm per-request summary", 2, 8, 5, 4, acceptance_histogram=(0, 1, 0, 0, 1))


@pytest.mark.parametrize(
    ("reports", "k", "words"),
    [
        ([report([4, 1])], 5, "K 5 is larger than the measured K 4"),
        ([report([4, 1])], 0, "drafts nothing"),
        ([SUMMARY], 2, "1 of 1 answers have no ordered counts"),
        ([report([4, 1]), SUMMARY], 2, "1 of 2 answers have no ordered counts"),
        ([None, None], 2, "no ordered counts"),
        ([], 2, "no ordered counts"),
        ([report([])], 2, "no ordered counts"),
        ([report([2, 1, 4], [2, 4, 4])], 2, "drafts that stop before K 4 (down to 2)"),
        ([report([2], [3])], 2, "no ordered counts of whole drafts"),
        ([report([4, 1], [7, 7])], 2, "drafted 7 with K 4: a tree"),
        ([report([4]), report([3], k=3)], 2, "K changed between answers: 3, 4"),
        ([report([5, 1])], 2, "accepted more than they drafted"),
        ([report([-1, 1])], 2, "accepted more than they drafted"),
        ([report([4, 1], [4])], 2, "lists of unequal length"),
    ],
)
def test_what_cannot_be_replayed_is_undefined_with_its_reason(reports, k, words):
    found = replay_answers(reports, k, method=Method.EAGLE3)
    assert isinstance(found, Undefined)
    assert words in found.reason


def test_lists_of_different_answers_are_refused():
    assert "different answers" in replay([[1]], [], draft_tokens=1).reason


def test_answers_without_a_draft_are_left_out_and_nothing_accepted_is_a_length_of_one():
    found = replay_answers([None, report([]), report([0, 0])], 2, method=Method.EAGLE)
    assert (found.answers, found.steps, found.mean_accepted_length) == (1, 2.0, 1.0)


def test_a_last_draft_cut_by_the_end_of_the_answer_is_dropped():
    found = replay_answers([report([4, 1, 2], [4, 4, 2])], 4, method=Method.EAGLE)
    assert (found.steps, found.accepted, found.dropped) == (2.0, 5.0, 3)
