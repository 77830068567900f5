"""A request says what the plan states, and nothing that it does not."""

from __future__ import annotations

import hashlib
from typing import Any

from specdyno.plan.schema import Sampling
from specdyno.workload.prompts import Prompt, body, fingerprint

SAMPLING = Sampling.model_validate({"temperature": 0.0})


def prompt(**content: Any) -> Prompt:
    empty = dict.fromkeys(("messages", "prompt", "tools", "tool_choice", "response_format"))
    return Prompt(id="code/1", class_name="code", max_tokens=9, sha256=fingerprint(content), **{**empty, **content})


def test_chat_body_holds_exactly_what_is_stated() -> None:
    messages = ({"role": "user", "content": "hi"},)
    assert body(prompt(messages=messages), SAMPLING, "m", max_tokens=5) == (
        "/v1/chat/completions",
        {"model": "m", "max_tokens": 5, "messages": list(messages), "temperature": 0.0},
    )


def test_bare_prompt_goes_to_completions() -> None:
    path, sent = body(prompt(prompt="Once"), SAMPLING, "m", max_tokens=5)
    assert path == "/v1/completions"
    assert sent == {"model": "m", "max_tokens": 5, "prompt": "Once", "temperature": 0.0}


def test_everything_stated_is_sent() -> None:
    sampling = Sampling.model_validate(
        {"temperature": 0.7, "top_p": 0.9, "stop": ["###"], "extra_body": {"top_k": 20, "seed": 3}}
    )
    tools = ({"type": "function", "function": {"name": "f"}},)
    messages = ({"role": "user", "content": "hi"},)
    shape = {"type": "json_object"}
    asked = prompt(messages=messages, tools=tools, tool_choice="auto", response_format=shape)
    _, sent = body(asked, sampling, "m", max_tokens=5)
    assert sent == {
        "model": "m", "max_tokens": 5, "messages": list(messages), "tools": list(tools), "tool_choice": "auto",
        "response_format": shape, "temperature": 0.7, "top_p": 0.9, "stop": ["###"], "top_k": 20, "seed": 3,
    }  # fmt: skip


def test_a_body_can_be_added_to_without_touching_the_prompt() -> None:
    asked = prompt(messages=({"role": "user", "content": "hi"},))
    first = body(asked, SAMPLING, "m", max_tokens=5)[1]
    first["stream"] = True
    first["messages"].append({})
    assert "stream" not in body(asked, SAMPLING, "m", max_tokens=5)[1]
    assert len(body(asked, SAMPLING, "m", max_tokens=5)[1]["messages"]) == 1


def test_fingerprint_sees_content_only() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1, "c": None})
    assert fingerprint({"prompt": "a"}) != fingerprint({"prompt": "b"})
    assert fingerprint({"prompt": "a"}) == hashlib.sha256(b'{"prompt":"a"}').hexdigest()
