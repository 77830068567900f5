"""SGLang: its command lines, and what it says of itself, out of answers of the documented shapes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from specdyno.engine import counters, server
from specdyno.engine.base import Answers
from specdyno.engine.reading.per_request import spec_steps
from specdyno.engine.sglang import SglangAdapter
from specdyno.errors import PlanError
from specdyno.plan.schema import NEEDS_DRAFT, NOT_RUN_HERE, Arm, Engine, Method, Role, Target
from specdyno.records.columns import position_counts
from specdyno.records.deltas import Family, difference
from specdyno.records.schema import CounterSample

DATA = Path(__file__).parents[2] / "data" / "engines" / "sglang"
BASELINE = Arm(name="baseline", role=Role.BASELINE)
EMPTY = CounterSample(0, "", ())


def arm(method: Method, k: int = 3, **options) -> Arm:
    draft = "org/draft" if method in NEEDS_DRAFT else None
    return Arm(name="c", role=Role.CANDIDATE, method=method, draft=draft, draft_tokens=k, options=options)


def adapter(**keys) -> SglangAdapter:
    made = server.adapter(Engine(kind="sglang", **keys), Target(model="org/model"))
    assert isinstance(made, SglangAdapter)
    return made


def info(**changes) -> Answers:
    page = json.loads((DATA / "server_info.json").read_text()) | changes
    return Answers({"/server_info": page, "/v1/models": {"data": [{"id": "served"}]}}, "")


START = [
    *(sys.executable, "-m", "sglang.launch_server", "--model-path", "org/model"),
    *("--host", "127.0.0.1", "--port", "8123", "--enable-metrics"),
]


def test_both_arms_run_as_many_requests_at_once() -> None:
    both = [list(adapter().launch(one, 8123).argv) for one in (BASELINE, arm(Method.EAGLE3))]
    assert both[0] == [*START, "--max-running-requests", "48"]
    assert both[1][: len(both[0])] == both[0]
    stated = adapter(args={"max_running_requests": 8}).launch(BASELINE, 8123).argv
    assert list(stated) == [*START, "--max-running-requests", "8"]


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
    words = list(adapter().launch(arm(method), 8123).argv)
    assert words[words.index("--speculative-algorithm") + 1 :] == flags


@pytest.mark.parametrize("method", [Method.SUFFIX, Method.PARD, Method.MEDUSA])
def test_a_method_that_sglang_lacks_is_a_mistake_in_the_plan(method: Method) -> None:
    with pytest.raises(PlanError, match=f"no method {method}"):
        adapter().flags(arm(method), 1, boot_seed=0)


@pytest.mark.parametrize("option", ["speculative_num_steps", "speculative-eagle-topk", "port", "api_key"])
def test_an_option_cannot_change_the_draft_length_or_the_target(option: str) -> None:
    with pytest.raises(PlanError, match=option):
        adapter().flags(arm(Method.EAGLE, **{option: 2}), 1, boot_seed=0)


def test_further_options_are_flags() -> None:
    words = adapter().flags(arm(Method.EAGLE, speculative_token_map="m.pt"), 1, boot_seed=0)
    assert words[-2:] == ["--speculative-token-map", "m.pt"]


@pytest.mark.parametrize(("flag", "remedy"), [("model-path", "target.model"), ("speculative_num_steps", "candidates")])
def test_flags_that_specdyno_sets_are_refused(flag: str, remedy: str) -> None:
    with pytest.raises(PlanError) as caught:
        adapter(args={flag: "x"})
    assert remedy in caught.value.problems[0].remedy


def test_a_candidates_requests_ask_for_their_acceptance() -> None:
    assert adapter().request_fields(arm(Method.EAGLE)) == {"return_spec_tokens_details": True}
    assert adapter().request_fields(BASELINE) == {}


def test_the_key_is_on_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-of-the-test")
    launch = adapter(api_key_env="MY_KEY").launch(arm(Method.EAGLE3), 8123)
    assert "sk-of-the-test" not in " ".join(launch.argv) + repr(launch)
    assert "sk-of-the-test" not in launch.env.values()


# ---- what it says of itself ------------------------------------------------------------------------------------------


def test_method_and_draft_length_are_read_from_the_resolved_arguments() -> None:
    identity = adapter().identity(info())
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
    identity = adapter().identity(info(**changes))
    assert (identity.method, identity.draft_tokens) == (method, k)


def test_a_baseline_says_that_it_does_not_speculate_and_silence_says_nothing() -> None:
    plain = adapter().identity(info(speculative_algorithm=None))
    assert (plain.speculation, plain.method, plain.draft_tokens, plain.draft) == (False, None, None, None)
    silent = adapter().identity(Answers({}, ""))
    assert (silent.speculation, silent.source) == (None, "")


def test_an_older_page_is_read_too() -> None:
    page = json.loads((DATA / "server_info.json").read_text())
    assert adapter().identity(Answers({"/server_info": None, "/get_server_info": page}, "")).method == "eagle3"


def test_acceptance_by_position_comes_from_the_answers_histogram() -> None:
    steps = spec_steps(json.loads((DATA / "answer.json").read_text()))
    assert steps is not None
    assert (steps.num_spec_steps, steps.num_draft_tokens, steps.num_accepted_draft_tokens) == (26, 78, 35)
    assert steps.num_spec_tokens == 3
    counts = position_counts(steps)
    assert counts is not None
    reached, at_risk = counts
    assert reached.tolist() == [20, 10, 5]
    assert at_risk.tolist() == [26, 20, 10]


def test_counters_give_steps_and_tokens_and_no_gauge() -> None:
    text = (DATA / "metrics.txt").read_text()
    delta = difference(EMPTY, counters.parse(text, stamp_ns=1, source="sglang /metrics"))
    assert (delta.drafts, delta.generation_tokens, delta.first_tokens, delta.requests_finished) == (260, 640, 10, 10)
    assert (delta.cached_prompt_tokens, delta.decode_steps) == (12, 260)
    assert (delta.accepted_tokens, delta.draft_tokens) == (None, None)
    assert {Family.SPEC_ACCEPTED_TOKENS, Family.SPEC_DRAFT_TOKENS}.isdisjoint(
        series.name for series in counters.parse(text, stamp_ns=1, source="").series
    )


def test_it_is_labelled_as_never_run() -> None:
    assert SglangAdapter.read_from == NOT_RUN_HERE["sglang"] == Engine(kind="sglang").read_from
    assert Engine(kind="vllm").read_from is None
    spoken = {"start": ["true", "{method}"], "speaks": "sglang"}
    assert Engine(kind="external", external=spoken).read_from == SglangAdapter.read_from
