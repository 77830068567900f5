"""Time and visible gain before anything is booted, by hand."""

from __future__ import annotations

import math

import pytest

from specdyno.plan.duration import estimate, likely_gain, smallest_visible_gain
from specdyno.plan.looks import objective_level
from specdyno.plan.power import power
from specdyno.plan.schema import Plan


def plan(kind: str = "vllm", *, looks: tuple[int, ...] = (4, 6, 8, 12), class_windows: bool = False) -> Plan:
    return Plan.model_validate(
        {
            "study": "s",
            "target": {"model": "m"},
            "engine": {"kind": kind},
            "candidates": [{"method": "ngram", "draft_tokens": [1, 3]}],
            "workload": {
                "sampling": {"temperature": 0},
                "classes": [{"name": "code", "prompts": "builtin:code", "share": 1, "max_tokens": 8}],
            },
            "loads": [
                {"name": "one", "concurrency": 1, "window": "20s"},
                {"name": "pool", "concurrency": 8, "window": "60s", "class_windows": class_windows},
            ],
            "objectives": [{"name": "pool", "load": "pool", "measure": "jobs_per_s"}],
            "experiment": {"looks": list(looks)},
        }
    )


@pytest.mark.parametrize(("kind", "boot_s"), [("vllm", 40.0), ("llamacpp", 3.0), ("simulated", 1.0)])
def test_time_is_boots_warm_ups_and_windows(kind: str, boot_s: float) -> None:
    found = estimate(plan(kind))
    assert found.block_s == 3 * (boot_s + 6.0 + 80.0)
    assert found.first_look_s == 4 * found.block_s
    assert found.total_s == 12 * found.block_s
    assert len(found.assumptions) == 3


def test_class_windows_take_as_long_again() -> None:
    assert estimate(plan(class_windows=True)).block_s == 3 * (40.0 + 6.0 + 20.0 + 2 * 60.0)


def test_visible_gain_is_the_half_width_of_a_t_interval() -> None:
    # Two candidates and one look: level 0.025, so t(0.9875) with 3 degrees of freedom, from a printed table: 4.177.
    found = smallest_visible_gain(plan(looks=(4,)))
    assert found.level == 0.025
    assert found.first == found.last == pytest.approx(math.exp(4.1765 * 0.02 / 2), rel=1e-4)


def test_more_blocks_show_smaller_gains_and_more_spread_larger_ones() -> None:
    found, wide = smallest_visible_gain(plan()), smallest_visible_gain(plan(), spread=0.04)
    assert found.first is not None
    assert found.last is not None
    assert wide.first is not None
    assert 1.0 < found.last < found.first < wide.first
    assert math.log(wide.first) == pytest.approx(2 * math.log(found.first))


def test_one_block_shows_nothing() -> None:
    found = smallest_visible_gain(plan(looks=(1, 4)))
    assert found.first is None
    assert found.last is not None


def test_the_likely_gain_is_promoted_in_eight_of_ten_studies_and_guards_cost_some() -> None:
    found = plan()
    alone = found.model_copy(update={"guards": found.guards.model_copy(update={"tpot": None, "output_length": None})})
    level = objective_level(found, found.objectives[0])
    bare, guarded = (likely_gain(one, one.objectives[0]) for one in (alone, found))
    assert bare is not None
    assert guarded is not None
    gap = (math.log1p(bare) - math.log(1.05)) / 0.02
    assert power((4, 6, 8, 12), level, [gap]).promote == pytest.approx(0.8, abs=0.02)
    assert bare < guarded


def test_a_plan_that_can_never_promote_has_no_likely_gain() -> None:
    assert likely_gain(plan(looks=(3,)), plan().objectives[0]) is None
    assert likely_gain(plan(), plan().objectives[0], spread=0.5) is None
