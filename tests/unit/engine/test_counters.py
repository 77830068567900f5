"""Every engine's page becomes the same neutral counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdyno.engine.counters import gauges, parse
from specdyno.records.deltas import Family, difference
from specdyno.records.schema import CounterSample

CASES = Path(__file__).parents[2] / "data" / "cases"


def counted(text):
    return parse(text, stamp_ns=7, source="test")


def values(text, family):
    return {series.labels: series.value for series in counted(text).series if series.name == family}


def since_start(text):
    return difference(CounterSample(0, "start", ()), counted(text))


def test_a_vllm_page_gives_every_family():
    sample = counted((CASES / "vllm_metrics.txt").read_text())
    delta = difference(CounterSample(0, "start", ()), sample)
    assert (delta.drafts, delta.draft_tokens, delta.accepted_tokens, delta.draft_tokens_k) == (79, 395, 161, 5)
    assert (delta.decode_steps, delta.first_tokens, delta.generation_tokens) == (535, 8, 704)
    assert (delta.prefix_queries, delta.prefix_hits, delta.requests_finished) == (1200, 300, 8)
    assert sample.process_start == pytest.approx(1796032229.2939193)
    assert sample.problems == ()
    assert all("model_name" not in dict(series.labels) for series in sample.series)


def test_the_process_stamp_goes_before_created_stamps():
    text = (CASES / "vllm_metrics.txt").read_text() + "process_start_time_seconds 1.7e9\n"
    assert counted(text).process_start == 1.7e9


def test_awkward_text_is_parsed_and_bad_values_are_none():
    sample = counted((CASES / "awkward_metrics.txt").read_text())
    found = {(series.name, dict(series.labels)["engine"]): series.value for series in sample.series}
    assert found == {
        (Family.SPEC_DRAFTS, "0"): 79.0,
        (Family.SPEC_DRAFT_TOKENS, "0"): 395.0,
        (Family.SPEC_ACCEPTED_TOKENS, "0"): 6491797.0,
        (Family.SPEC_ACCEPTED_TOKENS, "9"): None,
        (Family.SPEC_DRAFTS, "9"): None,
    }
    assert len(sample.problems) == 2


@pytest.mark.parametrize("prefix", ["vllm:", "llamacpp:", "sglang:", "trtllm_", "vllm_", "a:b:", "dynamo_x_", ""])
def test_the_prefix_does_not_matter(prefix):
    assert since_start(f'{prefix}spec_decode_num_drafts_total{{engine="0"}} 5\n').drafts == 5


@pytest.mark.parametrize("ending", ["", "_total"])
@pytest.mark.parametrize("header", ["", "# TYPE vllm:spec_decode_num_drafts counter\n"])
def test_the_ending_does_not_matter(header, ending):
    assert since_start(f"{header}vllm:spec_decode_num_drafts{ending} 5\n").drafts == 5


def test_a_created_stamp_is_no_count():
    assert since_start("vllm:spec_decode_num_drafts_created 1.79e9\nvllm:generation_tokens_total 2\n").drafts is None


def test_two_spellings_of_one_counter_are_counted_once():
    delta = since_start((CASES / "llamacpp_metrics.txt").read_text())
    assert (delta.drafts, delta.draft_tokens, delta.accepted_tokens) == (500, 1313, 1054)


def test_the_earlier_spelling_alone_leaves_the_length_unknown():
    delta = since_start("llamacpp:spec_tokens_drafted_total 1313\nllamacpp:spec_tokens_accepted_total 1054\n")
    assert delta.acceptance_rate == pytest.approx(0.8027, abs=5e-5)
    assert delta.mean_accepted_length is None
    assert delta.active is True


@pytest.mark.parametrize("first", [0, 1])
def test_trtllm_token_positions_are_counted_from_zero(first):
    text = "".join(
        f'trtllm_spec_decode_{kind}_tokens_total{{engine_type="pytorch",token_position="{first + place}"}} {count}\n'
        for kind, counts in {"drafted": (20, 18), "accepted": (15, 9)}.items()
        for place, count in enumerate(counts)
    )
    delta = since_start(text)
    assert delta.drafted_per_position == (20, 18)
    assert delta.accepted_per_position == (15, 9)
    assert (delta.drafts, delta.draft_tokens, delta.accepted_tokens, delta.draft_tokens_k) == (20, 38, 24, 2)


def test_trtllm_totals_are_not_added_to_its_positions():
    text = (
        "trtllm_spec_decode_num_draft_tokens_total 38\ntrtllm_spec_decode_num_accepted_tokens_total 24\n"
        'trtllm_spec_decode_drafted_tokens_total{token_position="0"} 20\n'
        'trtllm_spec_decode_drafted_tokens_total{token_position="1"} 18\n'
    )
    assert since_start(text).draft_tokens == 38


def test_sglang_verify_calls_are_drafts_and_decode_steps_and_its_token_histogram_is_not():
    text = (
        'sglang:spec_verify_calls_total{model_name="m"} 40\nsglang:inter_token_latency_seconds_count 98\n'
        "sglang:generation_tokens_total 102\nsglang:time_to_first_token_seconds_count 2\n"
    )
    delta = since_start(text)
    assert (delta.drafts, delta.decode_steps, delta.tokens_per_step) == (40, 40, 2.5)
    assert delta.mean_accepted_length is None


def test_sglang_without_speculation_has_no_step_count():
    assert since_start("sglang:inter_token_latency_seconds_count 98\n").decode_steps is None


def test_gauges_are_kept_apart_from_counters():
    text = 'sglang:spec_accept_length{tp_rank="0"} 2.5\nsglang:spec_accept_rate{tp_rank="0"} NaN\n'
    assert counted(text).series == ()
    assert [(gauge.name, gauge.value) for gauge in gauges(text)] == [
        ("spec_accept_length", 2.5),
        ("spec_accept_rate", None),
    ]


def test_llamacpp_names_are_mapped():
    text = (
        "llamacpp:tokens_predicted_total 50\nllamacpp:prompt_tokens_total 30\nllamacpp:prompt_tokens_cached_total 4\n"
    )
    delta = since_start(text)
    assert (delta.generation_tokens, delta.prompt_tokens, delta.cached_prompt_tokens) == (50, 30, 4)


@pytest.mark.parametrize(
    "line",
    [
        'vllm:spec_decode_num_drafts_total{engine="0"}',
        'vllm:spec_decode_num_drafts_total{engine="0',
        'vllm:spec_decode_num_drafts_total{engine="0"} seven',
        "vllm:spec_decode_num_drafts_total",
        'vllm:spec_decode_num_drafts_total{engine="0",engine="0"} 4',
    ],
)
def test_one_broken_line_is_named_and_does_not_lose_the_rest(line):
    text = f"vllm:generation_tokens_total 9\n{line}\nvllm:prompt_tokens_total 3\n"
    sample = counted(text)
    delta = difference(CounterSample(0, "start", ()), sample)
    assert (delta.generation_tokens, delta.prompt_tokens) == (9, 3)
    assert delta.drafts is None
    assert any(line[:20] in problem for problem in sample.problems)


def test_a_broken_line_in_the_first_scrape_is_not_taken_for_zero():
    before = counted('vllm:generation_tokens_total 9\nvllm:spec_decode_num_drafts_total{engine="0"\n')
    after = counted('vllm:generation_tokens_total 9\nvllm:spec_decode_num_drafts_total{engine="0"} 500\n')
    assert difference(before, after).drafts is None


@pytest.mark.parametrize("text", ["", "\n\n", "<html>502 Bad Gateway</html>", "# only a comment\n"])
def test_a_page_without_metrics_is_a_problem_and_no_zero(text):
    before = counted(text)
    assert before.problems
    assert difference(before, counted("vllm:spec_decode_num_drafts_total 5\n")).drafts is None


def test_colours_carriage_returns_tabs_and_indentation_do_not_matter():
    text = (
        '\ufeff\x1b[32mvllm:spec_decode_num_drafts_total\x1b[0m{engine="0"}\t5\r\n   vllm:generation_tokens_total 8\r\n'
    )
    delta = since_start(text)
    assert (delta.drafts, delta.generation_tokens) == (5, 8)


def test_several_engines_are_summed_and_several_models_not_merged():
    text = (
        'vllm:spec_decode_num_drafts_total{engine="0",model_name="a"} 5\n'
        'vllm:spec_decode_num_drafts_total{model_name="a",engine="1"} 6\n'
        'vllm:spec_decode_num_drafts_total{engine="0",model_name="b"} 7\n'
    )
    assert since_start(text).drafts == 18
    assert len(values(text, Family.SPEC_DRAFTS)) == 3


def test_a_series_printed_twice_with_different_values_is_unknown():
    text = "vllm:spec_decode_num_drafts_total 5\nvllm:spec_decode_num_drafts_total 9\n"
    assert since_start(text).drafts is None


def test_a_negative_count_is_rejected_with_the_reason():
    sample = counted("vllm:spec_decode_num_accepted_tokens_total -1\n")
    assert sample.series[0].value is None
    assert any(problem.startswith("rejected") for problem in sample.problems)


def test_odd_position_labels_do_not_stop_the_reading():
    text = 'a:spec_decode_num_drafts_total 5\na:spec_decode_num_accepted_tokens_per_pos_total{position="first"} 2\n'
    delta = since_start(text)
    assert delta.drafts == 5
    assert delta.accepted_per_position is None
    assert delta.problems
