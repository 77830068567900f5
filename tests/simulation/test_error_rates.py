"""Error rates of the verdict with the truth known; tolerances from the binomial, seeds explicit.

Rates are counted on y_b by the rule as written a second time (`oracle`), after it was held against the verdict's own
code study by study. `make simulate` runs the full set and writes its table into the documentation.
"""

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats
from tests.simulation import oracle, rates, worlds
from tests.simulation.generator import DEFAULT_PLAN

from lab import pages
from specdyno.plan.looks import half_width, nominal_level, simulate
from specdyno.plan.power import power
from specdyno.plan.schema import Plan
from specdyno.statistics.analysis import Analysis
from specdyno.statistics.contrasts import a_a_finding, contrast, ratio_interval
from specdyno.statistics.measures import MEASURES
from specdyno.verdict.decide import Evidence, decide_objective
from specdyno.verdict.schema import Decision, Reason

S = worlds.S
LOOKS = rates.LOOKS
EDGE = rates.THRESHOLD
CLASSES = ("code", "chat", "tools")
OFF = {"tpot": None, "failed_requests": None, "output_length": None}


def plan_with(m, looks=LOOKS, *, scopes=False, minimum_gain=0.05):
    objective = {**DEFAULT_PLAN["objectives"][1], "minimum_gain": minimum_gain, "scopes": scopes}
    classes = [{"name": name, "prompts": "builtin:code", "share": 1 / 3, "max_tokens": 9} for name in CLASSES]
    return Plan.model_validate(
        {
            **DEFAULT_PLAN,
            "candidates": [{"method": "ngram", "draft_tokens": list(range(1, m + 1))}],
            "workload": {"sampling": {"temperature": 0.0}, "classes": classes},
            "objectives": [objective],
            "guards": OFF,
            "experiment": {"looks": looks},
        }
    )


def judged(plan, ys, cells=None, retired=None):
    """The verdict's own answer for one study: y of shape (n, m), cells (n, m, C)."""
    arms = [arm.name for arm in plan.arms()][1:]
    blocks = range(len(ys))
    ends = retired or {}

    def made(arm, values, class_name):
        pairs = tuple((block, float(y)) for block, y in enumerate(values) if block < ends.get(arm, len(ys)))
        return contrast(pairs, measure=MEASURES["jobs_per_s"], cell=(arm, "pool", class_name), decides=True)

    contrasts = [made(arm, ys[:, i], None) for i, arm in enumerate(arms)]
    if cells is not None:
        contrasts += [made(arm, cells[:, i, c], name) for i, arm in enumerate(arms) for c, name in enumerate(CLASSES)]
    analysis = Analysis((), ("baseline", *arms), ("pool",), CLASSES, (), (), tuple(contrasts), (), (), ())
    return decide_objective(Evidence(plan, analysis, tuple(blocks), frozenset(), ends), plan.objectives[0])


# --- the two accounts of one rule -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "looks"), [(1, LOOKS), (3, LOOKS), (2, (4,)), (2, (5, 9))])
@pytest.mark.parametrize("truth", [EDGE, EDGE + S, 0.0])
def test_the_verdict_and_the_rule_written_a_second_time_agree_study_by_study(m, looks, truth):
    ys = worlds.normal(np.random.default_rng(m), (40, looks[-1], m), truth)
    plan = plan_with(m, looks)
    found, when = oracle.decide(ys, looks=looks, level=nominal_level(looks, 0.05, m), threshold=EDGE)
    names = {oracle.HOLD: Decision.HOLD, oracle.PROMOTE: Decision.PROMOTE, oracle.REJECT: Decision.REJECT}
    for study in range(len(ys)):
        candidates = judged(plan, ys[study]).candidates
        assert [c.decision for c in candidates] == [names[f] for f in found[study]]
        decided = [c for c in candidates if c.decision is not Decision.HOLD]
        assert [c.look for c in decided] == [w for w in when[study] if w]


@pytest.mark.parametrize(("truth", "truths"), [(EDGE, (EDGE,) * 3), (0.0, (EDGE + 2 * S, EDGE + 2 * S, -0.2))])
@pytest.mark.parametrize("m", [1, 2])
def test_they_agree_on_the_classes_of_a_scope_too(m, truth, truths):
    ys, cells = worlds.with_cells(np.random.default_rng(m), (60, 12, m), truth=truth, truths=truths)
    plan = plan_with(m, scopes=True)
    found, _ = oracle.decide(ys, looks=LOOKS, level=nominal_level(LOOKS, 0.04, m), threshold=EDGE)
    crossed = oracle.crossed_cells(cells, looks=LOOKS, level_of=rates.cell_level(m), threshold=EDGE)
    seen = Counter()
    for study in range(len(ys)):
        for i, candidate in enumerate(judged(plan, ys[study], cells[study]).candidates):
            if found[study, i] == oracle.PROMOTE:
                assert (candidate.decision, candidate.scope) == (Decision.PROMOTE, None)
                continue
            expected = tuple(name for c, name in enumerate(CLASSES) if crossed[study, i, c])
            seen[len(expected)] += 1
            assert candidate.scope.classes == expected[:1]
            assert candidate.scope.to_confirm == (expected if len(expected) > 1 else ())
            assert (candidate.reason is Reason.SCOPED_GAIN_SHOWN) == bool(expected)
    assert truth == EDGE or seen[2] > 0.5 * len(ys) * m


def test_a_candidate_that_is_left_behind_never_changes_what_the_others_get_and_is_not_promoted():
    """A run that drops what is settled, look by look, against a judge who sees the shortened records only."""
    plan, m = plan_with(4), 4
    arms = [arm.name for arm in plan.arms()][1:]
    truths = np.array([EDGE + 3 * S, EDGE + 1.0 * S, EDGE - 0.5 * S, EDGE - 4 * S])
    draws = worlds.normal(np.random.default_rng(9), (40, 12, m)) + truths
    saved, left = 0, Counter()
    for ys in draws:
        retired, last = {}, 12
        for look in LOOKS:
            verdict = judged(plan, ys[:look], retired=retired)
            open_ = {c.candidate for c in verdict.candidates if c.pursued}
            for candidate in verdict.candidates:
                if candidate.candidate not in open_ | retired.keys() and look < 12:
                    retired[candidate.candidate] = look
            if not open_:
                last = look
                break
        final = judged(plan, ys[:last], retired={arm: end for arm, end in retired.items() if end < last})
        whole = judged(plan, ys)
        for dropped, full in zip(final.candidates, whole.candidates, strict=True):
            left[dropped.reason] += 1
            saved += 12 - retired.get(dropped.candidate, last)
            if dropped.reason is Reason.NOT_PURSUED:
                assert dropped.decision is Decision.HOLD
            else:
                assert dropped.decision is full.decision
                assert dropped.look == full.look or full.decision is Decision.HOLD
        assert final == verdict
    assert left[Reason.NOT_PURSUED] > 10
    assert saved > 0.3 * len(draws) * 12 * len(arms)


# --- what was published -----------------------------------------------------------------------------------------------


def test_the_published_level_gives_the_published_error_and_half_widths():
    studies = 400_000
    smallest = simulate(LOOKS, studies, seed=1)
    share = float((smallest < nominal_level(LOOKS, 0.05)).mean())
    assert nominal_level(LOOKS, 0.05) == 0.0173
    assert share == pytest.approx(0.0503, abs=3 * math.sqrt(0.05 * 0.95 / studies))
    assert [round(half_width(n, 0.0173), 2) for n in LOOKS] == [2.40, 1.43, 1.10, 0.81]
    assert round(half_width(4, nominal_level((4,), 0.05)), 2) == 1.59
    ys = worlds.normal(np.random.default_rng(2), (studies, 12, 1))
    found, _ = oracle.decide(ys, looks=LOOKS, level=0.0173, threshold=0.0)
    for decision in (oracle.PROMOTE, oracle.REJECT):
        assert (found == decision).mean() == pytest.approx(0.0254, abs=4 * math.sqrt(0.025 * 0.975 / studies))


def test_looking_at_every_block_from_3_to_20_at_5_percent_errs_in_23_percent():
    assert float((simulate(range(3, 21), 200_000, seed=3) < 0.05).mean()) == pytest.approx(0.23, abs=0.005)


@pytest.mark.parametrize(("m", "rate"), [(2, 0.05), (8, 0.15)])
def test_identical_arms_without_a_family_promote_something_in_5_to_15_percent(m, rate):
    found, _ = oracle.decide(worlds.normal(np.random.default_rng(4), (40_000, 12, m)), looks=LOOKS, level=0.0173,
                             threshold=0.0)  # fmt: skip
    assert (found == oracle.PROMOTE).any(axis=1).mean() == pytest.approx(rate, abs=0.008)


@pytest.mark.parametrize(("gap", "chance", "blocks"), [(1.0, 0.77, 9.1), (1.5, 0.985, 6.8), (2.0, 1.0, 5.4)])
def test_the_published_power(gap, chance, blocks):
    found = power(LOOKS, 0.0173, [gap])
    assert found.promote == pytest.approx(chance, abs=0.01)
    assert found.blocks == pytest.approx(blocks, abs=0.1)
    ys = worlds.normal(np.random.default_rng(5), (40_000, 12, 1), EDGE + gap * S)
    decisions, when = oracle.decide(ys, looks=LOOKS, level=0.0173, threshold=EDGE)
    assert (decisions == oracle.PROMOTE).mean() == pytest.approx(chance, abs=0.01)
    assert np.where(when == 0, 12, when).mean() == pytest.approx(blocks, abs=0.1)


def test_guards_take_power_and_never_give_any():
    alone, guarded = power(LOOKS, 0.0173, [1.5]), power(LOOKS, 0.0173, [1.5, 1.0])
    assert guarded.promote < alone.promote
    assert power(LOOKS, 0.0173, [0.0]).promote == pytest.approx(0.025, abs=0.004)


# --- levels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [LOOKS, (4, 8), (4, 7, 11), (3, 5, 9, 10, 20), (2, 4)])
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 3, 0.05 / 12])
def test_a_level_spends_what_is_allowed_and_no_more(looks, alpha):
    level, studies = nominal_level(looks, alpha), 400_000
    spent = float((simulate(looks, studies, seed=6) < level).mean())
    error = math.sqrt(alpha * (1 - alpha) / studies)
    assert spent <= alpha * (1.01 if (looks, alpha) == (LOOKS, 0.05) else 1.0) + 3 * error
    assert spent >= 0.85 * alpha - 3 * error
    assert level >= 0.999 * alpha / len(looks) - 1e-12 or level > 0


def test_an_untabulated_plan_gets_the_same_level_each_time_and_never_less_than_bonferroni():
    looks = (4, 7, 11, 15)
    first = nominal_level(looks, 0.05, 4)
    assert first == nominal_level(list(looks), 0.05, 4)
    assert 0.05 / 4 / 4 * 0.99 <= first < 0.05 / 4
    assert nominal_level(looks, 1e-6) == pytest.approx(1e-6 / 4, rel=0.01)


def test_more_candidates_and_more_looks_make_a_level_smaller():
    levels = [nominal_level(LOOKS, 0.05, m) for m in range(1, 13)]
    assert levels == sorted(levels, reverse=True)
    assert nominal_level((4,), 0.05) > nominal_level((4, 8), 0.05) > nominal_level((4, 6, 8), 0.05) > levels[0]


# --- error rates ------------------------------------------------------------------------------------------------------


def test_every_rate_of_the_table_keeps_its_promise():
    for rate in rates.measure(20_000):
        assert rate.kept, rate


def test_the_table_in_the_documentation_is_of_these_cases_and_keeps_its_promises():
    page = (pages.DOCS / "statistics.md").read_text(encoding="utf-8")
    shown = pages.parts(page, "simulated")[1].splitlines()[2:]
    cases = [line.split("|")[1].strip() for line in shown]
    assert cases == [rate.what for rate in rates.measure(250)]
    for line in shown:
        _, _, _, studies, seen, promised, _ = (part.strip() for part in line.split("|"))
        if promised.startswith("at most"):
            share, allowed = (float(text.split()[-2]) / 100 for text in (seen, promised))
            spread = math.sqrt(allowed * (1 - allowed) / int(studies.replace(",", "")))
            assert share <= allowed + 3.1 * spread, line


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_full_set_keeps_every_promise_and_writes_the_table():
    found = rates.measure(200_000)
    pages.write("statistics.md", {"simulated": rates.table(found)})
    assert [rate for rate in found if not rate.kept] == []


def test_one_comparison_at_one_look_errs_at_its_nominal_rate():
    studies = 60_000
    found, _ = oracle.decide(worlds.normal(np.random.default_rng(11), (studies, 4, 1), EDGE), looks=(4,), level=0.05,
                             threshold=EDGE)  # fmt: skip
    low, high = stats.binom.ppf([0.0005, 0.9995], studies, 0.025)
    assert low <= (found == oracle.PROMOTE).sum() <= high
    assert low <= (found == oracle.REJECT).sum() <= high


@pytest.mark.parametrize("n", [3, 4, 6, 12])
def test_t_intervals_cover_at_their_nominal_level(n):
    studies = 4000
    ys = np.random.default_rng(14).normal(0.1, S, (studies, n))
    hits = 0
    for row in ys:
        interval = ratio_interval(row.tolist(), 0.95)
        hits += interval.low <= math.exp(0.1) <= interval.high
    assert abs(hits / studies - 0.95) < 0.01 + 3 * math.sqrt(0.95 * 0.05 / studies)


@pytest.mark.parametrize("name", [name for name in worlds.WORLDS if name not in worlds.BEYOND])
def test_intervals_over_boots_that_are_not_normal_still_cover_nine_in_ten(name):
    ys = worlds.WORLDS[name](np.random.default_rng(15), (40_000, 6, 1))
    low, high = oracle.bounds(ys, 0.05)
    covered = float(((low <= 0) & (high >= 0)).mean())
    print(f"{name}: a 95 % interval over 6 blocks covers in {covered:.1%}")
    assert covered >= 0.90


@pytest.mark.parametrize(("n", "m"), [(4, 1), (4, 3), (12, 3), (12, 8)])
def test_the_baseline_against_itself_raises_a_false_alarm_in_one_to_two_percent(n, m):
    rng = np.random.default_rng(100 * n + m)
    studies, alarms = 1500, 0
    for _ in range(studies):
        boots = rng.normal(0, worlds.BOOT, (n, m + 2))
        made = [
            contrast(tuple(enumerate((boots[:, i] - boots[:, 0]).tolist())), measure=MEASURES["jobs_per_s"],
                     cell=(str(i), "pool", None), decides=True)
            for i in range(1, m + 2)
        ]  # fmt: skip
        alarms += a_a_finding(made[0], made[1:]) is not None
    assert alarms <= stats.binom.ppf(0.999, studies, 0.02)
