"""Where a ladder crosses: by hand on lines whose root is known, and silent where it cannot be told."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specdyno.plan.schema import Load
from specdyno.statistics.analysis import Contrast, Trend
from specdyno.statistics.contrasts import ratio_interval
from specdyno.statistics.ladder import ladders

LADDER = Load(name="pool", ladder=(1, 2, 4, 8, 16), window="10s")


def contrasts(by_rung: dict[int, list[float]], *, name: str | None = None) -> list[Contrast]:
    return [
        Contrast(
            "c", f"pool@{n}", name, "time_per_job", ratio_interval(ys, 0.95), tuple(enumerate(ys)), None,
            exploratory=True,
        )
        for n, ys in by_rung.items()
    ]  # fmt: skip


def only(by_rung: dict[int, list[float]]):
    (found,) = ladders([LADDER], contrasts(by_rung))
    return found


def falling(slope: float, root: float, noise: float = 0.001, blocks: int = 4, seed: int = 1) -> dict[int, list[float]]:
    """y = -slope * ln(n / root), with boots that differ by `noise`."""
    chance = np.random.RandomState(seed)
    return {
        n: [-slope * math.log(n / root) + float(chance.normal(0, noise)) for _ in range(blocks)]
        for n in (1, 2, 4, 8, 16)
    }


def test_a_line_in_log_concurrency_crosses_at_its_root():
    found = only(falling(0.1, 5.0))
    assert found.trend is Trend.CROSSES
    assert found.crossover == pytest.approx(5.0, rel=0.02)
    assert found.low < 5.0 < found.high
    assert found.pays_up_to == 4


def test_a_wider_spread_of_boots_widens_the_interval():
    narrow, wide = only(falling(0.1, 5.0, 0.005)), only(falling(0.1, 5.0, 0.03))
    assert narrow.high - narrow.low < (wide.high or 16) - (wide.low or 1)


def test_an_interval_that_reaches_an_end_of_the_ladder_is_open_there():
    found = only(falling(0.02, 14.0, 0.02))
    assert found.high is None


def test_an_undecided_first_rung_does_not_hide_a_turn_that_falls_between_two_decided_points():
    found = only({1: [0.02, -0.01, 0.0, 0.01], 2: [0.25] * 4, 4: [-0.5] * 4, 8: [-0.5] * 4, 16: [-0.5] * 4})
    assert found.trend is Trend.CROSSES
    assert found.crossover == pytest.approx(math.exp(math.log(2) * (1 + 1 / 3)))
    assert found.low is None
    assert found.crossover <= found.high < found.crossover * 1.03


def test_what_pays_everywhere_has_no_crossover():
    found = only({n: [0.2, 0.21, 0.19] for n in (1, 2, 4, 8, 16)})
    assert (found.trend, found.crossover, found.pays_up_to) == (Trend.PAYS, None, 16)


def test_what_loses_everywhere_pays_nowhere():
    found = only({n: [-0.2, -0.21, -0.19] for n in (1, 2, 4)})
    assert (found.trend, found.crossover, found.pays_up_to) == (Trend.LOSES, None, None)


def test_a_ladder_that_goes_up_and_down_has_no_single_crossover():
    assert only({1: [0.1, 0.11], 2: [-0.1, -0.11], 4: [0.1, 0.11]}).trend is Trend.MIXED
    assert only({1: [-0.1, -0.11], 2: [0.1, 0.11]}).trend is Trend.MIXED


def test_one_block_decides_nothing():
    assert only({1: [0.1], 2: [-0.1]}).trend is Trend.UNDECIDED


def test_classes_are_kept_apart_and_other_loads_left_alone():
    found = ladders(
        [LADDER, Load(name="other", concurrency=1, window="1s")],
        contrasts(falling(0.1, 5.0)) + contrasts(falling(0.1, 3.0), name="code"),
    )
    assert [(one.class_name, round(one.crossover)) for one in found] == [(None, 5), ("code", 3)]


def test_the_interval_holds_the_root_in_at_least_nine_of_ten_studies():
    held = 0
    for seed in range(300):
        found = only(falling(0.1, 5.0, noise=0.03, seed=seed))
        held += (found.low or 1.0) <= 5.0 <= (found.high or 16.0)
    assert held >= 270, held


@example([0.25, -0.5, 0.0, -0.5, 0.0], 0.004)  # decided where it falls, undecided beyond
@given(st.lists(st.floats(-0.5, 0.5), min_size=5, max_size=5), st.floats(0.001, 0.1))
def test_low_estimate_high_stand_in_order(means, noise):
    chance = np.random.RandomState(3)
    by_rung = {
        n: [m + float(chance.normal(0, noise)) for _ in range(4)] for n, m in zip((1, 2, 4, 8, 16), means, strict=True)
    }
    found = only(by_rung)
    if found.crossover is not None:
        assert (found.low or 1.0) <= found.crossover * 1.03
        assert found.crossover <= (found.high or 16.0) * 1.03
