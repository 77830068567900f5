"""Pairs that cannot work end before the first boot: exit 2, every reason at once, each with its place and its fix."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.flow.command_line import Ended, plan, specdyno, write_plan
from tests.unit.preflight.hub_imitation import Imitation, Repository
from tests.unit.preflight.small_pairs import PAIRS, SmallPair, llama, pair

MARKER = "booted"


def written(folder: Path, *pairs: SmallPair, **changes: Any) -> Path:
    """A plan for a vLLM that leaves a mark when it is started. Pairs share the first one's target."""
    target = pairs[0].target.write(folder / "targets")
    candidates = []
    for number, one in enumerate(pairs):
        candidate: dict[str, Any] = {"method": str(one.method), "draft_tokens": one.lengths}
        if one.draft is not None:
            candidate["draft"] = str(one.draft.write(folder / f"draft{number}"))
        candidates.append(candidate)
    engine = {"kind": "vllm", "command": [sys.executable, "-c", f"open({str(folder / MARKER)!r}, 'w')"]}
    content = plan(target={"model": str(target)}, engine=engine, candidates=candidates, **changes)
    return write_plan(folder / "plan.yaml", content)


def refused(path: Path, **environment: str) -> Ended:
    """`run` and `check` refuse alike, nothing was started, and there is no study."""
    study = path.parent / "study"
    ended = specdyno("run", path, "--out", study, env=environment)
    assert ended.code == 2, ended.text
    assert not (path.parent / MARKER).exists()
    assert not study.exists()
    checked = specdyno("check", path, env=environment)
    assert (checked.code, checked.text) == (2, ended.text)
    return ended


def _other_target(one: SmallPair) -> None:
    one.target = llama(hidden_size=16, num_hidden_layers=4)


def _without_mtp_tensors(one: SmallPair) -> None:
    one.target.tensors = {name: shape for name, shape in one.target.tensors.items() if "mtp" not in name}


def _without_map(one: SmallPair) -> None:
    del one.draft.tensors["d2t"]


BAD: dict[str, tuple[str, Callable[[SmallPair], object], str, str, str]] = {
    # what is wrong: good pair, edit, place, what was seen, the fix
    "a draft for another target": (
        "eagle3", _other_target, "candidates[0].draft", "hidden states of 8, the target has 16", "for this very target",
    ),
    "a quantised upload without its MTP tensors": (
        "mtp", _without_mtp_tensors, "candidates[0].method", "announces 1 MTP layer, and none of 1 tensors",
        "Use an upload that kept them",
    ),
    "a padded vocabulary": (
        "draft_model", lambda one: one.draft.config.update(vocab_size=48), "candidates[0].draft",
        "the target has 32 tokens, the draft 48", "use_heterogeneous_vocab",
    ),
    "K above the block": (
        "dflash", lambda one: setattr(one, "lengths", [3, 8]), "candidates[0].draft_tokens",
        "dflash-k8: 8 draft tokens, 7 were trained", "Write at most 7",
    ),
    "a path whose name stands for another method": (
        "draft_model", lambda one: setattr(one.draft, "folder", "eagle3-like"), "candidates[0].draft",
        'holds "eagle3"', "Rename, copy or link the folder",
    ),
    "a missing map of the draft's vocabulary": (
        "eagle3", _without_map, "candidates[0].draft", "no tensor d2t", "Ask the draft's author",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_pair_ends_before_the_boot_with_the_reason_and_the_fix(name: str, tmp_path: Path) -> None:
    good, edit, place, seen, fix = BAD[name]
    one = pair(good)
    edit(one)
    text = refused(written(tmp_path, one)).text
    assert f"{place}: " in text
    assert seen in text
    assert fix in text


def test_every_bad_candidate_is_told_at_once(tmp_path: Path) -> None:
    first, second = pair("dflash"), pair("draft_model")
    first.lengths, second.draft.config["vocab_size"] = [9], 48
    text = refused(written(tmp_path, first, second)).text
    assert "candidates[0].draft_tokens" in text
    assert "candidates[1].draft: draft_model-k3: the target has 32 tokens, the draft 48" in text


def test_an_accepted_failure_is_shown_and_measured_nevertheless(tmp_path: Path) -> None:
    one = pair("dflash")
    one.lengths = [9]
    path = written(tmp_path, one, preflight={"accept": ["draft_tokens_trained"]})
    ended = specdyno("check", path)
    assert ended.code == 0, ended.text
    assert "draft_tokens_trained fail 9 draft tokens, 7 were trained" in ended.text
    assert "draft_tokens_trained: accepted: 9 draft tokens" in ended.text


def test_a_check_that_is_accepted_must_exist(tmp_path: Path) -> None:
    path = written(tmp_path, pair("dflash"), preflight={"accept": ["draft_tokens_train"]})
    assert (
        'preflight.accept[0]: there is no check "draft_tokens_train". Did you mean draft_tokens_trained?'
        in refused(path).text
    )


def test_check_shows_what_passed(tmp_path: Path) -> None:
    ended = specdyno("check", written(tmp_path, pair("eagle3")))
    assert ended.code == 0, ended.text
    assert "Checks of target and draft" in ended.text
    assert "fc_width pass fc.weight is [8, 24]" in ended.text
    assert not (tmp_path / MARKER).exists()


def test_a_corrupt_header_is_told_with_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, pair("eagle3"))
    weights = tmp_path / "draft0" / "draft" / "model.safetensors"
    weights.write_bytes(b"\xff" * 16)
    text = refused(path).text
    assert "candidates[0].draft: " in text
    assert "model.safetensors" in text


def test_a_draft_of_llamacpp_must_be_a_gguf(tmp_path: Path) -> None:
    one = pair("gguf draft_model")
    target = one.target.write(tmp_path)
    draft = PAIRS["draft_model"]().draft.write(tmp_path / "drafts")
    engine = {"kind": "llamacpp", "command": [sys.executable]}
    candidates = [{"method": "draft_model", "draft": str(draft), "draft_tokens": [3]}]
    content = plan(target={"model": str(target)}, engine=engine, candidates=candidates)
    text = refused(write_plan(tmp_path / "plan.yaml", content)).text
    assert "the draft is a Hugging Face folder" in text
    assert "python convert_hf_to_gguf.py" in text


@pytest.mark.parametrize(("gated", "words"), [(True, "org/draft is gated"), (False, "org/draft")])
def test_a_gated_or_missing_repository_is_the_plans_mistake(gated: bool, words: str, tmp_path: Path) -> None:
    one = pair("eagle3")
    target = one.target.write(tmp_path)
    engine = {"kind": "vllm", "command": [sys.executable]}
    candidates = [{"method": "eagle3", "draft": "org/draft", "draft_tokens": [3]}]
    path = write_plan(tmp_path / "plan.yaml", plan(target={"model": str(target)}, engine=engine, candidates=candidates))
    with Imitation() as hub:
        if gated:
            hub.repositories["org/draft"] = Repository(one.draft.write(tmp_path / "hub"), gated=True)
        text = refused(path, HF_ENDPOINT=hub.url, HF_HOME=str(tmp_path / "cache"), HF_HUB_OFFLINE="0").text
    assert "candidates[0].draft: " in text
    assert words in text


def test_without_a_network_the_pair_is_unknown_and_decides_nothing(tmp_path: Path) -> None:
    one = pair("eagle3")
    target = one.target.write(tmp_path)
    engine = {"kind": "vllm", "command": [sys.executable]}
    candidates = [{"method": "eagle3", "draft": "org/draft", "draft_tokens": [3]}]
    path = write_plan(tmp_path / "plan.yaml", plan(target={"model": str(target)}, engine=engine, candidates=candidates))
    ended = specdyno("check", path, env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")})
    assert ended.code == 0, ended.text
    assert "checkpoint_readable unknown" in ended.text
    assert 'checkpoint_readable: not known: "org/draft" cannot be read' in ended.text


def test_classes_with_tools_that_the_engine_would_refuse_end_before_the_first_boot(tmp_path: Path) -> None:
    workload = {
        "sampling": {"temperature": 0.0},
        "classes": [{"name": "calls", "prompts": "builtin:tools", "share": 1, "max_tokens": 64}],
    }
    ended = refused(written(tmp_path, pair("ngram"), workload=workload))
    for word in ("engine.args", "calls", "enable-auto-tool-choice", "accept: [tools_accepted]"):
        assert word in ended.text
