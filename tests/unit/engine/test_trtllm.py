"""TensorRT-LLM: the file it is started with, and what it says of itself, out of answers of the documented shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.unit.engine.arms import BASELINE, DATA, EMPTY, adapter, arm

from specdyno.engine import counters
from specdyno.engine.base import Answers
from specdyno.engine.reading.per_request import spec_steps
from specdyno.engine.trtllm import TrtllmAdapter, speculative_config
from specdyno.errors import PlanError
from specdyno.plan.schema import Method
from specdyno.records.deltas import difference

ANSWERS = DATA / "trtllm"
PAGE = "/prometheus/metrics"


def trtllm(**keys) -> TrtllmAdapter:
    made = adapter("trtllm", **keys)
    assert isinstance(made, TrtllmAdapter)
    return made


def answers(page: str | None = None) -> Answers:
    text = (ANSWERS / "metrics.txt").read_text() if page is None else page
    return Answers({PAGE: text, "/version": {"version": "1.3"}, "/v1/models": {"data": [{"id": "served"}]}}, "")


def test_the_arms_differ_in_the_file_alone_and_it_is_kept_beside_the_log(tmp_path: Path) -> None:
    made = trtllm(args={"tp_size": 2})
    files = {}
    for one in (BASELINE, arm(Method.EAGLE3)):
        path = tmp_path / "logs" / f"{one.name}.yaml"
        launch = made.launch(one, 8123).written(path)
        assert list(launch.argv) == [
            *("trtllm-serve", "org/model", "--host", "127.0.0.1", "--port", "8123"),
            *("--config", str(path), "--tp-size", "2"),
        ]
        files[one.name] = yaml.safe_load(path.read_text())
    assert files["baseline"] == {"return_perf_metrics": True}
    assert files["c"] == {
        "return_perf_metrics": True,
        "speculative_config": {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "org/draft"},
    }


@pytest.mark.parametrize(
    ("method", "kind", "further"),
    [
        (Method.NGRAM, "NGram", {}),
        (Method.SUFFIX, "SA", {}),
        (Method.DRAFT_MODEL, "Draft_Target", {"speculative_model": "org/draft"}),
        (Method.PARD, "PARD", {"speculative_model": "org/draft"}),
        (Method.EAGLE3, "Eagle3", {"speculative_model": "org/draft"}),
        (Method.MTP, "MTP", {}),
        (Method.DFLASH, "DFlash", {"speculative_model": "org/draft"}),
        (Method.DSPARK, "DSpark", {"speculative_model": "org/draft", "block_size": 3}),
    ],
)
def test_every_method_has_its_decoding_type(method: Method, kind: str, further: dict) -> None:
    assert speculative_config(arm(method)) == {"decoding_type": kind, "max_draft_len": 3, **further}


@pytest.mark.parametrize("option", ["max_draft_len", "decoding_type", "acceptance_rate_threshold"])
def test_an_option_cannot_change_what_is_measured_half_way(option: str) -> None:
    with pytest.raises(PlanError, match=option):
        speculative_config(arm(Method.EAGLE3, **{option: 1}))


def test_the_users_own_file_is_joined(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("kv_cache_config: {free_gpu_memory_fraction: 0.8}\n")
    made = trtllm(args={"config": str(own)})
    assert made.config(arm(Method.MTP))["kv_cache_config"] == {"free_gpu_memory_fraction": 0.8}
    words = made.launch(BASELINE, 8123).argv
    assert words.count("--config") == 1
    assert str(own) not in words


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read"),
        ("- 1", "no mapping"),
        ("a: [", "no YAML"),
        ("speculative_config: {decoding_type: MTP}", "holds speculative_config"),
    ],
)
def test_a_file_that_cannot_be_joined_is_a_mistake_in_the_plan(tmp_path: Path, content: str | None, told: str) -> None:
    own = tmp_path / "own.yaml"
    if content is not None:
        own.write_text(content)
    with pytest.raises(PlanError, match=told) as caught:
        trtllm(args={"extra_llm_api_options": str(own)})
    assert caught.value.problems[0].place == "engine.args.extra_llm_api_options"


def test_what_to_deploy_is_yaml_for_its_file() -> None:
    (word,) = trtllm().deployment(arm(Method.MTP))
    assert yaml.safe_load(word) == {"speculative_config": {"decoding_type": "MTP", "max_draft_len": 3}}


# ---- what it says of itself ------------------------------------------------------------------------------------------


def test_method_and_draft_length_are_read_from_its_metrics() -> None:
    identity = trtllm().identity(answers())
    assert (identity.engine, identity.version, identity.model) == ("trtllm", "1.3", "served")
    assert (identity.speculation, identity.method, identity.draft_tokens) == (True, "eagle3", 3)
    assert identity.draft == "org/draft"
    assert identity.settings["parallel_config.tensor_parallel_size"] == "1"
    assert not [name for name in identity.settings if "spec" in name]


def test_without_the_speculative_facts_it_does_not_speculate_and_without_any_it_does_not_say() -> None:
    lines = (ANSWERS / "metrics.txt").read_text().split("\n")
    without = "\n".join(line for line in lines if "speculative_config" not in line)
    assert trtllm().identity(answers(without)).speculation is False
    assert trtllm().identity(answers("")).speculation is None
    assert trtllm().identity(Answers({}, "")).speculation is None


@pytest.mark.parametrize(
    "broken", ["trtllm_speculative_config_info{", 'trtllm_speculative_config_info{a="', "x_config_info 1"]
)
def test_broken_facts_say_nothing(broken: str) -> None:
    assert trtllm().identity(answers(broken)).method is None


def test_drafted_and_accepted_are_counted_by_position() -> None:
    delta = difference(EMPTY, counters.parse((ANSWERS / "metrics.txt").read_text(), stamp_ns=1, source=""))
    assert delta.drafted_per_position == (260, 255, 250)
    assert delta.accepted_per_position == (200, 100, 50)
    assert (delta.drafts, delta.draft_tokens, delta.accepted_tokens, delta.draft_tokens_k) == (260, 765, 350, 3)
    assert (delta.generation_tokens, delta.cached_prompt_tokens, delta.decode_steps) == (640, 12, None)


def test_an_answer_carries_its_acceptance() -> None:
    page = json.loads((ANSWERS / "answer.json").read_text())
    steps = spec_steps(page)
    assert steps is not None
    assert (steps.num_spec_steps, steps.num_accepted_draft_tokens, steps.num_spec_tokens) == (26, 35, 3)
    del page["choices"][0]["speculative_decoding"]
    mean = spec_steps(page)
    assert mean is not None
    assert mean.estimated
    assert mean.num_spec_steps == round(62 / 2.35)
