"""Classes with tools: told before a boot where the engine refuses them or the model would never see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.preflight.small_checkpoint import folder, gguf_file

from specdyno.plan.schema import Plan
from specdyno.preflight.checkpoints.read import read as read_checkpoint
from specdyno.preflight.schema import Check, Grade
from specdyno.preflight.tools import ACCEPTED, SHOWN, check_tools

WITHOUT, WITH = "{{ messages }}", "{% if tools %}{{ tools | tojson }}{% endif %}{{ messages }}"
PARSED = {"enable-auto-tool-choice": True, "tool-call-parser": "hermes"}


def read(source: str, revision: str | None):
    return read_checkpoint(source, revision=revision)


def target(path: Path, template: object = WITH, **config: Any) -> Path:
    folder(path, **config)
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return path


def checks(model: object, kind: str = "vllm", classes: tuple[str, ...] = ("tools",), **engine: Any) -> dict[str, Check]:
    plan = Plan.model_validate(
        {
            "study": "s",
            "target": {"model": str(model)},
            "engine": {"kind": kind, **engine},
            "candidates": [{"method": "ngram", "draft_tokens": [3]}],
            "workload": {
                "sampling": {"temperature": 0.0},
                "classes": [{"name": "tools", "prompts": "builtin:tools", "share": 1.0, "max_tokens": 8}],
            },
            "loads": [{"name": "one", "concurrency": 1, "window": "1s"}],
            "objectives": [{"name": "one", "load": "one", "measure": "time_per_job"}],
        }
    )
    return {check.rule: check for check in check_tools(plan, classes, read=read)}


def test_a_vllm_without_a_parser_refuses_every_request_with_tools(tmp_path: Path):
    found = checks(target(tmp_path), classes=("tools", "agent"))
    assert {name: check.grade for name, check in found.items()} == {ACCEPTED: Grade.FAIL}
    assert "agent, tools" in found[ACCEPTED].seen
    assert "enable-auto-tool-choice" in found[ACCEPTED].remedy


@pytest.mark.parametrize(
    "engine",
    [
        {"args": PARSED},
        {"args": {"enable_auto_tool_choice": None, "tool_call_parser": "hermes"}},
        {"command": ["vllm", "serve", "--enable-auto-tool-choice", "--tool-call-parser=hermes"]},
        {"args": {"config": "server.yaml"}},  # may say it
    ],
)
def test_a_vllm_with_a_parser_is_not_doubted(tmp_path: Path, engine: dict[str, Any]):
    assert checks(target(tmp_path), **engine) == {}


def test_a_flag_that_is_switched_off_is_no_flag(tmp_path: Path):
    assert ACCEPTED in checks(target(tmp_path), args={"enable-auto-tool-choice": False})


@pytest.mark.parametrize("model_type", ["gpt_oss", "mistral3"])
def test_models_whose_calls_vllm_reads_by_itself_need_no_parser(tmp_path: Path, model_type: str):
    assert checks(target(tmp_path, model_type=model_type)) == {}


@pytest.mark.parametrize("kind", ["llamacpp", "sglang"])
def test_other_engines_do_not_refuse(tmp_path: Path, kind: str):
    assert checks(target(tmp_path), kind) == {}


def test_a_template_that_speaks_of_no_tools_is_a_warning_with_the_classes(tmp_path: Path):
    for model in (target(tmp_path / "folder", WITHOUT), gguf_file(tmp_path / "m.gguf")):
        found = checks(model, "llamacpp")
        assert {name: check.grade for name, check in found.items()} == {SHOWN: Grade.WARN}
        assert str(model) in found[SHOWN].seen
        assert "tools" in found[SHOWN].seen


@pytest.mark.parametrize(
    "template",
    [WITH, "{{ functions }}", [{"name": "default", "template": WITHOUT}, {"name": "tool_use", "template": "x tool"}]],
)
def test_a_template_that_speaks_of_them_is_not_doubted(tmp_path: Path, template: object):
    assert checks(target(tmp_path, template), "llamacpp") == {}


def test_a_gguf_may_hold_a_template_of_its_own_for_tools(tmp_path: Path):
    path = gguf_file(tmp_path / "m.gguf", tokenizer__chat_template__tool_use=WITH)
    # The writer makes dots of double underscores: the key is tokenizer.chat_template.tool_use.
    assert checks(path, "llamacpp") == {}


def test_another_template_given_to_the_engine_is_not_judged(tmp_path: Path):
    model = target(tmp_path, WITHOUT)
    assert checks(model, args={**PARSED, "chat-template": "mine.jinja"}) == {}
    assert checks(model, "llamacpp", args={"chat-template-file": "mine.jinja"}) == {}


def test_without_a_class_that_sends_tools_nothing_is_asked(tmp_path: Path):
    assert checks(target(tmp_path, WITHOUT), classes=()) == {}


def test_a_target_without_a_template_or_without_files_is_not_judged(tmp_path: Path):
    assert checks(target(tmp_path / "there", None), "llamacpp") == {}
    assert checks(tmp_path / "nowhere", "llamacpp") == {}
