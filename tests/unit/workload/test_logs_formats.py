"""Each kind of log gives the same request: what was asked, what was answered, how, when, and in which session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from specdyno.workload.logs.formats import requests
from specdyno.workload.logs.request import Refused, Request, moment
from specdyno.workload.logs.walk import walk

LOGS = Path(__file__).parents[2] / "data" / "logs"
SYSTEM = {"role": "system", "content": "You help people who plan gardens."}
ASKED = "Which vegetables can I sow outdoors in the middle of March?"
ANSWER = "Broad beans, spinach and early peas stand the cold; wait with beans and courgettes until the soil is warm."
NOON = 1735732800.0


def lines(name: str) -> list[Any]:
    return [orjson.loads(line) for line in (LOGS / name).read_bytes().splitlines()]


def one(row: Any, result: Any = None) -> Request:
    (found,) = requests(row, result)
    walk(found)
    return found


def why(row: Any) -> str:
    with pytest.raises(Refused) as caught:
        one(row)
    return str(caught.value)


def test_a_batch_request_is_joined_with_its_result() -> None:
    row, result = lines("batch_requests.jsonl")[0], lines("batch_results.jsonl")[1]
    assert result["custom_id"] == row["custom_id"]
    found = one(row, result)
    assert found.messages == [SYSTEM, {"role": "user", "content": f"{ASKED} (0)"}]
    assert found.answer == {"role": "assistant", "content": ANSWER}
    assert (found.prompt_tokens, found.output_tokens, found.start_s) == (31, 24, NOON)
    assert found.sampling == {"temperature": 0.3, "max_tokens": 200}


def test_a_batch_request_without_its_result_has_no_answer_and_a_result_alone_is_refused() -> None:
    assert one(lines("batch_requests.jsonl")[3]).answer is None
    assert why(lines("batch_results.jsonl")[0]) == "is a batch result without its request"


def test_a_litellm_payload() -> None:
    found = one(lines("litellm.jsonl")[0])
    assert found.messages == [SYSTEM, {"role": "user", "content": ASKED}]
    assert found.answer == {"role": "assistant", "content": ANSWER}
    assert found.sampling == {"temperature": 0.3, "max_tokens": 200, "stop": ["###"]}
    assert (found.start_s, found.end_s, found.session, found.model) == (NOON, NOON + 2.5, "s-1", "org/served")
    assert (found.prompt_tokens, found.output_tokens) == (31, 24)
    assert one({"standard_logging_object": lines("litellm.jsonl")[0]}).answer == found.answer


def test_failures_and_embeddings_of_litellm_are_refused() -> None:
    assert [why(row) for row in lines("litellm.jsonl")[1:]] == [
        "failed when it was logged",
        "asks for no text (embeddings, images, sound)",
    ]


def test_langfuse_observations() -> None:
    called, said, span = orjson.loads((LOGS / "langfuse.json").read_bytes())
    found = one(called)
    assert found.tools is not None
    assert found.tools[0]["function"]["name"] == "frost_date"
    assert found.answer is not None
    assert found.answer["tool_calls"][0]["function"] == {"name": "frost_date", "arguments": '{"place": "Bergen"}'}
    assert (found.start_s, found.end_s, found.session, found.trace) == (NOON, NOON + 2.5, "s-1", "t-1")
    told = one(said)
    assert told.answer == {"role": "assistant", "content": ANSWER}
    assert (told.prompt_tokens, told.output_tokens, told.sampling) == (31, 24, {"temperature": 0.3})
    assert why(span) == "is an observation that is no generation"


def test_spans_with_parts() -> None:
    found = one(lines("otel.jsonl")[0])
    assert found.messages == [
        SYSTEM,
        {"role": "user", "content": ASKED},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_7",
                    "type": "function",
                    "function": {"name": "frost_date", "arguments": '{"place":"Bergen"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_7", "content": "3 May"},
    ]
    assert found.answer == {"role": "assistant", "content": ANSWER}
    assert (found.session, found.output_tokens, found.end_s) == ("s-1", 24, NOON + 2.5)
    assert found.sampling == {"temperature": 0.3, "max_tokens": 200}


def test_spans_with_flat_attributes() -> None:
    found = one(lines("otel.jsonl")[1])
    assert found.messages == [SYSTEM, {"role": "user", "content": ASKED}]
    assert found.answer is not None
    assert found.answer["tool_calls"][0]["function"]["name"] == "frost_date"
    assert found.tools is not None
    assert found.tools[0]["type"] == "function"
    assert (found.prompt_tokens, found.output_tokens, found.trace) == (31, 24, "a2")


def test_spans_of_otlp_with_events() -> None:
    found = one(lines("otel.jsonl")[2])
    assert found.messages == [SYSTEM, {"role": "user", "content": ASKED}]
    assert found.answer == {"role": "assistant", "content": ANSWER}
    assert (found.start_s, found.end_s, found.output_tokens) == (NOON, NOON + 2.5, 24)
    assert found.sampling == {"temperature": 0.3}


def test_a_span_of_a_tool_is_no_generation() -> None:
    assert why(lines("otel.jsonl")[3]) == "is a span that is no generation"


def test_bare_prompts_and_plain_chats() -> None:
    bare = one(lines("vllm.jsonl")[0])
    assert (bare.prompt, bare.messages, bare.output_tokens) == ("Once upon a time there was a miller who", None, 64)
    chat, open_end = (one(row) for row in lines("chat.jsonl"))
    assert chat.answer == {"role": "assistant", "content": ANSWER}
    assert chat.messages is not None
    assert chat.messages[-1]["role"] == "user"
    assert open_end.answer is None
    assert open_end.tools is not None


USER = {"role": "user", "content": "hello"}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "x"}
BAD: list[tuple[Any, str]] = [
    (["a"], "is no JSON object"),
    ({"x": 1}, "has the shape of no known log"),
    ({"input": "x", "model": "e"}, "asks for no text (embeddings, images, sound)"),
    ({"messages": []}, "has messages that are no list with at least one entry"),
    ({"messages": ["x"]}, "holds a message that is no object"),
    ({"messages": [{"role": "system", "content": "x"}]}, "holds no message of a user"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "holds no message of a user"),
    ({"messages": [{"role": "user", "content": " "}]}, "has an empty message of the user"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "holds a message of an unknown role"),
    ({"messages": [USER, RESULT]}, "holds the result of a tool without its call"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "holds images"),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "holds audio"),
    ({"messages": [{"role": "user", "content": 5}]}, "holds a message that is no text"),
    ({"messages": [{"role": "user", "content": "redacted-by-litellm"}]}, "was logged without its text"),
    ({"prompt": "  "}, "has an empty prompt"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_a_row_that_cannot_be_used_says_why(row: Any, reason: str) -> None:
    assert why(row) == reason


@pytest.mark.parametrize(
    "value",
    [
        NOON,
        1735732800,
        1735732800000,
        1735732800000000,
        "1735732800000000000",
        "2025-01-01T12:00:00Z",
        "2025-01-01T13:00:00+01:00",
    ],
)
def test_every_spelling_of_a_time_is_the_same_moment(value: Any) -> None:
    assert moment(value) == NOON


@pytest.mark.parametrize("value", [None, "", "soon", 0, -5, True, [], {}])
def test_what_is_no_time_is_none(value: Any) -> None:
    assert moment(value) is None
