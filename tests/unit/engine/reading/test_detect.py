"""A text is known by its content; two scrapes make a difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specdyno.engine.reading.detect import read, read_pair
from specdyno.engine.reading.schema import Kind

CASES = Path(__file__).parents[3] / "data" / "cases"
KINDS = {
    "vllm_metrics.txt": Kind.METRICS,
    "awkward_metrics.txt": Kind.METRICS,
    "llamacpp_metrics.txt": Kind.METRICS,
    "vllm_log.txt": Kind.VLLM_LOG,
    "vllm_answer.json": Kind.ANSWER,
    "sglang_answer.json": Kind.ANSWER,
    "sglang_info.json": Kind.SGLANG_SERVER_INFO,
    "sglang_log.txt": Kind.SGLANG_LOG,
    "llamacpp_answer.json": Kind.ANSWER,
    "llamacpp_log.txt": Kind.LLAMACPP_LOG,
    "vllm_bench.json": Kind.BENCH_RESULT,
    "vllm_offline.txt": Kind.OFFLINE_RESULT,
    "golden.yaml": Kind.GOLDEN_ACCEPTANCE,
}


def test_every_case_has_its_kind():
    assert {path.name for path in CASES.iterdir()} == set(KINDS)


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_a_text_is_known_by_its_content(name, kind):
    assert read((CASES / name).read_text()).kind is kind


@pytest.mark.parametrize("name", KINDS)
def test_line_ends_and_a_byte_order_mark_change_nothing(name):
    text = (CASES / name).read_text()
    assert read("\ufeff" + text.replace("\n", "\r\n")) == read(text)


@pytest.mark.parametrize("name", KINDS)
def test_a_text_cut_anywhere_is_read_without_an_impossible_value(name):
    text = (CASES / name).read_text()
    for end in range(0, len(text), 11):
        whole = read(text[:end])
        for reading in (whole, *whole.parts):
            assert reading.acceptance_rate is None or 0 <= reading.acceptance_rate <= 1
            assert reading.mean_accepted_length is None or reading.mean_accepted_length >= 1


def test_a_scrape_gives_counts_since_the_server_started():
    reading = read((CASES / "vllm_metrics.txt").read_text())
    assert (reading.steps, reading.draft_tokens_k) == (79, 5)
    assert reading.mean_accepted_length == pytest.approx(3.0380, abs=5e-5)
    assert reading.acceptance_rate == pytest.approx(0.4076, abs=5e-5)
    assert reading.tokens_per_step == pytest.approx(696 / 535)
    assert reading.problems == ()


def test_bad_values_in_a_scrape_are_unknown_and_not_zero():
    reading = read((CASES / "awkward_metrics.txt").read_text())
    assert (reading.steps, reading.accepted_tokens, reading.mean_accepted_length) == (None, None, None)
    assert reading.draft_tokens == 395
    assert reading.problems


def test_an_answers_histogram_gives_acceptance_by_position():
    reading = read((CASES / "vllm_answer.json").read_text())
    assert reading.mean_accepted_length == pytest.approx(1.2326, abs=5e-5)
    assert reading.joint == pytest.approx({0: 4 / 43, 1: 3 / 43, 2: 3 / 43})


def test_llamacpp_timings_are_labelled_as_estimated():
    reading = read((CASES / "llamacpp_answer.json").read_text())
    assert reading.steps == 134
    assert reading.mean_accepted_length == pytest.approx(1.485, abs=5e-4)
    assert reading.estimated


def test_odd_usage_is_a_problem_of_the_reading():
    usage = {"prompt_tokens": 164, "completion_tokens": 23870, "reasoning_tokens": 23871, "total_tokens": 24034}
    assert read(json.dumps({"usage": usage})).problems


def test_a_recorded_stream_is_read_from_its_last_telling_event():
    answer = (CASES / "vllm_answer.json").read_text().strip()
    stream = f'data: {{"choices":[{{"delta":{{"content":"a"}}}}]}}\n\ndata: {answer}\n\ndata: [DONE]\n\n'
    assert read(stream).steps == 43


def test_several_results_are_kept_apart():
    bench = (CASES / "vllm_bench.json").read_text().strip()
    reading = read(f"{bench}\n{bench}\n{{broken")
    assert reading.kind is Kind.BENCH_RESULT
    assert [part.steps for part in reading.parts] == [23975, 23975]
    assert any("no JSON" in problem for problem in reading.problems)


def test_several_kinds_in_one_text_are_kept_apart():
    text = (CASES / "vllm_log.txt").read_text() + (CASES / "sglang_log.txt").read_text()
    reading = read(text)
    assert reading.kind is Kind.MIXED
    assert [part.kind for part in reading.parts] == [Kind.VLLM_LOG, Kind.SGLANG_LOG]


def test_an_answer_before_a_log_does_not_hide_it():
    text = (CASES / "llamacpp_answer.json").read_text() + (CASES / "llamacpp_log.txt").read_text()
    assert {part.kind for part in read(text).parts} == {Kind.ANSWER, Kind.LLAMACPP_LOG}


def test_trtllm_iteration_statistics_are_summed():
    page = {"specDecodingStats": {"numDraftTokens": 6, "numAcceptedTokens": 4, "numRequestsWithDraftTokens": 2}}
    reading = read(json.dumps([page, page, {"iter": 3}]))
    assert reading.kind is Kind.TRTLLM_STATISTICS
    assert (reading.steps, reading.mean_accepted_length) == (4, 3.0)


@pytest.mark.parametrize("text", ["", " \r\n", "hello", "{", '{"a": 1}', "[1, 2]", "3: 4", "data: [DONE]"])
def test_an_unknown_text_says_so(text):
    reading = read(text)
    assert reading.kind is Kind.UNKNOWN
    assert reading.problems
    assert reading.mean_accepted_length is None


def test_gauges_do_not_become_the_mean():
    text = (
        'sglang:spec_accept_length{tp_rank="0",model_name="m"} 2.5\nsglang:spec_accept_rate{tp_rank="0"} 1.31\n'
        "sglang:generation_tokens_total 50\n"
    )
    reading = read(text)
    assert reading.mean_accepted_length is None
    (gauge,) = reading.parts
    assert gauge.mean_accepted_length == 2.5
    assert gauge.acceptance_rate is None
    assert any("1.31" in problem for problem in gauge.problems)


def test_a_pair_gives_what_was_counted_between():
    before = (
        'vllm:spec_decode_num_drafts_total{engine="0"} 10\nvllm:spec_decode_num_accepted_tokens_total{engine="0"} 9\n'
    )
    after = (
        'vllm:spec_decode_num_accepted_tokens_total{engine="0"} 39\nvllm:spec_decode_num_drafts_total{engine="0"} 30\n'
    )
    reading = read_pair(before, after)
    assert (reading.steps, reading.accepted_tokens, reading.mean_accepted_length) == (20, 30, 2.5)


def test_a_series_that_appears_after_first_use_counts_from_zero():
    before = "llamacpp:tokens_predicted_total 0\n"
    after = (
        "llamacpp:spec_decode_num_drafts_total 12\nllamacpp:spec_decode_num_draft_tokens_total 36\n"
        "llamacpp:spec_decode_num_accepted_tokens_total 20\nllamacpp:tokens_predicted_total 33\n"
    )
    assert read_pair(before, after).mean_accepted_length == pytest.approx(2.67, abs=0.005)


def test_speculation_that_never_drafted_is_told_from_zero_acceptance():
    page = (
        "vllm:spec_decode_num_drafts_total 0\nvllm:spec_decode_num_draft_tokens_total 0\n"
        "vllm:spec_decode_num_accepted_tokens_total 0\nvllm:generation_tokens_total {}\n"
    )
    reading = read_pair(page.format(100), page.format(5100))
    assert "spec active: no (0 drafts over 5000 tokens)" in reading.notes
    assert (reading.mean_accepted_length, reading.acceptance_rate, reading.active) == (None, None, False)


@pytest.mark.parametrize("stamp", ["process_start_time_seconds {}\n", "vllm:spec_decode_num_drafts_created {}\n"])
def test_a_restart_between_scrapes_is_noted(stamp):
    page = "vllm:spec_decode_num_drafts_total {}\nvllm:spec_decode_num_accepted_tokens_total {}\n"
    reading = read_pair(page.format(1000, 1800) + stamp.format(1.7e9), page.format(40, 70) + stamp.format(1.8e9))
    assert (reading.steps, reading.accepted_tokens) == (40, 70)
    assert "since restart" in reading.notes


def test_another_draft_length_is_refused():
    def page(positions, count):
        rows = (
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{p}"}} {count}\n' for p in range(positions)
        )
        return f"vllm:spec_decode_num_drafts_total {count}\n" + "".join(rows)

    reading = read_pair(page(5, 40), page(3, 90))
    assert (reading.steps, reading.mean_accepted_length, reading.joint) == (None, None, {})
    assert any("fresh baseline" in problem for problem in reading.problems)
