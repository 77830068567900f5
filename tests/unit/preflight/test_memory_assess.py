"""Every arm of a plan on a given device: what fits, what a draft costs, and what is refused before the first boot."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.preflight.small_memory import EAGLE, FILES, GIB, LLAMA_8B, NGRAM, assess, of, plan, read

from specdyno.errors import PlanError
from specdyno.preflight import gate
from specdyno.preflight.memory import assess as memory
from specdyno.preflight.memory.devices import Device, DeviceKind
from specdyno.preflight.schema import Grade

pytestmark = pytest.mark.usefixtures("small_host")
BOOTS = json.loads((Path(__file__).parents[2] / "data" / "memory" / "vllm_boots.json").read_text())["boots"]


@pytest.mark.parametrize("boot", BOOTS, ids=lambda boot: boot["boot"])
def test_the_estimate_is_what_the_live_engine_said(boot):
    drafts = {
        "eagle3": {"method": "eagle3", "draft": "one", "draft_tokens": [3]},
        "dflash": {"method": "dflash", "draft": "two", "draft_tokens": [7]},
        "dspark": {"method": "dspark", "draft": "two", "draft_tokens": [7]},
        "gemma4_mtp": {"method": "gemma4_mtp", "draft": "one", "draft_tokens": [3]},
    }
    model = "gemma" if boot["boot"].startswith("gemma") else "smol"
    found = assess(
        model,
        drafts.get(boot["method"], NGRAM),
        args={"max-model-len": boot["max_model_len"], "max-num-seqs": 4},
        env={"VLLM_CPU_KVCACHE_SPACE": str(boot["cpu_kvcache_space_gib"])},
    )
    tokens, concurrency = boot["log"].replace(",", "").split(" tokens")[0], boot["log"].rsplit(" ", 1)[1]
    arm = found.arms[1 if boot["method"] else 0]
    assert f"CPU KV cache size: {arm.kv_tokens}" == tokens
    assert f"{arm.concurrency:.2f}x" == concurrency


def test_the_cache_gets_what_share_and_weights_leave_it():
    found = assess("big", EAGLE, given="80 GiB", args={"max-model-len": 8192})
    baseline, candidate = found.arms
    # 0.92 x 80 GiB - 16 GiB of weights; 131,072 B per token in blocks of 16; the draft brings 1 GiB and a 33rd layer.
    share = int(80 * GIB * 0.92)
    assert baseline.budget_bytes == share - 16 * GIB
    assert baseline.kv_bytes_per_token == 131_072
    assert baseline.kv_tokens == baseline.budget_bytes // (16 * 131_072) * 16
    assert (candidate.draft_bytes, candidate.budget_bytes) == (GIB, share - 17 * GIB)
    assert candidate.kv_bytes_per_token == 131_072 * 33 // 32
    assert candidate.kv_tokens < baseline.kv_tokens
    assert candidate.concurrency < baseline.concurrency
    assert baseline.headroom_bytes == baseline.budget_bytes - 8192 * 131_072
    assert (baseline.fits, candidate.fits) == (True, True)
    assert "at most" in baseline.notes[0]
    assert candidate.lookahead_tokens == 3


def test_weights_and_heads_are_split_over_ranks():
    found = assess("big", given="24 GiB", args={"tensor-parallel-size": 4, "max-model-len": 8192})
    assert found.arms[0].weights_bytes == 4 * GIB
    assert found.arms[0].kv_bytes_per_token == 131_072 // 4
    assert found.arms[0].device == "given by the plan, the smallest of 4"


def test_a_target_that_is_too_large_is_refused_with_figures_and_a_fix():
    found = assess("big", EAGLE, given="16 GiB", args={"max-model-len": 8192})
    with pytest.raises(PlanError) as refused:
        gate.pass_or_refuse(found.checks, (), known=memory.NAMES)
    text = str(refused.value)
    assert "weights 16.00 GiB, draft none" in text
    assert "draft 1.00 GiB" in text
    assert "lower max-model-len" in text
    assert "accept: [memory_fits]" in text
    assert gate.pass_or_refuse(found.checks, ("memory_fits",), known=memory.NAMES)


def test_one_request_of_full_length_must_fit():
    # 18 GiB x 0.92 - 16 GiB leave 0.56 GiB, and 131,072 tokens of 131,072 B take 16 GiB.
    found = assess("big", given="18 GiB")
    (check,) = found.checks
    assert (check.rule, check.grade) == ("memory_fits", Grade.FAIL)
    assert found.arms[0].concurrency < 1
    assert found.arms[0].headroom_bytes < 0
    assert assess("big", given="18 GiB", args={"max-model-len": 4096}).checks[0].grade is Grade.PASS


def test_a_draft_can_be_what_does_not_fit():
    found = assess("big", EAGLE, given="18 GiB", args={"max-model-len": 4096})
    assert [arm.fits for arm in found.arms] == [True, False]
    assert [(check.arm, check.grade) for check in found.checks] == [
        ("baseline", Grade.PASS), ("eagle3-k3", Grade.FAIL),
    ]  # fmt: skip


def test_fewer_requests_than_a_load_runs_is_a_warning():
    found = assess("big", given="24 GiB", args={"max-model-len": 32_768}, concurrency=64)
    warned = next(check for check in found.checks if check.rule == "memory_concurrency")
    assert warned.grade is Grade.WARN
    assert "a load runs 64" in warned.seen
    assert warned.arm == "baseline, ngram-k3"


def test_memory_that_others_hold_is_a_warning(gpus):
    gpus(Device(DeviceKind.NVIDIA, "NVIDIA H100", 80 * GIB, 20 * GIB))
    found = assess("big", args={"max-model-len": 8192})
    assert found.arms[0].fits is True
    warned = next(check for check in found.checks if check.rule == "memory_free")
    assert "73.60 GiB" in warned.seen
    assert "20.00 GiB are free" in warned.seen


def test_the_smallest_device_in_use_counts(gpus):
    gpus(*(Device(DeviceKind.NVIDIA, f"GPU {size}", size * GIB, size * GIB) for size in (80, 40, 24)))
    assert assess("big").arms[0].device == "GPU 80"
    assert assess("big", args={"tensor-parallel-size": 2}).arms[0].device == "GPU 40, the smallest of 2"


def test_without_a_figure_for_a_remote_engine_nothing_is_guessed():
    found = assess("big", EAGLE, command=["ssh", "host", "vllm", "serve"])
    assert {check.grade for check in found.checks} == {Grade.UNKNOWN}
    assert all(arm.fits is None and arm.kv_tokens is None for arm in found.arms)
    assert found.arms[0].kv_bytes_per_token == 131_072  # that much the files say
    given = assess("big", command=["ssh", "host", "vllm", "serve"], given="80 GiB", args={"max-model-len": 8192})
    assert given.arms[0].fits is True


def test_the_cpu_build_takes_its_share_of_the_host():
    found = assess("smol", args={"max-model-len": 1024})
    assert found.arms[0].budget_bytes == int(64 * GIB * 0.92) - GIB
    assert {check.rule for check in found.checks} == {"memory_fits", "memory_free"}  # 58.9 GiB asked for, 48 free


def test_a_space_beyond_the_host_s_memory_is_refused():
    found = assess("smol", env={"VLLM_CPU_KVCACHE_SPACE": "70"})
    assert found.checks[0].grade is Grade.FAIL


def test_the_variable_may_stand_in_the_environment():
    found = assess("smol", args={"max-model-len": 1024}, environment={"VLLM_CPU_KVCACHE_SPACE": "2"})
    assert found.arms[0].kv_tokens == 93_184
    assert assess(
        "smol", args={"max-model-len": 1024}, environment={"VLLM_CPU_KVCACHE_SPACE": "9"},
        env={"VLLM_CPU_KVCACHE_SPACE": "2"},
    ).arms[0].kv_tokens == 93_184  # fmt: skip


def test_native_mtp_adds_its_layers_to_its_own_arm_only():
    found = assess(
        "smol", {"method": "mtp", "draft_tokens": [2]}, args={"max-model-len": 1024},
        env={"VLLM_CPU_KVCACHE_SPACE": "2"},
    )  # fmt: skip
    assert [arm.kv_tokens for arm in found.arms] == [93_184, 90_112]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"kv-cache-dtype": "fp8"}, 65_536),
        ({"kv-cache-dtype": "auto", "dtype": "float32"}, 262_144),
        ({"kv_cache_dtype": "bfloat16"}, 131_072),
        ({"kv-cache-dtype": "nvfp4"}, None),
        ({"pipeline-parallel-size": 2}, None),
    ],
)
def test_the_type_of_the_cache(args, expected):
    arm = assess("big", given="80 GiB", args={"max-model-len": 4096, **args}).arms[0]
    assert arm.kv_bytes_per_token == expected
    assert (arm.fits is None) == (expected is None)


def test_a_checkpoint_that_asks_for_a_quantised_cache_is_not_guessed(monkeypatch):
    asks = {**LLAMA_8B, "quantization_config": {"kv_cache_scheme": {"num_bits": 8}}}
    monkeypatch.setitem(FILES, "quantised", of(asks))
    assert "set kv-cache-dtype" in assess("quantised", given="80 GiB").arms[0].notes[0]
    told = assess("quantised", given="80 GiB", args={"kv-cache-dtype": "fp8"})
    assert told.arms[0].kv_bytes_per_token == 65_536


def test_a_context_that_vllm_would_stretch_is_not_guessed(monkeypatch):
    stretched = {**LLAMA_8B, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    monkeypatch.setitem(FILES, "stretched", of(stretched))
    assert "set max-model-len" in assess("stretched", given="80 GiB").arms[0].notes[0]


def test_a_fixed_cache_leaves_the_share_out():
    found = assess("big", given="80 GiB", args={"kv-cache-memory-bytes": "8G", "max-model-len": 8192})
    assert found.arms[0].budget_bytes == 8 * GIB
    assert found.arms[0].notes == ()
    assert not assess("big", given="20 GiB", args={"kv-cache-memory-bytes": "8G"}).arms[0].fits


def test_files_that_cannot_be_read_leave_an_unknown():
    for name in ("missing", "unreachable"):
        found = assess(name, given="80 GiB")
        assert {check.grade for check in found.checks} == {Grade.UNKNOWN}
    found = assess("big", {**EAGLE, "draft": "missing"}, given="80 GiB", args={"max-model-len": 8192})
    assert [check.grade for check in found.checks] == [Grade.PASS, Grade.UNKNOWN]
    assert found.arms[1].draft_bytes is None


def test_weights_without_headers_leave_an_unknown(monkeypatch):
    monkeypatch.setitem(FILES, "bare", replace(FILES["big"], tensors=None))
    found = assess("bare", given="80 GiB")
    assert (found.arms[0].fits, found.arms[0].weights_bytes) == (None, None)


def test_each_checkpoint_is_read_once():
    asked = []

    def counting(source, revision):
        asked.append(source)
        return read(source, revision)

    lengths = {**EAGLE, "draft_tokens": [1, 3, 5]}
    memory.assess(plan("big", lengths, given="80 GiB"), read=counting, environment={})
    assert sorted(asked) == ["big", "eagle"]


def test_a_simulated_engine_takes_nothing():
    assert assess("sim", kind="simulated") == memory.Assessment()


def test_sizes_are_whole_numbers():
    for arm in assess("big", EAGLE, given="80 GiB").arms:
        sizes = [getattr(arm, name) for name in arm.__dataclass_fields__ if name.endswith(("_bytes", "_tokens"))]
        assert all(size is None or isinstance(size, int) for size in sizes)
        assert math.isfinite(arm.concurrency)
