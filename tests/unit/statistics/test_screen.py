"""Which K to confirm: predictions, the cut at 3 %, the greedy rule, and the refusals; all by hand."""

from __future__ import annotations

import pytest

from specdyno.statistics.intervals import Interval, Undefined
from specdyno.statistics.replay import Replayed, replay
from specdyno.statistics.screen import screen
from specdyno.statistics.stepcost import Modelled, Point, depth_sweep

TOKENS = {1: 1.8, 2: 2.4, 3: 2.8, 4: 3.0, 5: 3.1}


def replayed(k, tokens, measured=5):
    interval = Interval(tokens, tokens - 0.1, tokens + 0.1, 0.95, "bootstrap over requests, within one boot", 30)
    counts = (100 * (tokens - 1),) + (0.0,) * (k - 1)
    return Replayed(k, measured, 30, 100.0, counts, interval, 0, 0, 0.0, 0, 0.8)


REPLAYS = {k: replayed(k, tokens) for k, tokens in TOKENS.items()}


def sweep(*costs):
    return depth_sweep([Point(0, 1.0, step_s=0.02), *(Point(k, TOKENS[k], step_s=0.02 * r) for k, r in costs)])


def test_between_the_two_runs_the_cost_is_affine_and_the_speed_up_is_modelled():
    found = screen(REPLAYS, sweep((1, 1.2), (5, 2.0)))
    assert [one.step_cost.value for one in found.predicted] == pytest.approx([1.2, 1.4, 1.6, 1.8, 2.0])
    assert [one.speed_up.value for one in found.predicted] == pytest.approx([1.5, 2.4 / 1.4, 1.75, 3 / 1.8, 1.55])
    assert [one.speed_up.measured for one in found.predicted] == [True, False, False, False, True]
    assert found.predicted[1].tokens_per_step == REPLAYS[2].tokens_per_step
    assert found.best.draft_tokens == 3
    assert found.levelled is False


def test_at_most_two_within_three_percent_are_kept_for_fresh_blocks_and_none_is_promoted():
    # 1.75, then 1.714 (2.0 % below), 1.667 (4.8 %)
    found = screen(REPLAYS, sweep((1, 1.2), (5, 2.0)))
    assert found.kept == (2, 3)
    assert found.next_step == "to be confirmed on fresh blocks"
    assert not hasattr(found, "decision")
    flat = screen({k: replayed(k, 1.5) for k in TOKENS}, depth_sweep(
        [Point(0, 1.0, step_s=1.0), Point(1, 1.5, step_s=1.2), Point(5, 1.5, step_s=1.2)]
    ))  # fmt: skip
    assert flat.kept == (1, 2), "of equals the smaller"
    assert flat.best.draft_tokens == 1
    steep = screen(REPLAYS, sweep((1, 1.2), (5, 6.0)))
    assert steep.kept == (1,)


def test_a_measured_middle_point_bends_the_cost():
    found = screen(REPLAYS, sweep((1, 1.2), (3, 1.9), (5, 2.0)))
    assert [one.step_cost.value for one in found.predicted] == pytest.approx([1.2, 1.55, 1.9, 1.95, 2.0])
    assert found.predicted[2].speed_up == Modelled(pytest.approx(2.8 / 1.9), measured=True)


def test_a_cost_that_falls_with_k_is_levelled_and_no_longer_called_measured():
    found = screen(REPLAYS, sweep((1, 2.0), (5, 1.6)))
    assert [one.step_cost.value for one in found.predicted] == pytest.approx([1.8] * 5)
    assert not any(one.speed_up.measured for one in found.predicted)
    assert found.levelled is True
    part = screen(REPLAYS, sweep((1, 1.2), (3, 2.1), (5, 1.9)))
    assert [one.step_cost.value for one in part.predicted] == pytest.approx([1.2, 1.6, 2.0, 2.0, 2.0])
    assert [one.speed_up.measured for one in part.predicted] == [True, False, False, False, False]


def test_the_greedy_rule_stops_where_the_next_token_no_longer_pays():
    # 2 to 3 adds 0.4 > 1.714 * 0.2; 3 to 4 adds 0.2 < 1.75 * 0.2
    assert screen(REPLAYS, sweep((1, 1.2), (5, 2.0))).greedy == 3
    assert screen(REPLAYS, sweep((1, 1.2), (5, 1.2))).greedy == 5
    assert screen(REPLAYS, sweep((1, 1.2), (5, 6.0))).greedy == 1


def test_the_greedy_rule_can_stop_short_of_the_best():
    bent = screen(REPLAYS, sweep((1, 1.0), (2, 1.5), (5, 1.5)))
    assert (bent.greedy, bent.best.draft_tokens) == (1, 5)


def test_nothing_outside_the_two_runs_is_predicted():
    replays = {k: replayed(k, tokens, measured=4) for k, tokens in TOKENS.items() if k < 5}
    found = screen(replays, sweep((2, 1.4), (4, 1.8)))
    assert [one.draft_tokens for one in found.predicted] == [2, 3, 4]


def test_a_k_without_a_replay_must_be_run_unless_it_was():
    refused = {k: Undefined("another K finds other drafts; run each K") for k in TOKENS}
    found = screen(refused, sweep((1, 1.2), (3, 1.6), (5, 2.0)))
    assert [one.draft_tokens for one in found.predicted] == [1, 3, 5]
    assert [k for k, _ in found.unpredicted] == [2, 4]
    assert "run each K" in found.unpredicted[0][1]
    assert found.greedy == 1, "the rule goes by steps of one"
    assert screen({}, sweep((1, 1.2), (5, 2.0))).unpredicted[0] == (2, "not replayed")


def test_where_a_shallow_run_exists_the_error_of_the_replay_is_shown():
    replays = {**REPLAYS, 1: replayed(1, 1.782)}
    assert screen(replays, sweep((1, 1.2), (5, 2.0))).replay_error == ((1, pytest.approx(-0.01)),)


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([Point(1, 1.8, step_s=1.2), Point(5, 3.1, step_s=2.0)], "no plain decoding"),
        ([Point(0, 1.0, step_s=1.0), Point(5, 3.1, step_s=2.0)], "at the smallest and one at the largest K"),
        ([Point(0, 1.0, step_s=1.0)], "at the smallest and one at the largest K"),
        ([Point(0, 1.0, step_s=1.0), Point(1, 1.8, step_s=1.2), Point(6, 3.1, step_s=2.0)], "deepest run has K 6"),
    ],
)
def test_a_screen_without_its_runs_is_undefined(points, words):
    found = screen(REPLAYS, depth_sweep(points))
    assert isinstance(found, Undefined)
    assert words in found.reason


def test_from_steps_to_a_kept_k():
    # 4, 3, 0 of 4: K 2 gives 1 + 5.5 / 4.5 = 2.222 tokens per step, K 1 gives 1 + 4 / 6, K 4 1 + 7 / 3
    replays = {k: replay([[4, 3, 0]], [[4, 4, 4]], draft_tokens=k) for k in (1, 2, 3, 4)}
    points = [Point(0, 1.0, step_s=1.0), Point(1, 1 + 4 / 6, step_s=1.1), Point(4, 1 + 7 / 3, step_s=2.6)]
    found = screen(replays, depth_sweep(points))
    assert found.predicted[1].speed_up == Modelled(pytest.approx((1 + 5.5 / 4.5) / 1.6), measured=False)
    assert found.kept == (1,)
