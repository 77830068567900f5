"""SGLang: its command lines, and what it says of itself, out of answers of the documented shapes."""

from __future__ import annotations

import json
import sys

import pytest
from tests.unit.engine.arms import BASELINE, DATA, EMPTY, adapter, argv, arm

from specdyno.engine import counters
from specdyno.engine.base import Adapter, Answers
from specdyno.engine.reading.per_request import spec_steps
from specdyno.errors import PlanError
from specdyno.plan.schema import Method
from specdyno.records.columns import position_counts
from specdyno.records.deltas import Family, difference

ANSWERS = DATA / "sglang"


def sglang(**keys) -> Adapter:
    return adapter("sglang", **keys)


def info(**changes) -> Answers:
    page = json.loads((ANSWERS / "server_info.json").read_text()) | changes
    return Answers({"/server_info": page, "/v1/models": {"data": [{"id": "served"}]}}, "")


START = [
    *(sys.executable, "-m", "sglang.launch_server", "--model-path", "org/model"),
    *("--host", "127.0.0.1", "--port", "8123", "--enable-metrics"),
]


def test_both_arms_run_as_many_requests_at_once() -> None:
    both = [argv(sglang(), one) for one in (BASELINE, arm(Method.EAGLE3))]
    assert both[0] == [*START, "--max-running-requests", "48"]
    assert both[1][: len(both[0])] == both[0]
    stated = argv(sglang(args={"max_running_requests": 8}))
    assert stated == [*START, "--max-running-requests", "8"]


CHAIN = ["--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"]
DRAFT = ["--speculative-draft-model-path", "org/draft"]


@pytest.mark.parametrize(
    ("method", "flags"),
    [
        (Method.NGRAM, ["NGRAM", "--speculative-num-draft-tokens", "4"]),
        (Method.DRAFT_MODEL, ["STANDALONE", *DRAFT, *CHAIN]),
        (Method.EAGLE, ["EAGLE", *DRAFT, *CHAIN]),
        (Method.EAGLE3, ["EAGLE3", *DRAFT, *CHAIN]),
        (Method.MTP, ["NEXTN", *CHAIN]),
        (Method.GEMMA4_MTP, ["EAGLE", *DRAFT, *CHAIN]),
        (Method.DFLASH, ["DFLASH", *DRAFT, "--speculative-num-draft-tokens", "4"]),
        (
            Method.DSPARK,
            ["DSPARK", *DRAFT, "--speculative-dspark-block-size", "3", "--speculative-num-draft-tokens", "4"],
        ),
    ],
)
def test_three_draft_tokens_are_said_in_the_words_of_each_algorithm(method: Method, flags: list[str]) -> None:
    words = argv(sglang(), arm(method))
    assert words[words.index("--speculative-algorithm") + 1 :] == flags


@pytest.mark.parametrize("option", ["speculative_num_steps", "speculative-eagle-topk", "port", "api_key"])
def test_an_option_cannot_change_the_draft_length_or_the_target(option: str) -> None:
    with pytest.raises(PlanError, match=option):
        sglang().flags(arm(Method.EAGLE, **{option: 2}), 1, boot_seed=0)


def test_further_options_are_flags() -> None:
    words = sglang().flags(arm(Method.EAGLE, speculative_token_map="m.pt"), 1, boot_seed=0)
    assert words[-2:] == ["--speculative-token-map", "m.pt"]


def test_a_candidates_requests_ask_for_their_acceptance() -> None:
    assert sglang().request_fields(arm(Method.EAGLE)) == {"return_spec_tokens_details": True}
    assert sglang().request_fields(BASELINE) == {}


# ---- what it says of itself ------------------------------------------------------------------------------------------


def test_method_and_draft_length_are_read_from_the_resolved_arguments() -> None:
    identity = sglang().identity(info())
    assert (identity.engine, identity.version, identity.model) == ("sglang", "0.5.23", "served")
    assert (identity.speculation, identity.method, identity.draft_tokens) == (True, "eagle3", 3)
    assert identity.draft == "org/draft"
    assert identity.settings["max_running_requests"] == 48
    strange = {"port", "nccl_port", "random_seed", "internal_states", "api_key", "version"}
    assert not strange & identity.settings.keys()
    assert "sk-not-to-be-kept" not in str(identity)


@pytest.mark.parametrize(
    ("changes", "method", "k"),
    [
        ({"speculative_algorithm": "EAGLE"}, "eagle", 3),
        ({"speculative_algorithm": "EAGLE", "speculative_draft_model_path": "org/model"}, "mtp", 3),
        ({"speculative_algorithm": "EAGLE", "speculative_draft_model_path": None}, "mtp", 3),
        ({"speculative_algorithm": "FROZEN_KV_MTP"}, "gemma4_mtp", 3),
        ({"speculative_algorithm": "STANDALONE", "speculative_eagle_topk": 4}, "draft_model", None),
        ({"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 6}, "ngram", 5),
        (
            {"speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 8, "speculative_num_steps": 1},
            "dflash",
            7,
        ),
        ({"speculative_algorithm": "DSPARK", "speculative_num_draft_tokens": None}, "dspark", None),
        ({"speculative_algorithm": "PLUGIN"}, "plugin", 3),
    ],
)
def test_every_algorithm_has_its_neutral_name_and_length(changes: dict, method: str, k: int | None) -> None:
    identity = sglang().identity(info(**changes))
    assert (identity.method, identity.draft_tokens) == (method, k)


def test_a_baseline_says_that_it_does_not_speculate_and_silence_says_nothing() -> None:
    plain = sglang().identity(info(speculative_algorithm=None))
    assert (plain.speculation, plain.method, plain.draft_tokens, plain.draft) == (False, None, None, None)
    silent = sglang().identity(Answers({}, ""))
    assert (silent.speculation, silent.source) == (None, "")


def test_an_older_page_is_read_too() -> None:
    page = json.loads((ANSWERS / "server_info.json").read_text())
    assert sglang().identity(Answers({"/server_info": None, "/get_server_info": page}, "")).method == "eagle3"


def test_acceptance_by_position_comes_from_the_answers_histogram() -> None:
    steps = spec_steps(json.loads((ANSWERS / "answer.json").read_text()))
    assert steps is not None
    assert (steps.num_spec_steps, steps.num_draft_tokens, steps.num_accepted_draft_tokens) == (26, 78, 35)
    assert steps.num_spec_tokens == 3
    counts = position_counts(steps)
    assert counts is not None
    reached, at_risk = counts
    assert reached.tolist() == [20, 10, 5]
    assert at_risk.tolist() == [26, 20, 10]


def test_counters_give_steps_and_tokens_and_no_gauge() -> None:
    text = (ANSWERS / "metrics.txt").read_text()
    delta = difference(EMPTY, counters.parse(text, stamp_ns=1, source="sglang /metrics"))
    assert (delta.drafts, delta.generation_tokens, delta.first_tokens, delta.requests_finished) == (260, 640, 10, 10)
    assert (delta.cached_prompt_tokens, delta.decode_steps) == (12, 260)
    assert (delta.accepted_tokens, delta.draft_tokens) == (None, None)
    assert {Family.SPEC_ACCEPTED_TOKENS, Family.SPEC_DRAFT_TOKENS}.isdisjoint(
        series.name for series in counters.parse(text, stamp_ns=1, source="").series
    )
