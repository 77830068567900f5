"""`check` shows the memory of every arm and refuses what cannot fit; flags are read in the engine's spellings."""

from __future__ import annotations

import doctest
import io
from importlib import import_module

import pytest
from rich.console import Console
from tests.unit.preflight import small_checkpoint

from specdyno import flow, screens
from specdyno.errors import PlanError
from specdyno.preflight.memory import flags

PLAN = """
study: memory
target: {model: model}
engine: {kind: vllm, command: ["true"], args: {max-model-len: 64}}
candidates: [{method: ngram, draft_tokens: [3]}]
workload:
  sampling: {temperature: 0.0}
  classes: [{name: code, prompts: "builtin:code", share: 1, max_tokens: 16}]
loads: [{name: one, concurrency: 1, window: 10s}]
objectives: [{name: one, load: one, measure: time_per_job}]
preflight: {device_memory: @GIVEN@}
"""


@pytest.fixture
def check(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 1.0)
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    small_checkpoint.folder(tmp_path / "model")

    def run(given):
        (tmp_path / "plan.yaml").write_text(PLAN.replace("@GIVEN@", given))
        return flow.check(tmp_path / "plan.yaml")

    return run


def test_check_shows_what_each_arm_takes(check):
    found = check("1 MiB")
    # 2 layers x 2 heads x (2 + 2) x 2 B; 0.92 MiB less 112 B of weights holds 1,883 blocks of 16.
    assert [arm.kv_bytes_per_token for arm in found.memory] == [32, 32]
    assert found.memory[0].weights_bytes == (6 * 8 + 8) * 2
    assert found.memory[0].kv_tokens == (int(2**20 * 0.92) - 112) // (16 * 32) * 16
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(screens.checked(found))
    shown = console.file.getvalue()
    assert "worked out from the files, not measured" in shown
    assert f"{found.memory[0].kv_tokens:,}" in shown


def test_what_cannot_fit_is_refused_before_any_boot(check):
    with pytest.raises(PlanError) as refused:
        check("1 KiB")
    assert "weights 112 B" in str(refused.value)
    assert "accept: [memory_fits]" in str(refused.value)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"max-model-len": 4096}, 4096),
        ({"max_model_len": "32k"}, 32_000),
        ({"max-model-len": "32K"}, 32_768),
        ({"max-model-len": "auto"}, None),
        ({"max-model-len": -1}, None),
        ({"max-model-len": True}, None),
        ({}, None),
    ],
)
def test_numbers_in_the_engine_s_notation(stated, expected):
    assert flags.whole(stated, "max-model-len") == expected


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"enable-prefix-caching": None}, True),
        ({"enable_prefix_caching": True}, True),
        ({"enable-prefix-caching": False}, None),
        ({"no-enable-prefix-caching": True}, False),
        ({"no_enable_prefix_caching": None}, False),
        ({}, None),
    ],
)
def test_switches_in_both_senses(stated, expected):
    assert flags.switch(stated, "enable-prefix-caching") is expected


@pytest.mark.parametrize(
    "name",
    ["preflight.memory.assess", "preflight.memory.flags", "preflight.memory.layers", "preflight.memory.pool",
     "preflight.memory.weights", "records.memory", "engine.capacity"],
)  # fmt: skip
def test_examples_run(name):
    found = doctest.testmod(import_module(f"specdyno.{name}"))
    assert found.attempted
    assert not found.failed
