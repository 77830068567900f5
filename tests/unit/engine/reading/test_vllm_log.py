"""Lines of vLLM's log become counts, pooled by drafts."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdyno.engine.reading.vllm_log import read

CASES = Path(__file__).parents[3] / "data" / "cases"
LINES = (CASES / "vllm_log.txt").read_text().splitlines()


def line(*, mean, accepted, drafted, positions, rate=None):
    share = accepted / drafted * 100 if rate is None else rate
    return (
        f"INFO SpecDecoding metrics: Mean acceptance length: {mean}, Accepted throughput: 1.00 tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: {positions}, "
        f"Avg Draft acceptance rate: {share:.1f}%"
    )


@pytest.mark.parametrize(
    ("row", "steps", "k", "mean", "rate", "first"),
    [
        (0, 913, 4, 1 + 25 / 913, 25 / 3652, 0.027),
        (1, 59, 5, 1 + 262 / 59, 262 / 295, 0.983),
        (3, 720, 3, 1 + 1795 / 720, 1795 / 2160, 0.951),
    ],
)
def test_drafts_are_exact_where_drafted_over_k_agrees_with_the_printed_mean(row, steps, k, mean, rate, first):
    reading = read(LINES[row])
    assert (reading.steps, reading.draft_tokens_k) == (steps, k)
    assert reading.mean_accepted_length == pytest.approx(mean)
    assert reading.acceptance_rate == pytest.approx(rate)
    assert reading.joint[0] == first
    assert len(reading.joint) == k
    assert not reading.estimated
    assert not reading.problems


def test_without_a_mean_or_positions_only_the_rate_is_known():
    reading = read(LINES[2])
    assert (reading.draft_tokens, reading.accepted_tokens, reading.acceptance_rate) == (66, 66, 1.0)
    assert (reading.steps, reading.draft_tokens_k, reading.mean_accepted_length) == (None, None, None)
    assert reading.joint == {}


def test_nan_is_undefined_and_not_zero():
    reading = read(LINES[4])
    assert (reading.draft_tokens, reading.accepted_tokens) == (0, 0)
    assert (reading.mean_accepted_length, reading.acceptance_rate, reading.joint) == (None, None, {})
    assert reading.active is False


def test_unknown_fields_are_kept():
    assert read(LINES[0]).fields["drafted throughput"] == "365.14 tokens/s"
    assert read(f"{LINES[3]}, Novel field: 7 apples").fields["novel field"] == "7 apples"


def test_windows_are_pooled_by_drafts_and_not_averaged():
    log = "\n".join(
        [
            line(mean="1.50", accepted=50, drafted=300, positions="0.300, 0.150, 0.050"),
            line(mean="3.00", accepted=1800, drafted=2700, positions="0.900, 0.700, 0.400"),
        ]
    )
    reading = read(log)
    assert (reading.steps, reading.draft_tokens, reading.accepted_tokens) == (1000, 3000, 1850)
    assert reading.mean_accepted_length == pytest.approx(2.85)
    assert reading.joint == pytest.approx({0: 0.84, 1: 0.645, 2: 0.365})


def test_different_draft_lengths_and_engines_are_kept_apart():
    reading = read("\n".join(LINES))
    assert [part.label for part in reading.parts] == ["K 4", "K 5", "K unknown", "K 3", "DP1, K 2"]
    assert reading.draft_tokens_k is None
    assert reading.joint == {}
    assert (reading.draft_tokens, reading.accepted_tokens) == (6173, 2148)
    assert reading.mean_accepted_length == pytest.approx(1 + (25 + 262 + 1795) / (913 + 59 + 720))
    assert any("draft length" in note for note in reading.notes)


def test_drafts_of_varying_length_are_estimated_from_the_mean_and_labelled():
    reading = read(line(mean="3.04", accepted=161, drafted=330, positions="0.646, 0.443, 0.392, 0.342, 0.215"))
    assert reading.steps == 79
    assert reading.estimated
    assert reading.mean_accepted_length == 3.04
    assert reading.draft_tokens_k == 5


def test_colours_and_carriage_returns_do_not_matter():
    coloured = "\r\n".join(f"\x1b[32m(EngineCore pid=1)\x1b[0m {text}\x1b[0m" for text in LINES)
    assert read(coloured).draft_tokens == 6173


@pytest.mark.parametrize("end", range(60, len(LINES[3]), 7))
def test_a_cut_line_never_gives_a_wrong_count(end):
    reading = read(LINES[3][:end])
    assert reading.draft_tokens in (None, 2160)
    assert reading.accepted_tokens in (None, 1795)
    assert reading.steps is None or reading.steps == pytest.approx(720, rel=0.01)
    assert reading.mean_accepted_length is None or reading.mean_accepted_length == pytest.approx(3.49, abs=0.01)
    assert reading.draft_tokens_k in (None, 3)


def test_a_cut_list_of_positions_leaves_k_unknown():
    cut = line(mean="3.49", accepted=1795, drafted=2160, positions="0.951, 0.842").split(", Avg")[0]
    reading = read(cut)
    assert reading.draft_tokens_k is None
    assert reading.mean_accepted_length == 3.49
    assert any("more than 2 positions" in problem for problem in reading.problems)


def test_a_window_that_cannot_be_is_left_out_of_the_pool():
    good = line(mean="1.50", accepted=50, drafted=300, positions="0.300, 0.150, 0.050")
    bad = line(mean="9.00", accepted=400, drafted=300, positions="0.300, 0.150, 0.050")
    reading = read(f"{good}\n{bad}")
    assert (reading.accepted_tokens, reading.draft_tokens) == (50, 300)
    assert any("rejected: 400 accepted of 300" in problem for problem in reading.problems)
    assert any("left out" in note for note in reading.notes)


@pytest.mark.parametrize(("mean", "rate"), [("5.20", 16.7), ("0.50", 16.7), ("1.50", 131.0)])
def test_values_out_of_range_are_rejected_with_the_reason(mean, rate):
    reading = read(line(mean=mean, accepted=50, drafted=300, positions="0.300, 0.150, 0.050", rate=rate))
    assert any("rejected" in problem for problem in reading.problems)
    assert reading.mean_accepted_length == pytest.approx(1.5)
    assert reading.acceptance_rate == pytest.approx(50 / 300)


def test_negative_counts_are_rejected():
    reading = read(line(mean="1.50", accepted=-1, drafted=300, positions="0.300, 0.150, 0.050", rate=-0.3))
    assert reading.accepted_tokens is None
    assert sum("rejected" in problem for problem in reading.problems) == 2


def test_lines_without_counts_are_given_as_a_range():
    text = "SpecDecoding metrics: Mean acceptance length: {}, Avg Draft acceptance rate: 83.7%"
    assert read(text.format("3.51")).mean_accepted_length == 3.51
    two = read(f"{text.format('3.51')}\n{text.format('2.10')}")
    assert two.length_range == (2.10, 3.51)
    assert two.mean_accepted_length is None
