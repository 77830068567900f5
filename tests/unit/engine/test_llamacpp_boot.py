"""What llama.cpp's start-up log tells, on lines of build 11434 as they were written."""

from __future__ import annotations

import pytest

from specdyno.engine import llamacpp_boot
from specdyno.engine.base import Answers
from specdyno.engine.llamacpp import LlamaCppAdapter
from specdyno.plan.schema import Arm, Engine, EngineKind, Method, Role, Target

LLAMA = LlamaCppAdapter(Engine(kind=EngineKind.LLAMACPP), Target(model="m"))
USUAL = """\
0.00.404.819 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 1024, kv_unified = 'false'
0.00.412.124 I srv  llama_server: model loaded
"""
MORE = """\
0.00.010.707 I cmn  common_param: common_params_print_info: build 0 (unknown) with GNU 12.2.0 for Linux x86_64
0.00.010.708 I cmn  common_param: device_info:
0.00.010.722 I cmn  common_param:   - CPU     : AMD EPYC (24105 MiB, 24105 MiB free)
0.00.010.802 I cmn  common_param: system_info: n_threads = 1 (n_threads_batch = 1) / 2 | CPU : AVX2 = 1 | REPACK = 1 |
0.00.549.283 I llama_context: flash_attn            = auto
0.00.549.297 I llama_context: kv_unified            = false
0.00.584.691 I llama_kv_cache: size =   45.00 MiB (  1024 cells,  30 layers,  2/2 seqs), K (f16):   22.50 MiB, V (f16):   22.50 MiB
0.00.585.492 I resolve_fused_ops: Flash Attention enabled
0.00.844.068 I llama_kv_cache: size =    1.50 MiB (  1024 cells,   1 layers,  2/2 seqs), K (f16):    0.75 MiB, V (f16):    0.75 MiB
"""  # noqa: E501 (lines as they were written)
CLAMPED = (
    "0.00.526.001 W common_speculative_impl_draft_dflash: requested draft size (n_max=12, n_min=0) exceeds the trained "
    "block size 8 -- clamping to 7\n"
)


def test_the_usual_log_says_little_and_nothing_is_made_up():
    assert llamacpp_boot.facts("") == {}
    assert llamacpp_boot.facts(USUAL) == {"kv_unified": "false"}


def test_the_talkative_log_tells_device_attention_and_the_targets_own_cache():
    facts = llamacpp_boot.facts(MORE + USUAL)
    assert facts["devices"] == "CPU : AMD EPYC"
    assert facts["flash_attention"] == "enabled"
    assert facts["kv_cache"].startswith("1024 cells, 30 layers")
    assert facts["build"] == "0 (unknown) with GNU 12.2.0 for Linux x86_64"
    assert facts["system"].startswith("n_threads = 1")
    assert "offloaded_layers" not in facts


def test_layers_on_a_gpu_are_told_so_that_a_draft_which_displaces_them_is_seen():
    log = "0.1 I load_tensors: offloaded 28/31 layers to GPU\n0.2 I load_tensors: offloaded 2/2 layers to GPU\n"
    assert llamacpp_boot.facts(log)["offloaded_layers"] == "28/31"


def test_what_the_log_tells_is_among_the_settings():
    identity = LLAMA.identity(Answers({"/slots": [{"speculative": False}]}, MORE + USUAL))
    assert identity.settings["flash_attention"] == "enabled"
    assert identity.settings["devices"] == "CPU : AMD EPYC"


@pytest.mark.parametrize(("on", "k"), [(True, 7), (False, None)])
def test_a_draft_length_that_was_cut_is_in_force_as_cut(on, k):
    identity = LLAMA.identity(Answers({"/slots": [{"speculative": on}], "/metrics": ""}, CLAMPED))
    assert identity.draft_tokens == k


def test_an_arm_whose_draft_length_was_cut_is_refused_before_it_served():
    identity = LLAMA.identity(Answers({"/slots": [{"speculative": True}], "/metrics": ""}, CLAMPED))
    asked = Arm(name="c", role=Role.CANDIDATE, method=Method.DFLASH, draft="d", draft_tokens=12)
    found = LLAMA.refusal(identity, asked, CLAMPED)
    assert found is not None
    assert "asks for 12 draft tokens, in force are 7" in found.reason
    assert LLAMA.refusal(identity, asked.model_copy(update={"draft_tokens": 7}), CLAMPED) is None


@pytest.mark.parametrize(
    ("log", "word"),
    [
        ("E srv    load_model: failed to load draft model, 'd.gguf'", "candidates[].draft"),
        ("W llama_init_from_model: context type MTP requested but model doesn't contain MTP layers", "nextn"),
        ("E srv    load_model: failed to load model, 'm.gguf'", "target.model"),
        ("error while handling argument: address already in use", "port"),
    ],
)
def test_advice_after_a_failed_start_tells_draft_and_target_apart(log, word):
    assert word in LLAMA.advice(log)


def test_more_is_logged_unless_that_would_show_a_piece_of_the_key():
    assert LLAMA.default_env() == {"LLAMA_ARG_LOG_VERBOSITY": "4"}
    keyed = LlamaCppAdapter(Engine(kind=EngineKind.LLAMACPP, api_key_env="MY_KEY"), Target(model="m"))
    assert keyed.default_env() == {}
