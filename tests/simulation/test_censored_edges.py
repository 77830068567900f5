"""Searches for the largest rate whose range ends too early: what is promoted and rejected from one-sided bounds."""

import math

import numpy as np
import pytest
from scipy import stats

from specdyno.load.search import next_rate
from specdyno.plan.schema import Load
from specdyno.statistics.analysis import Bound, Level
from specdyno.statistics.contrasts import bounds_of_log_ratios, log_ratios
from specdyno.statistics.intervals import Undefined
from specdyno.verdict.gates import check_bounds, check_ratio
from specdyno.verdict.schema import GateStatus

THRESHOLD = 1.05
STUDIES = 4000
ALPHA = 0.05


def sides_of(candidate: float, baseline: float, top: float) -> tuple[float | None, float | None]:
    """What a search that ends at `top` lets say of one block's log ratio."""
    y = math.log(min(candidate, top)) - math.log(min(baseline, top))
    return (None if baseline >= top else y), (None if candidate >= top else y)


def statuses(gain: float, top: float, *, blocks: int = 4, spread: float = 0.03) -> dict[GateStatus, int]:
    """Decisions over simulated studies: a baseline of 10 requests/s, boots of both arms that spread on logs."""
    generator = np.random.default_rng([round(1000 * top), round(1000 * gain)])
    edges = np.exp(generator.normal(0.0, spread, (STUDIES, blocks, 2))) * [10.0 * gain, 10.0]
    found = dict.fromkeys(GateStatus, 0)
    for study in edges:
        sides = [sides_of(candidate, baseline, top) for candidate, baseline in study]
        checked = check_bounds("primary", "x", sides, Undefined("x"), threshold=THRESHOLD, alpha=ALPHA)
        found[checked.gate.status] += 1
    return found


@pytest.mark.parametrize("top", [10.0, 10.3, 10.5, 10.8, 11.2, 20.0])
def test_at_the_minimum_gain_bounds_promote_and_reject_no_more_often_than_allowed(top):
    most = stats.binom.ppf(0.999, STUDIES, ALPHA / 2)
    found = statuses(THRESHOLD, top)
    assert found[GateStatus.MET] <= most, found
    assert found[GateStatus.MISSED] <= most, found


# ---- searches step by step ------------------------------------------------------------------------------------------

LOAD = Load(name="most", rates=(5.0, 20.0), steps=4, window="10s")


def found_by(edge: float, ends: tuple[float, float]) -> Bound:
    """What a search finds of a server that carries up to `edge`."""
    tried: list[tuple[float, bool]] = []
    for step in range(LOAD.steps):
        rate = next_rate(ends, tried, left=LOAD.steps - step)
        tried.append((rate, rate <= edge))
    carried = max((rate for rate, held in tried if held), default=None)
    return 0, carried, min((rate for rate, held in tried if not held), default=None)


def level_of(arm: str, blocks: list[Bound]) -> Level:
    bounds = tuple((block, low, high) for block, (_, low, high) in enumerate(blocks))
    known = tuple((block, math.sqrt(low * high)) for block, low, high in bounds if low and high)
    return Level(arm, "most", None, "largest_rate", Undefined("x"), known, bounds)


def searched(baseline: float, gain: float, *, between: bool = True, studies: int = 400) -> dict[GateStatus, int]:
    """Decisions where boots hardly differ, so that the steps of the search make the error.

    `between`: by the rates that each edge lies between, as the verdict does; else by their middle alone.
    """
    generator = np.random.default_rng(round(100 * baseline))
    found = dict.fromkeys(GateStatus, 0)
    for _ in range(studies):
        boots = np.exp(generator.normal(0.0, 0.002, (4, 2)))
        mine, theirs = (
            level_of(name, [found_by(edge * boot[place], LOAD.rates or (1.0, 1.0)) for boot in boots])
            for place, (name, edge) in enumerate((("c", baseline * gain), ("baseline", baseline)))
        )
        sides = [(low, high) for _, low, high in bounds_of_log_ratios(mine, theirs)]
        ys = [y for _, y in log_ratios(dict(mine.by_block), dict(theirs.by_block), sign=1)]
        checked = (
            check_bounds("primary", "x", sides, ys, threshold=THRESHOLD, alpha=ALPHA)
            if between
            else check_ratio("primary", "x", ys, threshold=THRESHOLD, alpha=ALPHA)
        )
        found[checked.gate.status] += 1
    return found


@pytest.mark.parametrize("baseline", [6.0, 9.6, 9.8, 9.99, 10.3, 13.7, 18.6, 19.5])
def test_the_steps_of_a_search_make_no_false_certainty(baseline):
    most = stats.binom.ppf(0.999, 400, ALPHA / 2)
    found = searched(baseline, THRESHOLD)
    assert found[GateStatus.MET] <= most, found
    assert found[GateStatus.MISSED] <= most, found


def test_the_middle_between_two_rates_alone_would():
    # 10 requests/s, which every search tries, lies between the arms in every block.
    assert searched(9.8, THRESHOLD, between=False)[GateStatus.MET] > 300


def test_a_gain_of_a_few_steps_is_promoted_and_a_loss_rejected():
    assert searched(8.0, 1.4)[GateStatus.MET] > 300
    assert searched(12.0, 0.8)[GateStatus.MISSED] > 300


def test_a_gain_beyond_the_range_is_promoted_from_the_bound_alone():
    found = statuses(1.6, 13.0)
    assert found[GateStatus.MET] > 0.9 * STUDIES, found
    assert statuses(1.6, 10.2)[GateStatus.MET] == 0


def test_a_loss_below_a_baseline_beyond_the_range_is_rejected():
    found = statuses(0.7, 9.0)
    assert found[GateStatus.MISSED] > 0.9 * STUDIES, found
