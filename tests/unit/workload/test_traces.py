"""Traces are told apart by their content; what cannot be used is counted with its line and reason."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdyno.errors import PlanError
from specdyno.plan import parse
from specdyno.workload.traces import load_traces, read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2225670,879,55
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,276,693,Conversation log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}
{"timestamp": 3052, "input_length": 7322, "output_length": 490, "hash_ids": [0, 2]}
"""


@pytest.fixture
def trace(tmp_path):
    def read(text: str | bytes):
        path = tmp_path / "trace"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_trace(path)

    return read


@pytest.mark.parametrize(
    ("text", "form", "times", "lengths"),
    [
        (AZURE, "Azure", (0.0, 4.314579, 4.541977), (549.67, 69.33)),
        (BURST, "BurstGPT", (0.0, 40.0, 113.0), (658.67, 174.67)),
        (MOONCAKE, "Mooncake", (0.0, 3.052), (7040.0, 495.0)),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_each_format_is_known_by_its_content(trace, text, form, times, lengths, ends):
    read = trace(text.replace("\n", ends))
    assert read.format == form
    assert read.times_s == pytest.approx(times, abs=1e-6)
    assert (read.prompt_tokens, read.output_tokens) == pytest.approx(lengths, abs=0.01)
    assert (read.skipped, read.unsorted) == (0, 0)
    assert "only its times are used" in str(read)


def test_later_azure_files_have_a_zone(trace):
    text = AZURE.replace(".6805900,", ".680590+00:00,").replace("50.9951690", "50+00:00")
    assert trace(text).times_s[1] == pytest.approx(3.31941, abs=1e-5)


def test_bad_rows_are_counted_with_line_and_reason_and_the_others_go_on(trace):
    read = trace(AZURE + "yesterday,1,2\n\n,3,4\n2023-11-16 18:15:53.0,x,\n")
    assert len(read.times_s) == 4
    assert read.skipped == 2
    assert read.reasons == ((5, "has no time in 'yesterday'"), (7, "has no timestamp"))
    assert read.prompt_tokens == pytest.approx(549.67, abs=0.01)
    assert "2 rows cannot be used, first: line 5" in str(read)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "is no JSON"), ("[1]", "has no timestamp"), ('{"time": 3}', "has no timestamp"),
        ('{"timestamp": "soon"}', "has no time"), ('{"timestamp": true}', "has no time"),
        ('{"timestamp": NaN}', "is no JSON"), ('{"timestamp": 1e999}', ""), ('{"timestamp": null}', "has no time"),
    ],
)  # fmt: skip
def test_rows_of_json_lines_without_a_time_are_skipped(trace, row, reason):
    read = trace(MOONCAKE + row + "\n")
    assert len(read.times_s) == 2
    assert read.reasons[0][0] == 3
    assert reason in read.reasons[0][1]


def test_times_out_of_order_are_sorted_and_noted(trace):
    rows = BURST.splitlines()
    read = trace("\n".join([rows[0], rows[3], rows[1], rows[2]]))
    assert read.times_s == (0.0, 40.0, 113.0)
    assert read.unsorted == 1
    assert "out of order" in str(read)


@pytest.mark.parametrize("text", ["", "\n\n", "prompt,answer\n1,2\n", "hello", b"\x00\x01\x02", "[1, 2]"])
def test_what_is_no_trace_is_refused(trace, text):
    with pytest.raises(PlanError, match=r"no arrival trace|is empty"):
        trace(text)


def test_one_arrival_is_no_trace(trace):
    with pytest.raises(PlanError, match=r"holds 1 usable arrivals.*line 3 has no time"):
        trace("Timestamp,Model,Request tokens,Response tokens\n5,m,1,2\nx,m,1,2\n")


def test_a_line_of_many_megabytes_is_one_bad_row(trace):
    read = trace(MOONCAKE + '{"timestamp": 9, "x": "' + "a" * 3_000_000 + '"}\n' + '{"timestamp": 9000}\n')
    assert len(read.times_s) == 3
    assert read.skipped == 1


# A busy host may generate slowly; that says nothing of the reader.
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(rows=st.lists(st.floats(0, 1e6), min_size=2, max_size=60), bad=st.lists(st.sampled_from(["x", "", "nan"])))
def test_every_row_is_either_used_or_counted(rows, bad, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    lines = [f"{value!r},m,1,2" for value in rows] + [f"{value},m,1,2" for value in bad]
    path.write_text("\n".join(["Timestamp,Model,Request tokens,Response tokens", *lines]))
    read = read_trace(path)
    assert len(read.times_s) + read.skipped == len(rows) + len(bad)
    assert read.times_s == tuple(sorted(value - min(rows) for value in rows))


def test_all_traces_of_a_plan_are_read_or_all_problems_told(tmp_path):
    (tmp_path / "a.csv").write_text(AZURE)
    text = """
study: t
target: {model: m}
engine: {kind: simulated}
candidates: [{method: ngram, draft_tokens: 3}]
workload:
  sampling: {temperature: 0}
  classes: [{name: code, prompts: "builtin:code", share: 1, max_tokens: 8}]
loads:
  - {name: azure, trace: ./a.csv, window: 9s}
  - {name: gone, trace: ./gone.csv, window: 9s}
  - {name: folder, trace: ., window: 9s}
objectives: [{name: o, load: azure, measure: jobs_per_s}]
"""
    with pytest.raises(PlanError) as caught:
        load_traces(parse.parse(text), tmp_path)
    assert [problem.place for problem in caught.value.problems] == ["loads[1].trace", "loads[2].trace"]
    good = text.replace(
        "  - {name: gone, trace: ./gone.csv, window: 9s}\n  - {name: folder, trace: ., window: 9s}\n", ""
    )
    assert set(load_traces(parse.parse(good), tmp_path)) == {"azure"}
