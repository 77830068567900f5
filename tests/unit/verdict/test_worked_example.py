"""The page that defends a verdict: every number of its example by hand, recomputed from the numbers it starts with."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from specdyno.plan.looks import half_width, nominal_level
from specdyno.statistics.intervals import spread_interval
from specdyno.verdict.gates import check_ratio
from specdyno.verdict.outlook import blocks_needed
from specdyno.verdict.schema import GateStatus

PAGE = (Path(__file__).parents[3] / "docs/statistics.md").read_text(encoding="utf-8")
BY_HAND = " ".join(PAGE.split("## A verdict by hand")[1].split("\n## ")[0].split())
ROWS = [tuple(map(float, row)) for row in re.findall(r"\| \d \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", BY_HAND)]
LEVEL = nominal_level((4, 6, 8, 12), 0.05, 1)


def checked(ys):
    return check_ratio("primary", "jobs_per_s", ys, threshold=1.05, alpha=LEVEL)


def test_the_promote_of_the_page():
    ys = [math.log(candidate / baseline) for baseline, candidate, _ in ROWS]
    assert [round(y, 4) for y in ys] == [y for _, _, y in ROWS]
    mean, s, t = float(np.mean(ys)), float(np.std(ys, ddof=1)), stats.t.ppf(1 - LEVEL / 2, 3)
    found = checked(ys).gate
    assert found.status is GateStatus.MET
    assert f"Mean {mean:.4f}, s = {s:.4f}. The level is {LEVEL}" in BY_HAND
    assert f"with 3 degrees of freedom is {t:.3f}" in BY_HAND
    assert f"{t:.3f} · {s:.4f} / √4 = {t * s / 2:.4f}" in BY_HAND
    assert (
        f"exp({mean:.4f}) = {found.ratio.estimate:.3f}, from {found.ratio.low:.3f} to {found.ratio.high:.3f}" in BY_HAND
    )


def test_the_hold_of_the_page_and_the_blocks_it_asks_for():
    other = [float(x) for x in re.search(r"given ([\d., and]+):", BY_HAND).group(1).replace(" and", ",").split(",")]
    ys = [math.log(candidate / baseline) for candidate, (baseline, _, _) in zip(other, ROWS, strict=True)]
    mean, s = float(np.mean(ys)), float(np.std(ys, ddof=1))
    test = checked(ys)
    found, needed = test.gate, blocks_needed([test])
    assert found.status is GateStatus.UNDECIDED
    ratio = f"{found.ratio.estimate:.3f} from {found.ratio.low:.3f} to {found.ratio.high:.3f}"
    assert f"mean {mean:.4f}, s = {s:.4f}, ratio {ratio}" in BY_HAND
    assert f"{mean:.4f} \u2212 log 1.05 = {mean - math.log(1.05):.4f}" in BY_HAND
    low, high = spread_interval(s, 4, 0.80)
    assert f"between {low:.4f} and {high:.4f}" in BY_HAND
    assert f"{needed[0]} to {needed[1]} blocks" in BY_HAND


@pytest.mark.parametrize("line", re.findall(r"^\| ([\d, ]+) \| (\d) \| ([\d.]+) \| ([\d., ]+) \|$", PAGE, re.MULTILINE))
def test_the_levels_of_the_page(line):
    looks, m, level, widths = line
    times = tuple(map(int, looks.split(", ")))
    assert nominal_level(times, 0.05, int(m)) == float(level)
    assert [f"{half_width(n, float(level)):.2f}" for n in times] == widths.split(", ")


def test_the_page_has_its_levels():
    assert len(re.findall(r"^\| [\d, ]+ \| \d \| [\d.]+ \| [\d., ]+ \|$", PAGE, re.MULTILINE)) == 4
