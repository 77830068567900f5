"""The prompts that come along are many, distinct, of many lengths, and well formed."""

from __future__ import annotations

import itertools
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from specdyno.plan.schema import Sampling, TrafficClass
from specdyno.workload.classes import BUILTIN
from specdyno.workload.prompts import Prompt, body
from specdyno.workload.sources import ClassPrompts, load_class

SAMPLING = Sampling.model_validate({"temperature": 0.0})


def pool(name: str) -> ClassPrompts:
    return load_class(TrafficClass(name=name, prompts=f"builtin:{name}", share=1.0, max_tokens=64), Path())


def asked_text(prompt: Prompt) -> str:
    assert prompt.messages is not None
    return " ".join(str(message["content"]) for message in prompt.messages if message["role"] == "user")


@pytest.mark.parametrize("name", BUILTIN)
def test_every_row_is_a_prompt_that_renders(name: str) -> None:
    found = pool(name)
    assert (found.skipped, found.duplicates) == ((), 0)
    assert len(found.prompts) >= 60
    for prompt in found.prompts:
        path, sent = body(prompt, SAMPLING, "m", max_tokens=64)
        assert path == "/v1/chat/completions"
        assert json.loads(json.dumps(sent))["messages"][-1]["role"] in ("user", "tool")


@pytest.mark.parametrize("name", BUILTIN)
def test_lengths_are_spread(name: str) -> None:
    words = sorted(len(asked_text(prompt).split()) for prompt in pool(name).prompts)
    assert words[len(words) * 9 // 10] >= 2.5 * words[len(words) // 10]


@pytest.mark.parametrize("name", BUILTIN)
def test_no_two_prompts_are_nearly_the_same(name: str) -> None:
    grams = {}
    for prompt in pool(name).prompts:
        words = re.findall(r"\w+", asked_text(prompt).lower())
        grams[prompt.id] = set(zip(words, words[1:], words[2:], strict=False))
    near = [
        (one, other)
        for one, other in itertools.combinations(grams, 2)
        if grams[one] | grams[other] and len(grams[one] & grams[other]) > 0.3 * len(grams[one] | grams[other])
    ]
    assert near == []


def test_no_prompt_stands_in_two_classes() -> None:
    prints = [prompt.sha256 for name in BUILTIN for prompt in pool(name).prompts]
    assert len(prints) == len(set(prints))


def test_tools_have_valid_parameters_and_distinct_names() -> None:
    for prompt in pool("tools").prompts:
        assert prompt.tools, prompt.id
        functions: list[dict[str, Any]] = [tool["function"] for tool in prompt.tools]
        names = [function["name"] for function in functions]
        assert len(names) == len(set(names)), prompt.id
        for function in functions:
            assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", function["name"]), prompt.id
            assert function["description"], prompt.id
            jsonschema.Draft202012Validator.check_schema(function["parameters"])
            assert function["parameters"]["type"] == "object", prompt.id
            assert set(function["parameters"].get("required", [])) <= set(function["parameters"]["properties"])


def test_structured_answers_have_valid_schemas() -> None:
    for prompt in pool("structured").prompts:
        assert prompt.response_format is not None, prompt.id
        assert prompt.response_format["type"] == "json_schema", prompt.id
        jsonschema.Draft202012Validator.check_schema(prompt.response_format["json_schema"]["schema"])


def test_licence_stands_beside_the_prompts() -> None:
    text = (resources.files("specdyno.workload.builtin") / "LICENSE.md").read_text(encoding="utf-8")
    assert "Apache License, Version 2.0" in text
    assert all(f"{name}.jsonl" in text for name in BUILTIN)
