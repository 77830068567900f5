"""The prompts that come along are many, distinct, of many lengths, and well formed."""

from __future__ import annotations

import itertools
import json
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.unit.workload.demo_template import small_template

from specdyno.errors import PlanError
from specdyno.plan.schema import Sampling, TrafficClass
from specdyno.workload import classes
from specdyno.workload.classes import BUILTIN, SESSIONS
from specdyno.workload.prompts import Prompt, body
from specdyno.workload.sources import ClassPrompts, load_class

SAMPLING = Sampling.model_validate({"temperature": 0.0})
SHINGLE = 5  # words
ALIKE = 0.1  # Jaccard index of the shingles above which two prompts are nearly the same
WORDS = {  # of what the user says: (at most for a tenth, at least in the middle, at most, at least for a tenth)
    "code": (35, 40, 100, 130),
    "chat": (20, 20, 60, 90),
    "tools": (17, 20, 40, 34),
    "structured": (24, 30, 60, 50),
    "planning": (20, 24, 50, 45),
    "summary": (360, 350, 500, 520),
    "acknowledgement": (10, 12, 30, 55),
    "reasoning": (25, 30, 60, 55),
}


@cache
def pool(name: str) -> ClassPrompts:
    return load_class(TrafficClass(name=name, prompts=f"builtin:{name}", share=1.0, max_tokens=64), Path())


def everything() -> list[Prompt]:
    return [prompt for name in BUILTIN for prompt in pool(name).prompts]


def messages(prompt: Prompt) -> list[Any]:
    assert prompt.messages is not None
    return list(prompt.messages)


def asked_text(prompt: Prompt) -> str:
    return " ".join(str(message["content"]) for message in messages(prompt) if message["role"] == "user")


def words(prompt: Prompt) -> list[str]:
    """Words as lower-case letters and digits; a text without spaces (Chinese, Japanese) counts by its signs."""
    return re.findall(r"[぀-鿿]|[^\W぀-鿿]+", asked_text(prompt).lower())


@pytest.mark.parametrize("name", BUILTIN)
def test_every_row_is_a_prompt_that_renders(name: str) -> None:
    found = pool(name)
    assert (found.skipped, found.duplicates) == ((), 0)
    assert len(found.prompts) >= 80
    for prompt in found.prompts:
        path, sent = body(prompt, SAMPLING, "m", max_tokens=64)
        assert path == "/v1/chat/completions"
        assert json.loads(json.dumps(sent))["messages"][-1]["role"] in ("user", "tool")


def test_ids_are_unique_and_say_their_class() -> None:
    ids = [prompt.id for prompt in everything()]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(rf"{prompt.class_name}/\d{{3}}", prompt.id) for prompt in everything())


@pytest.mark.parametrize("name", BUILTIN)
def test_lengths_are_spread(name: str) -> None:
    lengths = sorted(len(words(prompt)) for prompt in pool(name).prompts)
    tenth, middle, top = (lengths[int(share * (len(lengths) - 1))] for share in (0.1, 0.5, 0.9))
    short, least, most, long = WORDS[name]
    assert (tenth <= short, least <= middle <= most, top >= long) == (True, True, True), (tenth, middle, top)


def test_long_input_is_the_mark_of_summaries_and_short_answers_are_not_asked_with_essays() -> None:
    summaries = [len(words(prompt)) for prompt in pool("summary").prompts]
    others = [len(words(prompt)) for prompt in everything() if prompt.class_name not in ("summary", "chat", "code")]
    assert sorted(summaries)[len(summaries) // 10] > sorted(others)[len(others) * 99 // 100]


def test_no_two_prompts_are_nearly_the_same_within_a_class_or_across() -> None:
    shingles = {
        prompt.id: set(zip(*(said[start:] for start in range(SHINGLE)), strict=False)) or {tuple(said)}
        for prompt in everything()
        for said in [words(prompt)]
    }
    places: dict[tuple[str, ...], list[str]] = {}
    for name, held in shingles.items():
        for one in held:
            places.setdefault(one, []).append(name)
    common: dict[tuple[str, str], int] = {}
    for holders in places.values():  # only pairs that share a shingle can be alike
        for pair in itertools.combinations(holders, 2):
            common[pair] = common.get(pair, 0) + 1
    near = {
        pair: share
        for pair, count in common.items()
        if (share := count / (len(shingles[pair[0]]) + len(shingles[pair[1]]) - count)) > ALIKE
    }
    assert near == {}


def test_the_same_sentence_does_not_open_prompt_after_prompt() -> None:
    openings: dict[tuple[str, ...], int] = {}
    for prompt in everything():
        opening = tuple(words(prompt)[:3])
        openings[opening] = openings.get(opening, 0) + 1
    assert max(openings.values()) <= 0.01 * len(everything())


def test_many_systems_speak_and_no_system_prompt_returns_often() -> None:
    systems = [one["content"] for prompt in everything() for one in messages(prompt) if one["role"] == "system"]
    assert len(systems) >= 0.3 * len(everything())
    assert max(systems.count(one) for one in set(systems)) <= 2


@pytest.mark.parametrize("name", BUILTIN)
def test_roles_stand_in_an_order_that_every_template_takes(name: str) -> None:
    for prompt in pool(name).prompts:
        roles = [message["role"] for message in messages(prompt)]
        spoken = roles[1:] if roles[0] == "system" else roles
        letters = "".join(role[0] for role in spoken)
        assert re.fullmatch(r"u(at*u|at+)*", letters), (prompt.id, roles)


def test_calls_and_their_results_belong_together() -> None:
    for prompt in everything():
        open_calls: list[str] = []
        for message in messages(prompt):
            if message["role"] == "tool":
                open_calls.remove(message["tool_call_id"])
                continue
            assert open_calls == [], prompt.id
            open_calls = [call["id"] for call in message.get("tool_calls", [])]
        assert open_calls == [], prompt.id


def test_chat_speaks_several_languages() -> None:
    texts = [asked_text(prompt) for prompt in pool("chat").prompts]
    signs = {"de": r"\b(und|nicht|ich)\b", "fr": r"\b(est|les|une)\b", "es": r"\b(que|los|una)\b", "ja": r"[぀-ヿ]"}
    english = r"\b(the|and|you|is)\b"
    for language, sign in signs.items():
        assert any(re.search(sign, text.lower()) and not re.search(english, text.lower()) for text in texts), language
    assert sum(bool(re.search(english, text.lower())) for text in texts) < 0.85 * len(texts)


def test_much_of_the_code_is_given_to_be_edited() -> None:
    prompts = pool("code").prompts
    given = [prompt for prompt in prompts if "```" in asked_text(prompt)]
    assert len(given) >= 0.4 * len(prompts)
    fences = [re.search(r"```\w*\n(.*?)```", asked_text(prompt), re.DOTALL) for prompt in given]
    lines = sorted(len(fence[1].splitlines()) for fence in fences if fence)
    assert len(lines) == len(given)
    assert lines[len(lines) // 2] >= 15


def functions(prompt: Prompt) -> list[dict[str, Any]]:
    assert prompt.tools, prompt.id
    return [tool["function"] for tool in prompt.tools]


def test_tools_have_valid_parameters_and_distinct_names() -> None:
    for prompt in pool("tools").prompts:
        names = [function["name"] for function in functions(prompt)]
        assert len(names) == len(set(names)), prompt.id
        for function in functions(prompt):
            assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", function["name"]), prompt.id
            assert function["description"], prompt.id
            jsonschema.Draft202012Validator.check_schema(function["parameters"])
            assert function["parameters"]["type"] == "object", prompt.id
            assert set(function["parameters"].get("required", [])) <= set(function["parameters"]["properties"])


def test_tool_sets_differ_in_size_and_in_kind() -> None:
    sizes = [len(functions(prompt)) for prompt in pool("tools").prompts]
    assert {1, 2, 3, 4, 5} <= set(sizes)
    names = {function["name"] for prompt in pool("tools").prompts for function in functions(prompt)}
    assert len(names) >= 150


def test_recorded_calls_of_the_tools_class_meet_their_schemas() -> None:
    for prompt in pool("tools").prompts:
        schemas = {function["name"]: function["parameters"] for function in functions(prompt)}
        for message in messages(prompt):
            for call in message.get("tool_calls", []):
                arguments = json.loads(call["function"]["arguments"])
                jsonschema.Draft202012Validator(schemas[call["function"]["name"]]).validate(arguments)


def depth(schema: Any) -> int:
    """How deep objects and lists lie in one another."""
    if isinstance(schema, list):
        return max(map(depth, schema), default=0)
    if not isinstance(schema, dict):
        return 0
    return (schema.get("type") in ("object", "array")) + max(map(depth, schema.values()), default=0)


def test_structured_answers_have_valid_schemas_from_flat_to_nested() -> None:
    depths = []
    for prompt in pool("structured").prompts:
        assert prompt.response_format is not None, prompt.id
        assert prompt.response_format["type"] == "json_schema", prompt.id
        schema = prompt.response_format["json_schema"]["schema"]
        jsonschema.Draft202012Validator.check_schema(schema)
        depths.append(depth(schema))
    assert {1, 2, 3, 4} <= set(depths)


def test_a_mistyped_class_is_refused_with_the_near_one() -> None:
    with pytest.raises(PlanError, match="builtin:summary"):
        classes.read("sumary")


@pytest.mark.parametrize(("read", "name", "key"), [("read", "agent", "sessions"), ("read_sessions", "chat", "prompts")])
def test_prompts_asked_for_as_sessions_and_the_reverse_are_told_the_right_key(read: str, name: str, key: str) -> None:
    with pytest.raises(PlanError, match=f"builtin:{name} goes under `{key}`"):
        getattr(classes, read)(name)


def test_every_file_has_its_licence_and_together_they_are_lean() -> None:
    folder = resources.files("specdyno.workload.builtin")
    text = (folder / "LICENSE.md").read_text(encoding="utf-8")
    assert "Apache License, Version 2.0" in text
    files = {item.name: len(item.read_bytes()) for item in folder.iterdir() if item.name.endswith(".jsonl")}
    assert set(files) == {f"{name}.jsonl" for name in (*BUILTIN, *SESSIONS)}
    assert all(name in text for name in files)
    assert sum(files.values()) < 1_500_000


def test_every_prompt_renders_in_the_chat_template_of_the_demo() -> None:
    template = small_template()
    rendered = [
        template.render(messages=messages(prompt), tools=prompt.tools, add_generation_prompt=True)
        for prompt in everything()
    ]
    assert all(text.endswith("<|im_start|>assistant\n") for text in rendered)
    assert len(set(rendered)) == len(rendered)
