"""A boot is asked no prompt twice, every stretch holds the shares, and all arms of a block are asked the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdyno.errors import PlanError
from specdyno.plan.schema import Plan
from specdyno.workload.draw import (
    counts_by_share,
    draw,
    exact_sizes,
    largest_sizing,
    needs,
    warm_up,
    warm_up_by_load,
    warm_up_requests,
)
from specdyno.workload.mixture import interleave
from specdyno.workload.prompts import Prompt, fingerprint
from specdyno.workload.sessions import ClassSessions, Session, Turn
from specdyno.workload.sources import ClassPrompts


def plan_with(
    shares: Sequence[float], loads: Sequence[Mapping[str, object]], seed: int = 1, *, measure: str = "jobs_per_s"
) -> Plan:
    total = sum(shares)
    classes = [
        {"name": f"c{index}", "prompts": "builtin:code", "share": share / total, "max_tokens": 10 + index}
        for index, share in enumerate(shares)
    ]
    return Plan.model_validate(
        {
            "study": "s",
            "seed": seed,
            "target": {"model": "m"},
            "engine": {"kind": "simulated"},
            "candidates": [{"method": "ngram", "draft_tokens": 3}],
            "workload": {"sampling": {"temperature": 0}, "classes": classes},
            "loads": [{"window": "2s", **load} for load in loads],
            "objectives": [
                {"name": "o", "load": loads[0]["name"], "measure": measure, "service_level": {"e2el": "9s"}}
            ],
        }
    )


def prompt(class_name: str, number: int, text: str = "") -> Prompt:
    text = text or f"{class_name} {number}"
    sha256 = fingerprint({"prompt": text})
    return Prompt(f"{class_name}/{number}", class_name, None, text, None, None, None, 10 + int(class_name[1:]), sha256)


def pools_of(plan: Plan, size: int) -> dict[str, ClassPrompts]:
    return {
        part.name: ClassPrompts(tuple(prompt(part.name, number) for number in range(size)))
        for part in plan.workload.classes
    }


ONE_AND_POOL = [{"name": "one", "concurrency": 1}, {"name": "pool", "concurrency": 6, "class_windows": True}]
STUDIES = st.builds(
    plan_with,
    shares=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    loads=st.sampled_from([ONE_AND_POOL, ONE_AND_POOL[:1], ONE_AND_POOL[1:]]),
    seed=st.integers(0, 2**40),
)


@given(plan=STUDIES, sizes=st.tuples(st.integers(1, 60), st.integers(1, 60)), block=st.integers(0, 30))
@settings(deadline=None)
def test_no_prompt_is_sent_twice_within_a_boot(plan: Plan, sizes: tuple[int, int], block: int) -> None:
    sizing = {"one": sizes[0], "pool": sizes[1]}
    drawn = draw(plan, pools_of(plan, 300), block, sizing)
    sent = [*drawn.warm_up, *(one for window in drawn.windows for one in window.prompts)]
    assert len({one.sha256 for one in sent}) == len(sent)
    assert Counter(one.class_name for one in sent) == needs(plan, {load.name: sizing[load.name] for load in plan.loads})


@given(plan=STUDIES, size=st.integers(1, 200))
@settings(deadline=None)
def test_windows_have_the_asked_size_and_the_shares(plan: Plan, size: int) -> None:
    drawn = draw(plan, pools_of(plan, 900), 0, {load.name: size for load in plan.loads})
    shares = {part.name: part.share for part in plan.workload.classes}
    for window in drawn.windows:
        counts = Counter(one.class_name for one in window.prompts)
        if window.class_name is None:
            assert len(window.prompts) == size
            assert all(abs(counts[name] - size * share) < 1.0 + 1e-6 for name, share in shares.items())
        else:
            assert set(counts) == {window.class_name}


@given(counts=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 40), min_size=1))
def test_any_prefix_is_within_one_of_the_shares(counts: dict[str, int]) -> None:
    order, total = interleave(counts), sum(counts.values())
    assert Counter(order) == Counter({name: count for name, count in counts.items() if count})
    so_far: Counter[str] = Counter()
    for position, name in enumerate(order, start=1):
        so_far[name] += 1
        assert all(abs(so_far[one] - position * count / total) < 1.0 for one, count in counts.items())


def test_interleave_of_nothing_is_nothing() -> None:
    assert interleave({"a": 0}) == []


def test_windows_come_in_plan_order_mixed_first() -> None:
    plan = plan_with([3, 1], ONE_AND_POOL)
    drawn = draw(plan, pools_of(plan, 100), 0, {"one": 4, "pool": 8})
    assert [(window.load, window.class_name, len(window.prompts)) for window in drawn.windows] == [
        ("one", None, 4),
        ("pool", None, 8),
        ("pool", "c0", 8),
        ("pool", "c1", 8),
    ]
    assert {one.max_tokens for one in drawn.windows[3].prompts} == {11}


def test_a_block_is_drawn_the_same_again_and_another_anew() -> None:
    plan = plan_with([1, 1], ONE_AND_POOL)
    pools, sizing = pools_of(plan, 100), {"one": 10, "pool": 20}
    assert draw(plan, pools, 3, sizing) == draw(plan, pools, 3, sizing)
    orders = [tuple(one.id for one in draw(plan, pools, block, sizing).windows[0].prompts) for block in range(5)]
    assert all(one != other for one, other in pairwise(orders))
    other_seed = plan.model_copy(update={"seed": 2})
    assert draw(other_seed, pools, 3, sizing) != draw(plan, pools, 3, sizing)


def test_warm_up_holds_all_classes_and_does_not_depend_on_the_sizes() -> None:
    plan = plan_with([98, 1, 1], ONE_AND_POOL)
    pools = pools_of(plan, 100)
    first = warm_up(plan, pools, 0)
    assert warm_up_by_load(plan) == {"one": 3, "pool": 6}
    assert len(first) == warm_up_requests(plan) == 9
    assert Counter(one.class_name for one in first) == {"c0": 5, "c1": 2, "c2": 2}
    assert draw(plan, pools, 0, {"one": 3, "pool": 9}).warm_up == first


def test_warm_up_fills_the_concurrency() -> None:
    plan = plan_with([3, 1], [{"name": "pool", "concurrency": 24}])
    assert warm_up_requests(plan) == 24
    assert Counter(one.class_name for one in warm_up(plan, pools_of(plan, 50), 0)) == {"c0": 17, "c1": 7}


def test_counts_are_largest_remainders() -> None:
    plan = plan_with([50, 30, 20], ONE_AND_POOL)
    assert counts_by_share(plan, 7) == {"c0": 4, "c1": 2, "c2": 1}  # 3.5, 2.1, 1.4
    assert counts_by_share(plan, 0) == {"c0": 0, "c1": 0, "c2": 0}


def test_too_few_prompts_name_class_and_numbers() -> None:
    plan = plan_with([1, 1], [{"name": "pool", "concurrency": 2, "requests": 20}])
    with pytest.raises(PlanError) as caught:
        draw(plan, pools_of(plan, 11), 0, {"pool": 20})
    assert [problem.seen for problem in caught.value.problems] == [
        'class "c0" has 11 prompts of its own and one boot needs 12',
        'class "c1" has 11 prompts of its own and one boot needs 12',
    ]
    with pytest.raises(PlanError):
        largest_sizing(plan, pools_of(plan, 11), {})


def test_a_prompt_of_two_classes_is_sent_for_the_first_only() -> None:
    plan = plan_with([1, 1], [{"name": "pool", "concurrency": 2}])
    pools = pools_of(plan, 20)
    shared = tuple(prompt("c1", number, text=f"c0 {number}") for number in range(20))
    pools["c1"] = ClassPrompts((*shared, *pools["c1"].prompts))
    drawn = draw(plan, pools, 0, {"pool": 30})
    assert not {one.sha256 for one in shared} & {
        one.sha256 for one in drawn.windows[0].prompts if one.class_name == "c1"
    }
    with pytest.raises(PlanError, match='"c1" has 0 prompts of its own'):
        draw(plan, {**pools, "c1": ClassPrompts(shared)}, 0, {"pool": 3})


def test_sizes_that_can_be_fed_stay() -> None:
    plan = plan_with([1, 1], ONE_AND_POOL[:1])
    sizing = largest_sizing(plan, pools_of(plan, 100), {"one": 50})
    assert (sizing.requests, sizing.clipped) == ({"one": 50}, {})


def test_long_lists_are_cut_before_short_ones() -> None:
    plan = plan_with([1, 1], [{"name": "one", "concurrency": 1}, {"name": "pool", "concurrency": 4}])
    sizing = largest_sizing(plan, pools_of(plan, 50), {"one": 20, "pool": 900})
    assert sizing.requests == {"one": 20, "pool": 74}  # 100 prompts, 6 of them for the warm-up
    assert sizing.clipped == {"pool": (900, 74)}


def test_exact_requests_are_never_cut() -> None:
    loads = [{"name": "one", "concurrency": 1, "requests": 60}, {"name": "pool", "concurrency": 4}]
    plan = plan_with([1, 1], loads)
    sizing = largest_sizing(plan, pools_of(plan, 50), {"pool": 900})
    assert sizing.requests == {"one": 60, "pool": 34}


@given(plan=STUDIES, wanted=st.tuples(st.integers(0, 500), st.integers(0, 500)), size=st.integers(30, 200))
@settings(deadline=None)
def test_what_sizing_gives_can_be_drawn(plan: Plan, wanted: tuple[int, int], size: int) -> None:
    asked = dict(zip(("one", "pool"), wanted, strict=True))
    sizing = largest_sizing(plan, pools_of(plan, size), asked)
    drawn = draw(plan, pools_of(plan, size), 0, sizing.requests)
    mixed = {window.load: len(window.prompts) for window in drawn.windows if window.class_name is None}
    assert mixed == sizing.requests
    assert all(1 <= count <= max(1, asked[name]) for name, count in mixed.items())
    assert set(sizing.clipped) == {name for name, count in mixed.items() if count < asked[name]}


# ---- open loads, searches and sessions -------------------------------------------------------------------------------


def agents_plan(**load: object) -> Plan:
    """Prompts for one load, sessions of two classes for another."""
    plan = plan_with([1, 1], [{"name": "pool", "concurrency": 2}]).model_dump(mode="json", exclude_none=True)
    kinds = [
        {"name": f"a{n}", "sessions": "x.jsonl", "share": share, "max_tokens": 9} for n, share in ((0, 0.75), (1, 0.25))
    ]
    plan["workload"]["classes"] += kinds
    plan["loads"].append({"name": "agents", "sessions": 6, "window": "2s", **load})
    return Plan.model_validate(plan)


def session_pools(size: int) -> dict[str, ClassSessions]:
    turns = (Turn("planning", ({"role": "user", "content": "x"},)),)
    return {
        name: ClassSessions(tuple(Session(f"{number}", None, None, turns) for number in range(size)))
        for name in ("a0", "a1")
    }


def prompt_pools(plan: Plan, size: int) -> dict[str, ClassPrompts]:
    return {name: ClassPrompts(tuple(prompt(name, number) for number in range(size))) for name in ("c0", "c1")}


def test_sessions_feed_loads_of_sessions_and_prompts_the_others_none_twice() -> None:
    plan = agents_plan()
    drawn = draw(plan, prompt_pools(plan, 30), 0, {"pool": 12, "agents": 8}, session_pools=session_pools(20))
    pool, agents = drawn.windows
    assert (len(pool.prompts), pool.sessions) == (12, ())
    assert agents.prompts == ()
    assert Counter(one.class_name for one in agents.sessions) == {"a0": 6, "a1": 2}
    used = [one.id for one in (*drawn.warm_up_sessions["agents"], *agents.sessions)]
    assert len(set(used)) == len(used) == 12
    assert needs(plan, {"pool": 12, "agents": 8}) == {"c0": 8, "c1": 8, "a0": 9, "a1": 3}


def test_sessions_of_a_block_are_drawn_the_same_again() -> None:
    plan = agents_plan()
    first, again, other = (
        draw(plan, prompt_pools(plan, 30), block, {"agents": 8}, session_pools=session_pools(20)).windows[0].sessions
        for block in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_a_shortage_of_sessions_shortens_only_loads_of_sessions() -> None:
    plan = agents_plan()
    sizing = largest_sizing(plan, prompt_pools(plan, 60), {"pool": 40, "agents": 40}, session_pools=session_pools(10))
    assert sizing.requests["pool"] == 40
    assert sizing.clipped == {"agents": (40, sizing.requests["agents"])}
    drawn = draw(plan, prompt_pools(plan, 60), 0, sizing.requests, session_pools=session_pools(10))
    assert len(drawn.windows[1].sessions) == sizing.requests["agents"] > 1


def test_too_few_sessions_name_class_and_numbers() -> None:
    plan = agents_plan(requests=40)
    with pytest.raises(PlanError, match=r'class "a0" has 20 sessions and one boot needs 33'):
        draw(plan, prompt_pools(plan, 30), 0, exact_sizes(plan), session_pools=session_pools(20))


def test_open_loads_have_exact_sizes_that_are_never_cut() -> None:
    loads = [{"name": "open", "rate": 10}, {"name": "trace", "trace": "t.csv"}, {"name": "pool", "concurrency": 2}]
    plan = plan_with([1, 1], loads)
    exact = exact_sizes(plan, {"trace": [0.0, 0.5, 1.9, 2.0]})
    assert exact == {"open": 20, "trace": 3}
    sizing = largest_sizing(plan, pools_of(plan, 40), {"pool": 900}, exact=exact)
    assert sizing.requests["open"] == 20
    assert sizing.clipped == {"pool": (900, sizing.requests["pool"])}
    with pytest.raises(PlanError, match="one boot needs"):
        largest_sizing(plan, pools_of(plan, 12), {"pool": 1}, exact=exact)


def test_each_step_of_a_search_has_prompts_of_its_own_for_the_largest_rate_it_may_come_to() -> None:
    plan = plan_with([3, 1], [{"name": "s", "rates": [2, 32], "steps": 3}], measure="largest_rate")
    exact = exact_sizes(plan)
    drawn = draw(plan, pools_of(plan, 200), 0, exact)
    assert [(window.step, len(window.prompts)) for window in drawn.windows] == [(0, 16), (1, 32), (2, 64)]
    assert exact == {"s": 112}
    asked = [one.sha256 for window in drawn.windows for one in window.prompts]
    assert len(set(asked)) == len(asked)
    for window in drawn.windows:  # a lower rate asks a prefix, which holds the shares too
        first = Counter(one.class_name for one in window.prompts[:8])
        assert abs(first["c0"] - 6) <= 1
