"""What identifies a checkpoint: configuration, headers, tokenizer and template; neither its place nor its weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.unit.preflight.small_checkpoint import folder

from specdyno.plan import parse
from specdyno.preflight.checkpoints.hub import Unreachable
from specdyno.preflight.checkpoints.read import read
from specdyno.preflight.origins import headers_sha256, origins

PLAN = """
study: s
target: {{model: {target}}}
engine: {{kind: vllm}}
candidates: [{{method: draft_model, draft: {draft}, draft_tokens: [2]}}]
workload:
  sampling: {{temperature: 0}}
  classes: [{{name: code, prompts: builtin:code, share: 1, max_tokens: 8}}]
loads: [{{name: x, concurrency: 1, window: 10s}}]
objectives: [{{name: o, load: x, measure: jobs_per_s}}]
"""


def found(target: Path | str, draft: Path | str) -> dict:
    told = origins(parse.parse(PLAN.format(target=target, draft=draft)), read=lambda s, r: read(s, revision=r))
    assert json.loads(json.dumps(told)) == told
    return told


def test_target_and_draft_are_described_by_their_names(tmp_path):
    target, draft = folder(tmp_path / "t"), folder(tmp_path / "d", num_hidden_layers=1)
    told = found(target, draft)["checkpoints"]
    assert set(told) == {str(target), str(draft)}
    assert told[str(target)]["model_type"] == "llama"
    assert told[str(target)]["tokenizer_sha256"] == told[str(draft)]["tokenizer_sha256"] is not None
    assert told[str(target)]["headers_sha256"] != told[str(draft)]["headers_sha256"]


def test_the_place_of_a_checkpoint_says_nothing_about_it(tmp_path):
    first = folder(tmp_path / "a")
    second = Path(shutil.copytree(first, tmp_path / "b"))
    assert headers_sha256(read(str(first))) == headers_sha256(read(str(second)))


@pytest.mark.parametrize("changed", [{"hidden_size": 16}, {"rope_theta": 5e5}, {"dtype": "float16"}])
def test_another_configuration_is_another_checkpoint(tmp_path, changed):
    first, second = folder(tmp_path / "a"), folder(tmp_path / "b", **changed)
    assert headers_sha256(read(str(first))) != headers_sha256(read(str(second)))


def test_another_chat_template_shows(tmp_path):
    first, second = folder(tmp_path / "a"), folder(tmp_path / "b")
    (second / "chat_template.jinja").write_text("{{ other }}")
    told = found(first, second)["checkpoints"]
    hashes = [one["chat_template_sha256"] for one in told.values()]
    assert None not in hashes
    assert len(set(hashes)) == 2


def test_what_cannot_be_read_here_stands_with_its_reason(tmp_path):
    def unreachable(source, revision):
        raise Unreachable(f"{source}: no network")

    plan = parse.parse(PLAN.format(target="org/model", draft="org/draft"))
    assert origins(plan, read=unreachable)["checkpoints"]["org/model"] == {"not_read": "org/model: no network"}
    gone = found(folder(tmp_path / "t"), tmp_path / "nothing-here")["checkpoints"][str(tmp_path / "nothing-here")]
    assert "does not exist" in gone["not_read"]
