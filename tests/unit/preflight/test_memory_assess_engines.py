"""The memory of arms where llama.cpp allocates it, and an upper bound where the engine is not modelled."""

from __future__ import annotations

import pytest
from tests.unit.preflight.small_memory import EAGLE, GIB, assess

from specdyno.preflight.memory.devices import Device, DeviceKind
from specdyno.preflight.schema import Grade

pytestmark = pytest.mark.usefixtures("small_host")


def test_llamacpp_allocates_its_context_at_once():
    draft = {"method": "draft_model", "draft": "gguf", "draft_tokens": [4]}
    found = assess("gguf", draft, kind="llamacpp", args={"ctx-size": 4096, "parallel": 2})
    baseline, candidate = found.arms
    # 30 layers x 3 heads x (64 + 64) x 2 B = 23,040 B, 4,096 of them; the draft's context is as long.
    assert (baseline.kv_bytes_per_token, baseline.budget_bytes) == (23_040, 94_371_840)
    assert (baseline.kv_tokens, baseline.concurrency, baseline.max_model_len) == (4096, 2.0, 2048)
    assert candidate.budget_bytes == 2 * baseline.budget_bytes
    assert candidate.kv_tokens == baseline.kv_tokens
    assert candidate.headroom_bytes == 64 * GIB - 2 * 100 * 2**20 - 2 * 94_371_840
    assert candidate.fits


@pytest.mark.parametrize(
    ("args", "tokens", "slots", "longest"),
    [
        ({}, 8192, 1.0, 8192),  # four slots share one pool of the trained length
        ({"ctx-size": 1000}, 1024, 1.0, 1024),
        ({"c": 1000, "np": 4}, 1024, 4.0, 256),
        ({"ctx-size": 5000, "parallel": 4}, 5120, 4.0, 1280),
        ({"ctx-size": 4096, "parallel": 4, "kv-unified": True}, 4096, 1.0, 4096),
    ],
)
def test_llamacpp_pads_its_context(args, tokens, slots, longest):
    arm = assess("gguf", kind="llamacpp", args=args).arms[0]
    assert (arm.kv_tokens, arm.concurrency, arm.max_model_len) == (tokens, slots, longest)


def test_llamacpp_s_cache_types():
    arm = assess("gguf", kind="llamacpp", args={"ctx-size": 4096, "cache-type-k": "q8_0", "ctv": "q4_0"}).arms[0]
    # Keys 34 bytes for 32 elements, values 18: 30 x 192 x (34 + 18) / 32.
    assert arm.kv_bytes_per_token == 9360
    unknown = assess("gguf", kind="llamacpp", args={"cache-type-k": "q2_k"}).arms[0]
    assert unknown.kv_bytes_per_token is None


def test_llamacpp_s_windowed_layers_keep_window_and_batch():
    arm = assess("mixed", kind="llamacpp", args={"ctx-size": 8192, "parallel": 1}).arms[0]
    # 5 layers of 512 + 512 cells, one of 8,192; 1 head x 512 x 2 B each.
    assert arm.budget_bytes == (5 * 1024 + 8192) * 1024
    shared = assess("mixed", kind="llamacpp", args={"ctx-size": 8192, "parallel": 4, "kv-unified": True}).arms[0]
    assert shared.budget_bytes == (5 * (4 * 512 + 512) + 8192) * 1024


def test_llamacpp_beyond_the_host_is_refused_and_beyond_a_gpu_is_not(gpus):
    args = {"ctx-size": 4_000_000}
    assert assess("gguf", kind="llamacpp", args=args).checks[0].grade is Grade.FAIL
    gpus(Device(DeviceKind.NVIDIA, "small", 8 * GIB, 8 * GIB))
    found = assess("gguf", kind="llamacpp", args=args)
    assert found.checks[0].grade is Grade.UNKNOWN  # what does not fit is moved to the host
    assert assess("gguf", kind="llamacpp", args={**args, "ngl": 0}).checks[0].grade is Grade.FAIL


def test_other_engines_get_an_upper_bound_from_a_given_figure():
    found = assess("big", EAGLE, kind="sglang", given="80 GiB", args={"mem-fraction-static": 0.8, "tp-size": 1})
    baseline, candidate = found.arms
    assert baseline.kv_tokens == (int(80 * GIB * 0.8) - 16 * GIB) // 131_072
    assert candidate.kv_tokens < baseline.kv_tokens
    assert {check.grade for check in found.checks if check.rule == "memory_fits"} == {Grade.UNKNOWN}
    assert "upper bound" in baseline.notes[-1]


def test_other_engines_are_refused_only_where_the_weights_alone_do_not_fit():
    assert assess("big", kind="sglang", given="15 GiB").checks[0].grade is Grade.FAIL
    assert assess("big", kind="sglang").checks[0].grade is Grade.UNKNOWN
