"""Counts by position, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from specdyno.records.columns import position_counts
from specdyno.records.schema import SpecSteps


def spec(**values):
    blank = {
        "source": "test",
        "num_spec_steps": None,
        "num_draft_tokens": None,
        "num_accepted_draft_tokens": None,
        "num_spec_tokens": None,
    }
    return SpecSteps(**{**blank, **values})


def test_per_step_lists_count_exactly():
    # accepted of drafted: 3/3, 0/3, 1/3, 2/2, 1/1, 0/0
    steps = spec(num_spec_tokens=3, per_step_accepted=(3, 0, 1, 2, 1, 0), per_step_drafted=(3, 3, 3, 2, 1, 0))
    reached, at_risk = position_counts(steps)
    assert reached.tolist() == [4, 2, 1]  # at least 1: 3, 1, 2, 1; at least 2: 3, 2; at least 3: 3
    # At 1: the five that proposed. At 2: proposed two, accepted one: 3/3, 1/3, 2/2. At 3: 3/3 (2/2 proposed two).
    assert at_risk.tolist() == [5, 3, 1]


def test_per_step_lists_win_over_the_histogram():
    steps = spec(acceptance_histogram=(9, 9), per_step_accepted=(1, 0), per_step_drafted=(1, 1))
    assert [part.tolist() for part in position_counts(steps)] == [[1], [2]]


def test_histogram_at_fixed_draft_length_gives_both():
    # 10 steps of K=3: four accepted 0, three 1, one 2, two 3.
    steps = spec(num_spec_steps=10, num_draft_tokens=30, num_spec_tokens=3, acceptance_histogram=(4, 3, 1, 2))
    reached, at_risk = position_counts(steps)
    assert reached.tolist() == [6, 3, 2]
    assert at_risk.tolist() == [10, 6, 3]


def test_both_ways_agree_at_fixed_draft_length():
    accepted = (0, 3, 1, 1, 2, 0, 3, 0)
    detailed = spec(num_spec_tokens=3, per_step_accepted=accepted, per_step_drafted=(3,) * 8)
    histogram = tuple(np.bincount(accepted).tolist())
    summary = spec(num_spec_steps=8, num_draft_tokens=24, num_spec_tokens=3, acceptance_histogram=histogram)
    for exact, derived in zip(position_counts(detailed), position_counts(summary), strict=True):
        assert exact.tolist() == derived.tolist()


@pytest.mark.parametrize(
    "reported",
    [
        {"num_spec_steps": 10, "num_draft_tokens": 27, "num_spec_tokens": 3},  # some drafts were shorter
        {"num_spec_steps": 10, "num_draft_tokens": 30},  # K not reported
        {"num_draft_tokens": 30, "num_spec_tokens": 3},  # steps not reported
        {"num_spec_steps": 9, "num_draft_tokens": 27, "num_spec_tokens": 3},  # the histogram counts 10
        {"num_spec_steps": 10, "num_draft_tokens": 20, "num_spec_tokens": 2},  # two steps accepted more than K
    ],
)
def test_histogram_without_a_fixed_draft_length_leaves_those_at_risk_unknown(reported):
    reached, at_risk = position_counts(spec(acceptance_histogram=(4, 3, 1, 2), **reported))
    assert reached.tolist() == [6, 3, 2]
    assert np.isnan(at_risk).all()


def test_histogram_longer_than_the_draft_length_is_padded_with_nobody_at_risk():
    steps = spec(num_spec_steps=2, num_draft_tokens=2, num_spec_tokens=1, acceptance_histogram=(1, 1, 0))
    assert [part.tolist() for part in position_counts(steps)] == [[1, 0], [2, 0]]


def test_histogram_shorter_than_the_draft_length_is_filled_up():
    steps = spec(num_spec_steps=2, num_draft_tokens=6, num_spec_tokens=3, acceptance_histogram=(1, 1))
    assert [part.tolist() for part in position_counts(steps)] == [[1, 0, 0], [2, 1, 0]]


def test_accepted_list_alone_counts_as_its_histogram():
    steps = spec(num_spec_steps=3, num_draft_tokens=6, num_spec_tokens=2, per_step_accepted=(2, 0, 1))
    assert [part.tolist() for part in position_counts(steps)] == [[2, 1], [3, 2]]


def test_no_step_drafted_is_measured_zero():
    steps = spec(num_spec_tokens=2, per_step_accepted=(), per_step_drafted=())
    assert [part.tolist() for part in position_counts(steps)] == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    "reported",
    [
        {"num_spec_steps": 5, "num_draft_tokens": 10, "num_accepted_draft_tokens": 4},  # totals only
        {"per_step_accepted": (), "per_step_drafted": ()},  # no position known
        {"acceptance_histogram": ()},
        {"acceptance_histogram": (3, -1)},
        {"acceptance_histogram": (1,) * 1000},  # no draft is that long
        {"per_step_accepted": (10**12,)},
    ],
)
def test_nothing_by_position_is_not_measured(reported):
    assert position_counts(spec(**reported)) is None


@pytest.mark.parametrize(
    ("accepted", "drafted"),
    [((1, 0), (1,)), ((2, 0), (1, 1)), ((-1, 0), (1, 1)), ((1, 1), (1, 10**12))],
)
def test_lists_that_contradict_each_other_are_not_used(accepted, drafted):
    steps = spec(per_step_accepted=accepted, per_step_drafted=drafted, acceptance_histogram=(5, 2))
    reached, at_risk = position_counts(steps)
    assert reached.tolist() == [2]
    assert np.isnan(at_risk).all()
