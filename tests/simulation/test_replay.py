"""Replay against runs at the smaller K on the very same tokens: how far it is off, and what truncating would cost.

`make simulate` writes the table of the documentation; its numbers move with the seed by about a tenth of a point.
"""

import numpy as np
import pytest
from scipy import stats
from tests.simulation import drafts

from lab import pages
from specdyno.statistics.replay import replay
from specdyno.statistics.screen import screen
from specdyno.statistics.stepcost import Point, depth_sweep


@pytest.mark.parametrize("traffic", drafts.TRAFFIC, ids=lambda traffic: traffic.name)
def test_without_decay_by_depth_a_replay_is_off_by_at_most_half_a_percent(traffic):
    found = drafts.errors(traffic, decay=0.0, answers=400, seed=1)
    print(drafts.table([found]))
    assert max(map(abs, found.replayed.values())) <= 0.005


@pytest.mark.parametrize("traffic", drafts.TRAFFIC, ids=lambda traffic: traffic.name)
def test_one_percent_decay_by_position_makes_a_replay_up_to_thirteen_permille_too_low(traffic):
    found = drafts.errors(traffic, decay=0.01, answers=400, seed=2)
    print(drafts.table([found]))
    assert all(-0.013 <= error < 0 for error in found.replayed.values())
    assert min(found.replayed.values()) < -0.005, "the bias is there: labels of deep positions are pessimistic"


def test_truncating_the_survival_curve_is_low_by_a_percent_or_two_where_tokens_are_nearly_alike():
    found = drafts.errors(drafts.SMOOTH, decay=0.0, answers=400, seed=3)
    assert -0.021 <= min(found.truncated.values()) <= -0.009
    assert all(abs(found.replayed[k]) < abs(found.truncated[k]) / 3 for k in found.replayed)


@pytest.mark.parametrize("traffic", [drafts.UNEVEN, drafts.LONG], ids=lambda traffic: traffic.name)
def test_truncating_is_low_by_up_to_six_percent_where_easy_and_hard_stretches_alternate(traffic):
    found = drafts.errors(traffic, decay=0.0, answers=400, seed=4)
    assert -0.065 <= min(found.truncated.values()) <= -0.03


def test_without_any_memory_both_are_right():
    alike = drafts.Traffic("all tokens alike", wander=0.0, memory=0.0, between=0.0)
    found = drafts.errors(alike, decay=0.0, answers=400, seed=5)
    assert max(map(abs, (*found.replayed.values(), *found.truncated.values()))) <= 0.005


def test_the_interval_of_a_replay_holds_the_truth_as_often_as_it_says():
    depth, studies, held = 3, 80, 0
    truth = 1 + np.concatenate(drafts.Answers(drafts.UNEVEN, answers=2000, seed=6).run(depth)).mean()
    for study in range(studies):
        deep = drafts.Answers(drafts.UNEVEN, answers=40, seed=1000 + study).run(drafts.MEASURED)
        interval = replay(deep, [[drafts.MEASURED] * len(row) for row in deep], draft_tokens=depth).tokens_per_step
        held += interval.low <= truth <= interval.high
    assert held >= stats.binom.ppf(0.001, studies, 0.92), "a bootstrap of 40 answers covers a little less than 95 %"


def test_a_screen_keeps_the_k_that_runs_at_every_k_would_have_shown_to_be_best():
    made = drafts.Answers(drafts.UNEVEN, answers=300, seed=7)
    depths = range(1, drafts.MEASURED + 1)
    tokens = {k: 1 + np.concatenate(made.run(k)).mean() for k in depths}
    cost = {k: 1.2 + 0.16 * k for k in depths}
    best = max(depths, key=lambda k: tokens[k] / cost[k])
    deep = made.run(drafts.MEASURED)
    drafted = [[drafts.MEASURED] * len(row) for row in deep]
    replays = {k: replay(deep, drafted, draft_tokens=k) for k in depths}
    ends = [Point(k, tokens[k], step_s=cost[k]) for k in (1, drafts.MEASURED)]
    found = screen(replays, depth_sweep([Point(0, 1.0, step_s=1.0), *ends]))
    assert 1 < best < drafts.MEASURED, "the best lies between the two runs"
    assert best in found.kept
    assert found.best.speed_up.value == pytest.approx(tokens[best] / cost[best], rel=0.01)


@pytest.mark.full
def test_the_table_of_replays_in_the_documentation():
    found = [
        drafts.errors(traffic, decay=decay, answers=4000, seed=8) for traffic in drafts.TRAFFIC for decay in (0.0, 0.01)
    ]
    text = drafts.table(found)
    print(text)
    pages.write("statistics.md", {"replayed": text})
    assert all(abs(error) <= 0.005 for one in found if not one.decay for error in one.replayed.values())
