"""Laws of counters: differences are never negative, scrapes are never fatal, label order is irrelevant."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from specdyno.engine.counters import gauges, parse
from specdyno.engine.reading.detect import read, read_pair
from specdyno.engine.reading.per_request import spec_steps, usage_problems
from specdyno.records.deltas import CANONICAL, CounterDelta, Family, difference
from specdyno.records.schema import CounterSample, Series, SpecSteps

COUNTS = [field for field in CounterDelta.__slots__ if field not in ("since_restart", "problems")]
labels = st.lists(
    st.tuples(st.sampled_from(["engine", "position", "finished_reason"]), st.sampled_from(["0", "1", "2", "x"])),
    max_size=2,
    unique_by=lambda label: label[0],
).map(lambda found: tuple(sorted(found)))
series = st.builds(Series, st.sampled_from(sorted(CANONICAL)), labels, st.none() | st.floats(0, 1e9, allow_nan=False))
samples = st.builds(
    CounterSample,
    st.just(0),
    st.just("any"),
    st.lists(series, max_size=12).map(tuple),
    st.none() | st.sampled_from([100.0, 100.5, 900.0]),
    st.sampled_from([(), ("unreadable line dropped: x",)]),
)
metric_lines = st.sampled_from(
    [
        'vllm:spec_decode_num_drafts_total{engine="0"} 5',
        'vllm:spec_decode_num_draft_tokens_total{engine="0"} 15',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 4',
        'sglang:spec_accept_length{tp_rank="0"} 2.5',
        "process_start_time_seconds 1.79e9",
        "# TYPE vllm:generation_tokens_total counter",
        "vllm:generation_tokens_total NaN",
    ]
)
log_lines = st.sampled_from(
    [
        (
            "SpecDecoding metrics: Mean acceptance length: 3.49, Accepted: 1795 tokens, Drafted: 2160 tokens, "
            "Per-position acceptance rate: 0.951, 0.842, 0.700, Avg Draft acceptance rate: 83.1%"
        ),
        "[TP0] Decode batch. #running-req: 32, accept len: 2.54, gen throughput (token/s): 39.33,",
        "draft acceptance = 0.64479 ( 167 accepted / 259 generated), mean len =  2.92",
        "     acc per pos = (0.805, 0.632, 0.483)",
        (
            "statistics ngram: #calls(b,g,a) = 1 87 87, #gen drafts = 87, #acc drafts = 70, #gen tokens = 259, "
            "#acc tokens = 167"
        ),
        "num_drafts: 12",
        "num_draft_tokens: 30",
        "model: {mode: {3: 2.5}}",
        '{"usage": {"completion_tokens": 5}, "timings": {"draft_n": 4, "draft_n_accepted": 2, "predicted_n": 9}}',
    ]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "acceptance_histogram", "num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens", "num_spec_tokens",
    "per_step_accepted", "per_step_drafted", "total_draft_tokens", "spec_verify_ct", "spec_num_correct_drafts",
    "spec_correct_drafts_histogram", "completion_tokens", "draft_n", "draft_n_accepted", "predicted_n",
]  # fmt: skip
reports = st.dictionaries(
    st.sampled_from(KEYS), st.integers(-2, 40) | st.lists(st.integers(-1, 9), max_size=5) | json_values
)
payloads = st.fixed_dictionaries(
    {},
    optional={
        "metrics": st.fixed_dictionaries({"speculative_decoding": reports | json_values}) | json_values,
        "choices": st.lists(
            st.fixed_dictionaries({"speculative_decoding": reports, "avg_decoded_tokens_per_iter": json_values})
            | json_values,
            max_size=2,
        )
        | json_values,
        "sglext": st.fixed_dictionaries({"spec_tokens_details": reports | json_values}) | json_values,
        "meta_info": reports | json_values,
        "timings": reports | json_values,
        "usage": reports | json_values,
    },
)


def cut(lines):
    return st.builds(lambda rows, end: "\n".join(rows)[: end or None], st.lists(lines, max_size=6), st.integers(0, 300))


@settings(deadline=None)
@given(samples, samples)
def test_a_difference_is_never_negative_and_acceptance_is_a_fraction(before, after):
    delta = difference(before, after)
    for name in COUNTS:
        value = getattr(delta, name)
        for count in value if isinstance(value, tuple) else (value,):
            assert count is None or count >= 0
    for share in (delta.acceptance_rate, *(delta.joint or ())):
        assert share is None or 0 <= share <= 1
    assert delta.mean_accepted_length is None or delta.mean_accepted_length >= 1
    if delta.since_restart:
        assert delta.problems


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=4))
def test_the_sum_over_engines_is_the_sum_of_their_differences(engines):
    def sample(place):
        found = (
            Series(Family.SPEC_DRAFTS, (("engine", str(engine)),), float(sum(counts[: place + 1])))
            for engine, counts in enumerate(engines)
        )
        return CounterSample(place, "any", tuple(found), 100.0)

    assert difference(sample(0), sample(1)).drafts == sum(more for _, more in engines)


@settings(deadline=None)
@given(st.permutations(['engine="0"', 'model_name="a b"', 'position="1"', 'zone="{x}"']))
def test_the_order_of_labels_is_irrelevant(order):
    text = f"vllm:spec_decode_num_accepted_tokens_per_pos_total{{{','.join(order)}}} 3\n"
    (found,) = parse(text, stamp_ns=0, source="any").series
    assert found == Series(
        Family.SPEC_ACCEPTED_PER_POSITION, (("engine", "0"), ("position", "1"), ("zone", "{x}")), 3.0
    )


@settings(deadline=None)
@given(cut(metric_lines | st.text(max_size=20)))
def test_no_scrape_is_fatal(text):
    parse(text, stamp_ns=0, source="any")
    gauges(text)
    read_pair(text, text)


@settings(deadline=None)
@given(cut(metric_lines | log_lines | st.text(max_size=20)))
def test_no_text_is_fatal_and_no_reading_is_impossible(text):
    whole = read(text)
    for reading in (whole, *whole.parts):
        k = reading.draft_tokens_k
        assert reading.mean_accepted_length is None or reading.mean_accepted_length >= 1
        assert reading.mean_accepted_length is None or k is None or reading.mean_accepted_length <= k + 1.01
        for share in (reading.acceptance_rate, reading.coverage, *reading.joint.values()):
            assert share is None or 0 <= share <= 1
        for count in (reading.steps, reading.draft_tokens, reading.accepted_tokens):
            assert count is None or count >= 0


@settings(deadline=None)
@given(payloads | json_values)
def test_no_answer_is_fatal_and_no_count_is_impossible(payload):
    found = spec_steps(payload)
    usage_problems(payload.get("usage") if isinstance(payload, dict) else payload)
    if found is None:
        return
    assert isinstance(found, SpecSteps)
    steps, drafted, accepted = found.num_spec_steps, found.num_draft_tokens, found.num_accepted_draft_tokens
    assert all(count is None or count >= 0 for count in (steps, drafted, accepted, found.num_spec_tokens))
    if accepted is not None and drafted is not None:
        assert accepted <= drafted
    if found.acceptance_histogram is not None:
        assert steps == sum(found.acceptance_histogram)
