"""The room of the KV cache as engines state it, out of what a booted engine answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdyno.engine.base import Answers
from specdyno.engine.capacity import NOT_STATED, Capacity, from_llamacpp, from_sglang, from_vllm
from specdyno.engine.llamacpp import LlamaCppAdapter
from specdyno.engine.vllm import VllmAdapter
from specdyno.plan.schema import Engine, EngineKind, Target

BOOTS = json.loads((Path(__file__).parents[2] / "data" / "memory" / "vllm_boots.json").read_text())["boots"]
WHOLE = [boot for boot in BOOTS if boot["cache_config"] is not None]
TOKENS = {
    "baseline": 93_184, "eagle3": 88_000, "dflash": 87_296, "dspark": 43_648, "gemma4": 671_088, "gemma4-mtp": 671_088,
}  # fmt: skip
INFO = "/server_info?config_format=json"
SLOTS = "srv load_model: initializing, n_slots = {}, n_ctx_slot = {}, kv_unified = '{}'"


@pytest.mark.parametrize("boot", BOOTS, ids=lambda boot: boot["boot"])
def test_vllm_s_start_up_line(boot):
    found = from_vllm({}, f"INFO [kv_cache_utils.py:2327] {boot['log']}\n")
    assert found.tokens == TOKENS[boot["boot"]]
    assert found.concurrency == pytest.approx(found.tokens / boot["max_model_len"], abs=0.01)


@pytest.mark.parametrize("boot", WHOLE, ids=lambda boot: boot["boot"])
def test_vllm_s_settings_and_its_series_agree_with_its_line(boot):
    settings = from_vllm({"cache_config": boot["cache_config"]})
    assert settings.tokens == TOKENS[boot["boot"]]
    assert from_vllm({}, metrics=f"# HELP\n{boot['series']}\n") == settings
    assert from_vllm({}, boot["log"]).concurrency == pytest.approx(settings.concurrency, abs=0.006)


def test_vllm_s_last_line_counts_after_a_restart():
    assert from_vllm({}, "GPU KV cache size: 1,000 tokens\nGPU KV cache size: 2,000 tokens").tokens == 2000


def test_vllm_s_identity_carries_it():
    adapter = VllmAdapter(Engine(kind=EngineKind.VLLM), Target(model="m"))
    asked = adapter.identity(Answers({INFO: {"vllm_config": {"cache_config": WHOLE[0]["cache_config"]}}}, ""))
    assert (asked.kv_cache_tokens, asked.kv_cache_concurrency) == (88_000, 88.0)
    logged = adapter.identity(Answers({}, WHOLE[0]["log"]))
    assert logged.kv_cache_tokens == 88_000
    scraped = adapter.identity(Answers({"/metrics": WHOLE[0]["series"]}, ""))
    assert (scraped.kv_cache_tokens, scraped.kv_cache_concurrency) == (88_000, 88.0)
    assert "/metrics" in adapter.questions


def test_llamacpp_s_slots_have_parts_or_share_one_pool():
    assert from_llamacpp(SLOTS.format(2, 2048, "false"), {}, 2) == Capacity(4096, 2.0)
    assert from_llamacpp(SLOTS.format(4, 8192, "true"), {}, 4) == Capacity(8192, 1.0)


def test_llamacpp_without_its_log_tells_only_for_one_slot():
    props = {"default_generation_settings": {"n_ctx": 4096}}
    assert from_llamacpp("", props, 1) == Capacity(4096, 1.0)
    assert from_llamacpp("", props, 4) == NOT_STATED


def test_llamacpp_s_identity_carries_it():
    adapter = LlamaCppAdapter(Engine(kind=EngineKind.LLAMACPP), Target(model="m"))
    found = adapter.identity(Answers({}, SLOTS.format(2, 2048, "false")))
    assert (found.kv_cache_tokens, found.kv_cache_concurrency) == (4096, 2.0)


def test_sglang_s_smallest_scheduler_counts():
    assert from_sglang({"max_total_num_tokens": 500}).tokens == 500
    states = [{"max_total_num_tokens": 900}, {"max_total_num_tokens": 800}, {}]
    assert from_sglang({"internal_states": states}).tokens == 800
    assert from_sglang({}) == NOT_STATED


ODD = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
KEYS = st.sampled_from(
    ["cache_config", "kv_cache_size_tokens", "kv_cache_max_concurrency", "internal_states", "max_total_num_tokens",
     "default_generation_settings", "n_ctx"]
)  # fmt: skip


@given(
    st.dictionaries(KEYS, st.recursive(ODD, lambda inner: st.dictionaries(KEYS, inner) | st.lists(inner))), st.text()
)
def test_odd_answers_say_nothing_and_raise_nothing(answer, text):
    for found in (from_vllm(answer, text, text), from_llamacpp(text, answer, 1), from_sglang(answer)):
        assert found.tokens is None or found.tokens > 0
        assert found.concurrency is None or found.concurrency > 0
