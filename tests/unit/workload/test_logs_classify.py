"""Each rule of the table takes what it says and leaves the rest to the next; nothing is without a class."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdyno.workload import logs
from specdyno.workload.logs.classify import CLASSES, class_of, code_share, look
from specdyno.workload.logs.language import language_of
from specdyno.workload.logs.request import Request
from specdyno.workload.logs.walk import walk

TOOLS = [{"type": "function", "function": {"name": "look"}}]
CALLS = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
CALL = {"role": "assistant", "content": None, "tool_calls": CALLS}
SOURCE = "```python\ndef mean(values):\n    total = sum(values)\n    return total / len(values)\n```"
EDITED = SOURCE.replace("    return", "    if not values:\n        return 0.0\n    return")
ARTICLE = "The council met on Tuesday to talk about the bridge, which has been closed since the flood. " * 30


def classed(question: str | None = "How was your holiday by the sea?", answer: Any = None, **keys: Any) -> str:
    message = {"role": "assistant", "content": answer} if isinstance(answer, str) else answer
    asked = {"messages": [{"role": "user", "content": question}]} if question is not None else {}
    request = Request("chat", answer=message, **(asked | keys))
    return class_of(look(request, walk(request)))


LONG = "It was a fine time: we swam every morning, and in the evening there was music at the harbour."
CASES: list[tuple[str, str]] = [
    (classed(answer=CALL, tools=TOOLS), "tools"),
    (classed(tools=TOOLS), "tools"),
    (classed(answer=LONG, tools=TOOLS, tool_choice="required"), "tools"),
    (classed(answer=LONG, tools=TOOLS), "chat"),
    (classed(answer=LONG, response_format={"type": "json_schema", "json_schema": {}}), "structured"),
    (classed(answer=LONG, response_format={"type": "text"}), "chat"),
    (classed(answer='{"town": "Bergen", "days": [1, 2]}'), "structured"),
    (classed(f"Handle the empty list:\n{SOURCE}", EDITED), "code_edit"),
    (classed("Write the mean of a list.", SOURCE), "code"),
    (classed("Write a small function that adds two numbers"), "code"),
    (classed(answer="Yes, done."), "acknowledgement"),
    (classed(f"Summarise this for the newsletter: {ARTICLE}", LONG), "summary"),
    (classed(f"{ARTICLE}\nFasse das zusammen.", LONG), "summary"),
    (classed(ARTICLE * 2, LONG), "summary"),
    (classed("Prove that the square root of two is no fraction, step by step.", LONG), "reasoning"),
    (classed(answer={"role": "assistant", "content": LONG, "reasoning_content": "Let me see."}), "reasoning"),
    (classed(answer=LONG), "chat"),
    (classed("休暇はどうでしたか", LONG), "chat"),
    (classed(answer=""), "other"),
    (classed("12 34 56", LONG), "other"),
    (classed(None, prompt="Once upon a time"), "other"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "expected"), CASES)
def test_a_request_gets_the_first_class_that_fits(found: str, expected: str) -> None:
    assert found == expected


def test_the_table_for_readers_names_the_classes_in_the_order_of_the_rules() -> None:
    rows = [line.split("|")[1].strip() for line in (logs.__doc__ or "").splitlines() if line.startswith("| ")]
    assert rows == ["class", *CLASSES]


def test_every_class_has_a_case() -> None:
    assert {expected for _, expected in CASES} == set(CLASSES)


@given(question=st.text(min_size=1).filter(lambda text: bool(text.strip())), answer=st.none() | st.text())
def test_no_request_is_without_a_class(question: str, answer: str | None) -> None:
    assert classed(question, answer) in CLASSES


def test_code_is_told_without_fences_and_prose_is_not() -> None:
    assert code_share("def a(x):\n    y = load(x)\n    return y\n") > 0.6
    assert code_share("def is a keyword.\nPeople return home.\nThe class of 1990 met.\nAll were there.\n") < 1 / 3


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("What is the best way to learn how to swim?", "en"),
        ("Wie kann ich das am besten lernen und ist es schwer?", "de"),
        ("Comment est-ce que les enfants apprennent à nager dans une piscine ?", "fr"),
        ("¿Cómo está la piscina y qué hay para los niños?", "es"),
        ("泳ぎを習うには", "ja"),
        ("如何学习游泳", "zh"),
        ("수영을 배우는 방법", "ko"),
        ("Как научиться плавать", "ru"),
        ("كيف أتعلم السباحة", "ar"),
        ("OK 12", None),
    ],
)
def test_languages_are_told_from_scripts_and_small_words(text: str, code: str | None) -> None:
    assert language_of(text) == code
