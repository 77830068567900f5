"""What `init` writes is a plan, with every key and its default."""

from __future__ import annotations

import pytest
import yaml

from specdyno.plan import reference
from specdyno.plan.parse import in_force, parse
from specdyno.plan.schema import EngineKind, Method
from specdyno.plan.template import render


@pytest.mark.parametrize("engine", list(EngineKind))
@pytest.mark.parametrize("method", list(Method))
def test_every_engine_and_method_reads_back(engine: EngineKind, method: Method) -> None:
    plan = parse(render(engine, "org/target", methods=[method]))
    assert plan.engine.kind is engine
    assert plan.target.model == "org/target"
    assert [candidate.method for candidate in plan.candidates] == [method]


def test_every_key_is_written_with_its_meaning() -> None:
    text = render()
    data = yaml.safe_load(text)
    for key in reference.keys().values():
        part = data
        for step in key.path.split("."):
            part = part[step.removesuffix("[]")]
            part = part[0] if step.endswith("[]") else part
    flat = " ".join(line.strip().removeprefix("# ") for line in text.splitlines() if line.strip().startswith("#"))
    assert [key.path for key in reference.keys().values() if key.meaning not in flat] == []


def test_defaults_are_the_schemas() -> None:
    written = {path: value for path, value, _ in in_force(parse(render()))}
    data = yaml.safe_load(render())
    bare = {key: data[key] for key in ("study", "target", "engine", "candidates", "workload", "loads", "objectives")}
    bare["engine"] = {"kind": bare["engine"]["kind"]}
    bare["target"] = {"model": bare["target"]["model"]}
    left_to_defaults = {path: value for path, value, _ in in_force(parse(yaml.safe_dump(bare)))}
    assert written == left_to_defaults


def test_several_methods_are_several_candidates_and_the_draft_goes_where_one_is_needed() -> None:
    plan = parse(render(methods=["ngram", "eagle3", "mtp"], draft="org/my-draft"))
    assert [candidate.draft for candidate in plan.candidates] == [None, "org/my-draft", None]


def test_odd_target_names_are_quoted() -> None:
    for target in ("./models/a: b", "123", "yes", "# x", 'say "hi"', "{a}"):
        assert parse(render("vllm", target)).target.model == target


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="nonesuch"):
        render("nonesuch")
