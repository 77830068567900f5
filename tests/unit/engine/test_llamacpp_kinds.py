"""llama.cpp's ways to draft: each gets its own flags, and one that would not draft as the arm says is refused."""

from __future__ import annotations

import pytest
from tests.unit.engine.arms import arm

from specdyno.engine.llamacpp_kinds import KINDS, METHODS, neutral, speculative_flags
from specdyno.errors import PlanError
from specdyno.plan.schema import Method


@pytest.mark.parametrize(
    ("kind", "k", "flags"),
    [
        ("ngram-simple", 6, ["--spec-ngram-simple-size-m", "6", "--spec-ngram-simple-size-n", "4"]),
        ("ngram-map-k", 6, ["--spec-ngram-map-k-size-m", "6"]),
        ("ngram-map-k4v", 6, ["--spec-ngram-map-k4v-size-m", "6"]),
        ("ngram-mod", 6, ["--spec-ngram-mod-n-max", "6", "--spec-ngram-mod-n-min", "0"]),
        ("ngram-cache", 8, []),
    ],
)
def test_every_ngram_kind_is_chosen_by_its_option_and_gets_k_where_it_reads_it(kind, k, flags):
    assert speculative_flags(arm(Method.NGRAM, k, **{"spec-type": kind})) == ["--spec-type", kind, *flags]


@pytest.mark.parametrize("option", ["spec-type", "spec_type"])
def test_an_option_may_be_written_with_either_dash(option):
    assert speculative_flags(arm(Method.NGRAM, 8, **{option: "ngram-cache"})) == ["--spec-type", "ngram-cache"]


@pytest.mark.parametrize("k", [1, 3, 7, 9])
def test_ngram_cache_has_one_k(k):
    with pytest.raises(PlanError, match=r"draft_tokens: \[8\]"):
        speculative_flags(arm(Method.NGRAM, k, **{"spec-type": "ngram-cache"}))


@pytest.mark.parametrize(
    ("kind", "flag", "word"),
    [
        ("ngram-simple", "spec-ngram-simple-size-n", "ngram-simple never drafts"),
        ("ngram-mod", "spec-ngram-mod-n-min", "ngram-mod throws away"),
    ],
)
def test_a_size_above_k_is_refused_and_one_up_to_k_is_taken(kind, flag, word):
    options = {"spec-type": kind}
    with pytest.raises(PlanError, match=word) as caught:
        speculative_flags(arm(Method.NGRAM, 3, **options, **{flag: 4}))
    assert "Raise draft_tokens or lower the option" in str(caught.value)
    taken = speculative_flags(arm(Method.NGRAM, 3, **options, **{flag: 3}))
    assert taken.count(f"--{flag}") == 1
    assert taken[taken.index(f"--{flag}") + 1] == "3"


def test_an_ngram_is_no_longer_than_llamacpp_takes():
    assert "1024" in speculative_flags(arm(Method.NGRAM, 1024))
    with pytest.raises(PlanError, match="at most 1024"):
        speculative_flags(arm(Method.NGRAM, 1025))


@pytest.mark.parametrize("kind", ["draft-eagle3", "ngram-simple,ngram-mod", "ngram", "none"])
def test_a_kind_that_is_not_the_methods_own_is_refused_with_those_that_are(kind):
    with pytest.raises(PlanError, match="Choose from: ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod") as caught:
        speculative_flags(arm(Method.NGRAM, 3, **{"spec-type": kind}))
    assert kind in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "option"),
    [("ngram-map-k", "spec-ngram-map-k-size-m"), ("ngram-map-k", "spec_ngram_map_k_size_m")],
)
def test_k_is_said_in_one_place_only(kind, option):
    with pytest.raises(PlanError, match=f"{option} of c: this is K"):
        speculative_flags(arm(Method.NGRAM, 3, **{"spec-type": kind, option: 5}))
    with pytest.raises(PlanError, match="this is K"):
        speculative_flags(arm(Method.EAGLE3, 3, draft="d.gguf", **{"spec-draft-n-max": 5}))


@pytest.mark.parametrize("option", ["md", "spec_draft_model", "spec-draft-hf", "spec-default"])
def test_the_draft_is_named_in_one_place_only(option):
    with pytest.raises(PlanError, match=option):
        speculative_flags(arm(Method.EAGLE3, 3, draft="d.gguf", **{option: "other.gguf"}))


def test_native_prediction_needs_no_draft_and_takes_a_separate_one():
    native = ["--spec-type", "draft-mtp", "--spec-draft-n-max", "2"]
    assert speculative_flags(arm(Method.MTP, 2)) == native
    assert speculative_flags(arm(Method.MTP, 2, draft="head.gguf")) == [*native, "--spec-draft-model", "head.gguf"]


def test_every_method_that_llamacpp_knows_has_flags_and_every_kind_a_neutral_name():
    for method in METHODS:
        assert speculative_flags(arm(method, 4, draft="d.gguf"))[0] == "--spec-type"
    assert {name: neutral(name) for name in KINDS} == {name: str(kind.method) for name, kind in KINDS.items()}
    assert neutral("something-new") is None


def test_synthetic_acceptance_reaches_the_engine_as_it_is_written():
    flags = speculative_flags(arm(Method.EAGLE3, 2, draft="d.gguf", **{"spec-synth-rates": "0.8,0.5"}))
    assert flags[-2:] == ["--spec-synth-rates", "0.8,0.5"]


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (Method.DRAFT_MODEL, "draft-simple"),
        (Method.EAGLE3, "draft-eagle3"),
        (Method.MTP, "draft-mtp"),
        (Method.GEMMA4_MTP, "draft-mtp"),
        (Method.DFLASH, "draft-dflash"),
        (Method.DSPARK, "draft-dspark"),
    ],
)
def test_llamacpp_drafts_as_long_as_the_arm_says(method, kind):
    flags = speculative_flags(arm(method, 5, draft="d.gguf"))
    assert flags == ["--spec-type", kind, "--spec-draft-n-max", "5", "--spec-draft-model", "d.gguf"]


@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        (None, "--spec-ngram-simple-size-m"),
        ("ngram-map-k", "--spec-ngram-map-k-size-m"),
        ("ngram-map-k4v", "--spec-ngram-map-k4v-size-m"),
        ("ngram-mod", "--spec-ngram-mod-n-max"),
    ],
)
def test_the_draft_length_of_an_ngram_kind_has_its_own_flag(kind, flag):
    options = {"spec-type": kind} if kind else {}
    flags = speculative_flags(arm(Method.NGRAM, 7, **options))
    assert flags[:4] == ["--spec-type", kind or "ngram-simple", flag, "7"]


def test_further_options_are_flags_of_llamacpp():
    flags = speculative_flags(arm(Method.NGRAM, 4, spec_ngram_simple_size_n=3, bare=True, off=False))
    assert flags[4:] == ["--spec-ngram-simple-size-n", "3", "--bare"]


@pytest.mark.parametrize(("k", "lookup"), [(1, 1), (3, 3), (4, 4), (12, 4)])
def test_ngram_simple_looks_up_no_more_than_it_may_draft(k, lookup):
    assert speculative_flags(arm(Method.NGRAM, k))[4:] == ["--spec-ngram-simple-size-n", str(lookup)]


@pytest.mark.parametrize("option", ["spec-ngram-simple-size-n", "spec_ngram_simple_size_n"])
def test_a_lookup_that_never_drafts_is_a_mistake_in_the_plan(option):
    with pytest.raises(PlanError, match="never drafts"):
        speculative_flags(arm(Method.NGRAM, 2, **{option: 3}))


@pytest.mark.parametrize("option", ["model", "port", "api-key", "api_key"])
def test_an_option_of_a_candidate_cannot_change_the_target_or_carry_a_secret(option):
    with pytest.raises(PlanError, match=option):
        speculative_flags(arm(Method.NGRAM, 2, **{option: "x"}))
