"""The order of the arms is balanced, complete and the same everywhere."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from specdyno.plan.schedule import Block, schedule
from specdyno.plan.schema import Plan


def plan_with(*, candidates: int, looks: list[int], seed: int = 1, a_a: bool = False) -> Plan:
    return Plan.model_validate(
        {
            "study": "s",
            "seed": seed,
            "target": {"model": "m"},
            "engine": {"kind": "simulated"},
            "candidates": [{"method": "ngram", "draft_tokens": list(range(1, candidates + 1))}],
            "workload": {
                "sampling": {"temperature": 0},
                "classes": [{"name": "code", "prompts": "builtin:code", "share": 1, "max_tokens": 8}],
            },
            "loads": [{"name": "pool", "concurrency": 2, "window": "2s"}],
            "objectives": [{"name": "pool", "load": "pool", "measure": "jobs_per_s"}],
            "experiment": {"looks": looks, "a_a": a_a},
        }
    )


PLANS = st.builds(
    plan_with,
    candidates=st.integers(1, 9),
    looks=st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True).map(sorted),
    seed=st.integers(0, 2**63 - 1),
    a_a=st.booleans(),
)


@given(plan=PLANS)
@settings(deadline=None)
def test_every_block_boots_every_arm_once(plan: Plan) -> None:
    blocks = schedule(plan)
    names = sorted(arm.name for arm in plan.arms())
    assert [block.index for block in blocks] == list(range(plan.experiment.looks[-1]))
    assert all(sorted(block.order) == names for block in blocks)


@given(plan=PLANS)
@settings(deadline=None)
def test_positions_are_balanced_over_as_many_blocks_as_arms(plan: Plan) -> None:
    blocks, size = schedule(plan), len(plan.arms())
    for start in range(0, len(blocks), size):
        square = [block.order for block in blocks[start : start + size]]
        for column in zip(*square, strict=True):
            assert len(set(column)) == len(square)


def followers(blocks: tuple[Block, ...]) -> Counter[tuple[str, str]]:
    return Counter(pair for block in blocks for pair in zip(block.order, block.order[1:], strict=False))


@given(candidates=st.integers(1, 9), seed=st.integers(0, 1000))
@settings(deadline=None)
def test_neighbours_are_balanced_as_soon_as_a_design_exists(candidates: int, seed: int) -> None:
    size = candidates + 1
    squares = 2 if size % 2 else 1
    blocks = schedule(plan_with(candidates=candidates, looks=[size * squares], seed=seed))
    assert set(followers(blocks).values()) == {squares}
    assert len(followers(blocks)) == size * (size - 1)


def test_seeds_give_different_orders() -> None:
    orders = {tuple(schedule(plan_with(candidates=3, looks=[4], seed=seed))) for seed in range(20)}
    assert len(orders) > 15


def test_first_place_is_not_the_baselines_by_habit() -> None:
    first = Counter(schedule(plan_with(candidates=3, looks=[1], seed=seed))[0].order[0] for seed in range(400))
    assert set(first.values()) <= set(range(60, 141)), first  # 100 each; 4.6 standard deviations


def test_order_is_the_same_in_every_process_and_version() -> None:
    # Written out: a change here changes what a seed means, for every study on record.
    expected = [
        ("ngram-k1", "ngram-k2", "baseline"),
        ("baseline", "ngram-k1", "ngram-k2"),
        ("ngram-k2", "baseline", "ngram-k1"),
    ]
    assert [block.order for block in schedule(plan_with(candidates=2, looks=[3], seed=7))] == expected


def test_order_does_not_depend_on_the_hash_seed() -> None:
    code = "from specdyno.plan.chance import shuffled; print(shuffled('abcdefghij', 'label'))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1
