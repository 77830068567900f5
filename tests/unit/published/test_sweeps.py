"""The published cells: whole, consistent with themselves, labelled, and a plan that parses."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from typer.testing import CliRunner

from specdyno.cli import app
from specdyno.errors import PlanError
from specdyno.plan import parse
from specdyno.plan.schema import Method
from specdyno.plan.template import Suggested, render
from specdyno.published.lengths import suggested
from specdyno.published.sweeps import LABEL, PROVENANCE, cells, select, sweeps
from specdyno.report import published_page


def test_all_cells_are_there_and_each_has_one_share_per_position():
    assert len(cells()) == 400
    assert len(sweeps(cells())) == 84
    assert {len(cell.joint) - cell.draft_tokens for cell in cells()} == {0}


def test_each_cell_agrees_with_itself_within_its_rounding():
    for cell in cells():
        assert 1 + sum(cell.joint) == pytest.approx(cell.mean_accepted_length, abs=0.005 * (cell.draft_tokens + 2))
        rate = (cell.mean_accepted_length - 1) / cell.draft_tokens
        assert rate == pytest.approx(cell.acceptance_rate, abs=0.01)
        assert cell.tokens_per_s / cell.baseline_tokens_per_s == pytest.approx(cell.speed_up, abs=0.012)


def test_only_lengths_beyond_the_trained_block_are_warned_of():
    warned = Counter((cell.method, cell.draft_tokens) for cell in cells() if cell.beyond_trained)
    assert warned == {(Method.DSPARK, 11): 8, (Method.DSPARK, 15): 8}


def test_a_filter_joins_its_parts_and_says_what_there_is_where_nothing_fits():
    found = select(target="GEMMA-4-31b", method=Method.DSPARK, prompts="gsm8k")
    assert [cell.draft_tokens for cell in found] == [3, 7, 11, 15]
    with pytest.raises(PlanError, match=r"nosuch.*Targets: google/gemma-4-26B-A4B-it.*prompt sets: gsm8k"):
        select(target="nosuch")


def test_suggested_lengths_keep_the_shortest_and_none_beyond_training():
    for target in ("gemma-4-31B", "Qwen3-8B", "Kimi"):
        found = select(target=target)
        for method, lengths in suggested(found).items():
            swept = [cell for cell in found if cell.method is method]
            assert min(lengths) == min(cell.draft_tokens for cell in swept)
            assert len(lengths) <= 4
            assert list(lengths) == sorted(set(lengths))
            assert not any(cell.beyond_trained for cell in swept if cell.draft_tokens in lengths)
            best = max((cell for cell in swept if not cell.beyond_trained), key=lambda cell: cell.speed_up)
            assert best.draft_tokens in lengths


def test_the_suggested_plan_parses_and_says_that_it_is_no_evidence():
    lengths = suggested(select(target="gemma-4-31B"))
    text = render("vllm", "google/gemma-4-31B-it", suggested=Suggested(lengths, LABEL))
    assert f"# {LABEL}" in text
    plan = parse.parse(text)
    assert {part.method: part.draft_tokens for part in plan.candidates} == lengths


def test_the_page_carries_label_and_provenance_and_every_cell():
    found = select(target="Qwen3-8B")
    page = published_page.render(found)
    assert LABEL in page
    assert PROVENANCE in page
    assert "<script" not in page
    assert page.count("<figure>") == 4
    assert page.count("beyond its training</small>") == 8
    assert page.count('class="mark open"') == 8
    assert page == published_page.render(found)


def test_the_verb_shows_the_label_and_its_json_carries_it(tmp_path):
    runner = CliRunner()
    shown = runner.invoke(app, ["published", "--target", "kimi", "--out", str(tmp_path / "p.html")])
    assert shown.exit_code == 0, shown.output
    assert LABEL in shown.output
    assert (tmp_path / "p.html").read_text().startswith("<!doctype html>")
    told = json.loads(runner.invoke(app, ["published", "--target", "kimi", "--json"]).output)
    assert (told["label"], len(told["cells"])) == (LABEL, 32)
    assert runner.invoke(app, ["published", "--target", "nosuch"]).exit_code == 2


def test_init_takes_methods_and_lengths_from_a_published_sweep(tmp_path):
    path = tmp_path / "plan.yaml"
    runner = CliRunner()
    words = ["init", str(path), "--from-published", "qwen3-8b", "--target", "my/Qwen3-8B-finetune"]
    assert runner.invoke(app, words).exit_code == 0
    plan = parse.parse(path.read_text())
    assert plan.target.model == "my/Qwen3-8B-finetune"
    assert {part.method for part in plan.candidates} == {Method.EAGLE3, Method.DFLASH, Method.DSPARK}
    narrowed = [*words[:1], str(tmp_path / "other.yaml"), *words[2:], "--method", "dspark"]
    assert runner.invoke(app, narrowed).exit_code == 0
    assert [p.method for p in parse.parse((tmp_path / "other.yaml").read_text()).candidates] == [Method.DSPARK]
    none = [*words[:1], str(tmp_path / "third.yaml"), *words[2:], "--method", "ngram"]
    assert runner.invoke(app, none).exit_code == 2
