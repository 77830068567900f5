import pytest

from specdyno.engine.simulated.answers import Author, Limits
from specdyno.engine.simulated.faults import Fault, parse_faults
from specdyno.engine.simulated.prefixes import PrefixCache
from specdyno.engine.simulated.settings import read_settings
from specdyno.engine.simulated.speculation import parse_speculation
from specdyno.engine.simulated.truth import Truth, read_truth, uniform


def test_tokens_per_step_is_one_plus_the_sum_of_the_joint_acceptance():
    truth = read_truth('{"acceptance": {"code": [0.8, 0.5]}}')
    assert truth.tokens_per_step("code", 1) == pytest.approx(1.8)
    assert truth.tokens_per_step("code", 3) == pytest.approx(1 + 0.8 + 0.4 + 0.2)  # the last value holds on
    assert truth.tokens_per_step("code", 0) == 1.0


def test_variable_drafts_average_over_their_lengths():
    truth = read_truth('{"acceptance": [0.5], "variable_drafts": true, "coverage": 0.5}')
    assert truth.tokens_per_step("any", 2) == pytest.approx(1 + 0.5 * (0.5 + 0.75) / 2)


@pytest.mark.parametrize(
    ("cost", "draft_tokens", "expected"),
    [("[1.1, 1.3]", 1, 1.1), ("[1.1, 1.3]", 3, 1.5), ('{"2": 1.4}', 1, 1.2), ("[]", 4, 1.0), ("[1.1]", 0, 1.0)],
)
def test_step_cost_runs_straight_between_and_beyond_its_points(cost, draft_tokens, expected):
    assert read_truth(f'{{"step_cost": {cost}}}').drafting_cost(draft_tokens) == pytest.approx(expected)


def test_load_cost_makes_the_same_draft_lose_in_company():
    truth = read_truth('{"acceptance": [0.5], "step_cost": [1.1], "load_cost": 0.1}')
    assert truth.speed_up("any", 1) == pytest.approx(1.5 / 1.1)
    assert truth.speed_up("any", 1, running=8) == pytest.approx(1.5 / 1.8)


def test_a_step_costs_what_the_number_running_and_the_share_with_a_draft_say():
    truth = read_truth('{"step_ms": 10, "batch_cost": 0.1, "step_cost": [1.5]}')
    assert truth.step_s(3) == pytest.approx(0.012)
    assert truth.step_s(3, drafted_share=0.5, draft_tokens=1) == pytest.approx(0.012 * 1.25)


def test_acceptance_is_drawn_as_the_truth_says():
    truth = read_truth('{"acceptance": [0.7, 0.5, 0.4], "coverage": 0.6}')
    draws = [truth.draft("any", seed, step=step, draft_tokens=3) for seed in range(500) for step in range(20)]
    drafted = [accepted for proposed, accepted in draws if proposed]
    assert len(drafted) / len(draws) == pytest.approx(0.6, abs=0.02)
    joint = [sum(accepted > place for accepted in drafted) / len(drafted) for place in range(3)]
    assert joint == pytest.approx([0.7, 0.35, 0.14], abs=0.025)  # four standard deviations


def test_answer_length_has_the_mean_of_its_class_and_no_boot_in_it():
    truth = read_truth('{"output_tokens": {"code": 200}}')
    lengths = [truth.answer_tokens("code", seed * 7919) for seed in range(2000)]
    assert sum(lengths) / len(lengths) == pytest.approx(200, rel=0.03)
    assert lengths == [truth.answer_tokens("code", seed * 7919) for seed in range(2000)]


def test_boots_differ_in_speed_by_their_seed_only():
    factors = {Truth(boot_spread=0.1).boot_factor(seed) for seed in range(20)}
    assert len(factors) == 20
    assert Truth(boot_spread=0.1).boot_factor(3) in factors
    assert Truth(boot_spread=0.0).boot_factor(3) == 1.0


def test_a_method_can_have_its_own_truth():
    truth = read_truth('{"acceptance": [0.9], "methods": {"ngram": {"acceptance": [0.2], "coverage": 0.5}}}')
    assert truth.under("ngram").tokens_per_step("any", 1) == pytest.approx(1.1)
    assert truth.under("eagle3") is truth


def test_classes_come_by_name_or_else_from_the_named_ones():
    truth = read_truth('{"acceptance": {"code": [0.9], "chat": [0.5]}}')
    assert truth.class_of(5, "prose") == "prose"
    assert {truth.class_of(seed, None) for seed in range(9)} == {"code", "chat"}
    assert Truth().class_of(5, None) == "*"


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        "@/no/such/file",
        '{"speed": 2}',
        '{"acceptance": [1.5]}',
        '{"acceptance": {"code": []}}',
        '{"step_ms": 0}',
        '{"step_ms": "fast"}',
        '{"coverage": true}',
        '{"variable_drafts": 1}',
        '{"noise": -1}',
        '{"output_tokens": 0}',
        '{"step_cost": {"x": 1}}',
        '{"methods": {"ngram": {"speed": 2}}}',
        '{"methods": {"ngram": {"methods": {}}}}',
    ],
)
def test_a_truth_that_makes_no_sense_is_refused(text):
    with pytest.raises(ValueError, match="truth"):
        read_truth(text)


def test_later_truths_win_and_files_are_read(tmp_path):
    (tmp_path / "truth.json").write_text('{"step_ms": 5, "noise": 0.5}')
    given = ["--model", "m", "--truth", f"@{tmp_path}/truth.json", "--truth", '{"noise": 0}']
    settings = read_settings(given)
    assert (settings.truth.step_ms, settings.truth.noise) == (5.0, 0.0)


def test_uniform_spreads_evenly():
    drawn = sorted(uniform(seed, step) for seed in range(50) for step in range(50))
    assert max(abs(value - (place + 0.5) / 2500) for place, value in enumerate(drawn)) < 0.033  # Kolmogorov, 1 %


def _compose(faults=(), *, truth="{}", seed=11, tools=(), **limits):
    author = Author(read_truth(truth), parse_faults(faults, speculating=True))
    return author.compose(seed, "*", limits=Limits(**{"max_tokens": 1000, **limits}), tools=tools)


def test_a_natural_end_shows_nothing_and_a_limit_cuts():
    whole = _compose()
    assert whole.pieces[-1] == ""
    assert whole.finish_reason == "stop"
    cut = _compose(max_tokens=5)
    assert (cut.pieces, cut.finish_reason) == (whole.pieces[:5], "length")


def test_forced_length_runs_to_the_limit():
    forced = _compose(max_tokens=500, ignore_eos=True)
    assert (len(forced), forced.finish_reason) == (500, "length")
    assert "" not in forced.pieces


def test_a_stop_string_ends_the_text_before_itself():
    whole = "".join(_compose().pieces)
    stop = whole.split()[6][:3] + "X"
    assert "".join(_compose(stop=(stop,)).pieces) == whole
    stop = whole[20:31]
    stopped = _compose(stop=(stop,))
    assert "".join(stopped.pieces) == whole[: whole.index(stop)]
    assert stopped.finish_reason == "stop"


def test_short_answers_are_shorter_by_their_factor():
    assert len(_compose(["short_answers:0.25"])) == pytest.approx(len(_compose()) / 4, abs=1)


def test_looping_and_markup_texts_are_what_they_say():
    words = "".join(_compose(["loop_text"]).pieces).split()
    assert words[:10] == words[5:10] * 2
    marked = "".join(_compose(["markup_text"]).pieces)
    assert "<script>" in marked
    assert "\x1b[31m" in marked


def test_a_tool_call_fills_the_first_tool_that_was_offered():
    shape = {"unit": {"enum": ["C", "F"]}, "days": {"type": "integer"}, "place": {"type": "string"}}
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"properties": shape}}}
    call = _compose(tools=[tool])
    assert call.tool == "weather"
    assert call.finish_reason == "tool_calls"
    assert '"unit": "' in "".join(call.pieces)
    assert _compose(truth='{"tool_calls": 0}', tools=[tool]).tool is None


@pytest.mark.parametrize(
    ("specs", "speculating", "expected"),
    [
        (["http_500:0.25,child"], False, {Fault.HTTP_500: 0.25, Fault.CHILD: 1.0}),
        (["candidate@slow_stop"], True, {Fault.SLOW_STOP: 5.0}),
        (["candidate@slow_stop"], False, {}),
        (["baseline@short_answers:0.9"], False, {Fault.SHORT_ANSWERS: 0.9}),
    ],
)
def test_faults_strike_the_arm_they_are_meant_for(specs, speculating, expected):
    assert parse_faults(specs, speculating=speculating) == expected


@pytest.mark.parametrize("spec", ["nonsense", "http_500:2", "child:3", "http_500:x", "http_500:", "b@child"])
def test_a_fault_that_makes_no_sense_is_refused(spec):
    with pytest.raises(ValueError, match="fault"):
        parse_faults([spec], speculating=False)


def test_speculation_resolves_like_the_engine_it_stands_for():
    assert str(parse_speculation('{"method": "eagle3", "model": "d", "num-speculative-tokens": 3}')) == (
        "SpeculativeConfig(method='eagle3', model='d', num_spec_tokens=3)"
    )
    assert parse_speculation('{"method": "suffix"}').draft_tokens == 24
    assert parse_speculation('{"model": "d", "num_speculative_tokens": 2}').method == "draft_model"


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "x",
        '{"method": "ngram"}',
        '{"method": "eagle3", "num_speculative_tokens": 3}',
        '{"method": "magic", "num_speculative_tokens": 3}',
        '{"method": "ngram", "num_speculative_tokens": 3, "lookup": 1}',
        '{"method": "ngram", "num_speculative_tokens": 200}',
    ],
)
def test_a_speculative_configuration_that_cannot_run_is_refused(text):
    with pytest.raises(ValueError, match=r"SpeculativeConfig|speculative-config"):
        parse_speculation(text)


def test_prefixes_are_cached_in_whole_blocks_short_of_the_last_token():
    cache = PrefixCache()
    assert cache.hits("a" * 64 * 3) == 0
    assert cache.hits("a" * 64 * 3) == 32  # the last block holds the last token
    assert cache.hits("a" * 64 * 2 + "b" * 100) == 32
    assert cache.hits("b" + "a" * 200) == 0
