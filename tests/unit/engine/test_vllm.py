"""vLLM: its command lines, one JSON for every method."""

from __future__ import annotations

import json
import sys

import pytest
from tests.unit.engine.arms import BASELINE, adapter, argv, arm

from specdyno.engine.vllm import speculative_config
from specdyno.plan.schema import Method


def test_vllms_baseline_has_no_speculation_at_all():
    made = adapter("vllm", args={"max-num-seqs": 8, "enforce_eager": True, "async-scheduling": False}, revision="abc")
    assert argv(made) == [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "org/model"),
        *("--host", "127.0.0.1", "--port", "8123", "--revision", "abc", "--enable-prompt-tokens-details"),
        *("--max-num-seqs", "8", "--enforce-eager"),
    ]


def test_vllm_tells_cached_prompt_tokens_in_every_arm_unless_the_plan_says_otherwise():
    asked = "--enable-prompt-tokens-details"
    assert all(asked in argv(adapter("vllm"), one) for one in (BASELINE, arm("ngram")))
    assert asked not in adapter("vllm").deployment(arm("ngram"))
    words = argv(adapter("vllm", args={"no-enable-prompt-tokens-details": True}))
    assert words.index("--no-enable-prompt-tokens-details") > words.index(asked)  # the later one holds


VLLM_CONFIGS = {
    Method.NGRAM: {"method": "ngram", "num_speculative_tokens": 3},
    Method.SUFFIX: {"method": "suffix", "num_speculative_tokens": 3},
    Method.DRAFT_MODEL: {"method": "draft_model", "num_speculative_tokens": 3, "model": "org/draft"},
    Method.PARD: {
        "method": "draft_model",
        "num_speculative_tokens": 3,
        "parallel_drafting": True,
        "model": "org/draft",
    },
    Method.EAGLE: {"method": "eagle", "num_speculative_tokens": 3, "model": "org/draft"},
    Method.EAGLE3: {"method": "eagle3", "num_speculative_tokens": 3, "model": "org/draft"},
    Method.MTP: {"method": "mtp", "num_speculative_tokens": 3},
    Method.GEMMA4_MTP: {"method": "mtp", "num_speculative_tokens": 3, "model": "org/draft"},
    Method.DFLASH: {"method": "dflash", "num_speculative_tokens": 3, "model": "org/draft"},
    Method.DSPARK: {"method": "dspark", "num_speculative_tokens": 3, "model": "org/draft"},
    Method.MEDUSA: {"method": "medusa", "num_speculative_tokens": 3, "model": "org/draft"},
}


@pytest.mark.parametrize("method", list(Method))
def test_vllm_gets_every_method_as_one_json(method):
    words = argv(adapter("vllm"), arm(method))
    assert json.loads(words[words.index("--speculative-config") + 1]) == VLLM_CONFIGS[method]
    assert words[words.index("--per-request-spec-decode-metrics") + 1] == "detailed"


def test_options_of_a_candidate_join_its_configuration():
    config = speculative_config(arm(Method.NGRAM, prompt_lookup_min=2, prompt_lookup_max=4))
    assert config == {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4}


def test_the_baseline_has_no_speculative_configuration():
    with pytest.raises(ValueError, match="baseline"):
        speculative_config(BASELINE)


@pytest.mark.parametrize("command", [["vllm", "serve"], ["docker", "run", "image", "vllm", "serve", "--uvicorn-x"]])
def test_vllm_serve_takes_the_model_by_position(command):
    words = argv(adapter("vllm", command=command))
    assert words[: len(command) + 1] == [*command, "org/model"]
    assert "--model" not in words


def test_vllm_opens_what_tells_its_configuration_and_the_plan_may_override():
    made = adapter("vllm", env={"VLLM_NO_USAGE_STATS": "0"})
    assert made.launch(BASELINE, 1).env == {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "0"}
