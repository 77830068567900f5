"""Each shape of prompt file is read; each row that asks nothing is told with its line; the others go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdyno.errors import PlanError
from specdyno.plan.schema import Plan, TrafficClass
from specdyno.workload.rows import UnusableRow, asked
from specdyno.workload.sources import ClassPrompts, load_class, load_pools

USER = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def traffic(prompts: str, name: str = "code") -> TrafficClass:
    return TrafficClass(name=name, prompts=prompts, share=1.0, max_tokens=32)


def load(folder: Path, content: str | bytes, name: str = "p.jsonl") -> ClassPrompts:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_class(traffic(name), folder)


def lines(*rows: Any) -> str:
    return "\n".join(json.dumps(row) for row in rows) + "\n"


def refusal(folder: Path, content: str | bytes) -> str:
    with pytest.raises(PlanError) as caught:
        load(folder, content)
    assert all(problem.remedy for problem in caught.value.problems)
    return str(caught.value)


SHAPES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("prompt", {"prompt": "Once upon"}, {"prompt": "Once upon"}),
    (
        "chat",
        {"messages": [USER], "tools": [TOOL], "tool_choice": "auto", "response_format": {"type": "json_object"}},
        {"messages": [USER], "tools": [TOOL], "tool_choice": "auto", "response_format": {"type": "json_object"}},
    ),
    (
        "batch",
        {
            "custom_id": "r-1",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "x", "messages": [USER]},
        },
        {"messages": [USER]},
    ),
    ("spec-bench", {"question_id": 81, "category": "writing", "turns": ["hello", "more"]}, {"messages": [USER]}),
    ("speed-bench", {"category": "coding", "messages": [USER], "turns": None}, {"messages": [USER]}),
    ("turns of objects", {"turns": [{"role": "user", "content": "hello"}]}, {"messages": [USER]}),
    (
        "sharegpt",
        {"id": "x", "conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "no"}]},
        {"messages": [USER]},
    ),
    ("answered chat", {"messages": [USER, {"role": "assistant", "content": "no"}]}, {"messages": [USER]}),
    (
        "image part",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
    ),
]


@pytest.mark.parametrize(("row", "content"), [case[1:] for case in SHAPES], ids=[case[0] for case in SHAPES])
def test_each_shape_is_read(row: dict[str, Any], content: dict[str, Any]) -> None:
    assert asked(row).content == content


def test_shapes_mix_in_one_file_and_as_one_list(tmp_path: Path) -> None:
    rows = [row for _, row, _ in SHAPES[:3]]
    for content in (lines(*rows), json.dumps(rows), json.dumps(rows, indent=2)):
        pool = load(tmp_path, content)
        assert len(pool.prompts) == 3
        assert pool.skipped == ()
    assert [prompt.id for prompt in pool.prompts] == ["code/1", "code/2", "code/r-1"]
    assert pool.prompts[1].tools == (TOOL,)
    assert {prompt.max_tokens for prompt in pool.prompts} == {32}


def test_system_turn_of_a_conversation_is_kept() -> None:
    row = {"conversations": [{"from": "system", "value": "be brief"}, {"from": "human", "value": "hello"}]}
    assert asked(row).content == {"messages": [{"role": "system", "content": "be brief"}, USER]}


UNUSABLE = [
    (3, "is a number"),
    ({}, "none of: prompt, messages"),
    ({"prompt": ""}, "is empty"),
    ({"prompt": [1, 2]}, "is a list, not text"),
    ({"messages": []}, "no message of a user"),
    ({"messages": {}}, "not a list"),
    ({"messages": ["x"]}, "messages[0]"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "role"),
    ({"messages": [{"role": "user", "content": None}]}, "is null, not text"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "parts without a type"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "no message of a user"),
    ({"messages": [USER], "tools": [{"name": "f"}]}, "tools[0]"),
    ({"messages": [USER], "response_format": "json"}, "response_format"),
    ({"messages": [USER], "tools": [TOOL], "tool_choice": 3}, "tool_choice"),
    (
        {"messages": [USER, {"role": "tool", "tool_call_id": "c1", "content": "3"}, USER]},
        "`messages[1]` is the result of a tool without its call",
    ),
    ({"turns": []}, "turns"),
    ({"conversations": [{"from": "gpt", "value": "x"}]}, "no turn of a human"),
    ({"custom_id": "e", "body": {"input": "x"}}, "not measured"),
]


@pytest.mark.parametrize(("row", "reason"), UNUSABLE, ids=[case[1] for case in UNUSABLE])
def test_a_row_that_asks_nothing_says_why(row: object, reason: str) -> None:
    with pytest.raises(UnusableRow) as caught:
        asked(row)
    assert reason in str(caught.value)


def test_bad_rows_are_told_with_their_line_and_the_others_go_on(tmp_path: Path) -> None:
    content = '# comment\n{"prompt": "a"}\n\n{"prompt": \n{"prompt": ""}\n{"prompt": "b"}\n{"prompt": NaN}\n'
    pool = load(tmp_path, content)
    assert [prompt.prompt for prompt in pool.prompts] == ["a", "b"]
    assert [line for line, _ in pool.skipped] == [1, 4, 5, 7]
    assert all(reason for _, reason in pool.skipped)


def test_a_result_after_its_call_is_asked(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    talk = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]
    assert load(tmp_path, lines({"messages": talk})).prompts[0].messages == tuple(talk)


def test_duplicates_are_dropped_and_counted(tmp_path: Path) -> None:
    pool = load(tmp_path, lines({"id": 1, "prompt": "a"}, {"id": 2, "prompt": "a"}, {"id": 3, "prompt": "b"}))
    assert [prompt.id for prompt in pool.prompts] == ["code/1", "code/3"]
    assert pool.duplicates == 1


def test_ids_that_come_twice_are_made_unique(tmp_path: Path) -> None:
    pool = load(tmp_path, lines({"id": "x", "prompt": "a"}, {"id": "x", "prompt": "b"}, {"id": "x@2", "prompt": "c"}))
    assert len({prompt.id for prompt in pool.prompts}) == 3


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    pool = load(tmp_path, b'\xef\xbb\xbf{"prompt": "a"}\r\n{"prompt": "b"}\r\n')
    assert [prompt.prompt for prompt in pool.prompts] == ["a", "b"]


FILES: list[tuple[str | bytes, str]] = [
    ("", "is empty"),
    (" \n\n", "is empty"),
    ("Write a poem\nWrite a song\n", "neither JSON lines nor a JSON list"),
    ("prompt,answer\na,b\n", "neither JSON lines nor a JSON list"),
    (b"\x1f\x8b\x08", "gzip"),
    (b"PAR1\x00", "Parquet"),
    (b"\x89\xff\xfe", "not UTF-8"),
    (b'{"prompt": "a\x00"}', "binary"),
    ('{"question": "x"}\n', "no usable prompt: line 1 has none of"),
    ("[]", "no usable prompt"),
    ("[\n{", "no usable prompt"),
    ("[" * 5000, "no usable prompt"),
]


@pytest.mark.parametrize(("content", "words"), FILES, ids=[f"{index}-{case[1]}" for index, case in enumerate(FILES)])
def test_files_that_hold_no_prompts_are_refused(tmp_path: Path, content: str | bytes, words: str) -> None:
    assert words in refusal(tmp_path, content)


def test_missing_files_directories_and_unknown_classes_are_refused(tmp_path: Path) -> None:
    for source, words in (
        ("none.jsonl", "there is no file"),
        (".", "is a directory"),
        ("~nobody-has-this-name/x.jsonl", "home directory"),
        ("builtin:coed", "Did you mean builtin:code?"),
    ):
        with pytest.raises(PlanError) as caught:
            load_class(traffic(source), tmp_path)
        assert words in str(caught.value)


def test_all_classes_are_read_before_problems_are_told(tmp_path: Path) -> None:
    classes = [
        {"name": name, "prompts": source, "share": share, "max_tokens": 8}
        for name, source, share in (("a", "none", 0.5), ("b", "builtin:chat", 0.25), ("c", "builtin:x", 0.25))
    ]
    plan = Plan.model_validate(
        {
            "study": "s",
            "target": {"model": "m"},
            "engine": {"kind": "simulated"},
            "candidates": [{"method": "ngram", "draft_tokens": 3}],
            "workload": {"sampling": {"temperature": 0}, "classes": classes},
            "loads": [{"name": "pool", "concurrency": 2, "window": "2s"}],
            "objectives": [{"name": "pool", "load": "pool", "measure": "jobs_per_s"}],
        }
    )
    with pytest.raises(PlanError) as caught:
        load_pools(plan, tmp_path)
    assert [one.place for one in caught.value.problems] == [
        "workload.classes[0].prompts",
        "workload.classes[2].prompts",
    ]


ROW_KEYS = "prompt messages role content turns conversations from value body tools type input id"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(ROW_KEYS.split()),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(row=JSON)
def test_any_row_is_asked_or_refused_with_a_reason(row: object) -> None:
    try:
        told: object = asked(row).content
    except UnusableRow as error:
        told = str(error)
    assert told


@given(content=st.binary(max_size=60) | st.lists(JSON, max_size=4).map(lambda rows: lines(*rows).encode()))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_kept_and_dropped_rows_are_all_rows(tmp_path: Path, content: bytes) -> None:
    try:
        pool = load(tmp_path, content)
    except PlanError:
        return
    whole = not all(line.startswith(b"{") for line in content.splitlines() if line.strip())
    rows = sum(bool(line.strip()) for line in content.split(b"\n"))
    assert whole or len(pool.prompts) + len(pool.skipped) + pool.duplicates == rows
