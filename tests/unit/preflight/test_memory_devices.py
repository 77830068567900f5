"""Memory of devices: AMD's recorded answers, the processor's from a file tree, and what a variable leaves visible."""

from __future__ import annotations

import json
from types import SimpleNamespace

import psutil
import pytest

from specdyno.preflight.memory import devices
from specdyno.preflight.memory.devices import Device, DeviceKind

MIB, GIB = 2**20, 2**30
# The two shapes that amd-smi's releases print.
LISTED = [
    {
        "gpu": 1,
        "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 49148, "unit": "MB"}},
    },
    {
        "gpu": 0,
        "usage": {"gfx_activity": {"value": 0, "unit": "%"}, "mm_activity": "N/A"},
        "mem_usage": {
            "total_vram": {"value": 196592, "unit": "MB"},
            "used_vram": {"value": 283, "unit": "MB"},
            "free_vram": {"value": 196309, "unit": "MB"},
        },
    },
]


@pytest.mark.parametrize("page", [LISTED, {"gpu_data": LISTED}])
@pytest.mark.parametrize("before", ["", "WARNING: User is missing the render group\n"])
def test_amd_smi_is_read_in_both_shapes(page, before):
    first, second = devices.read_amd(before + json.dumps(page))
    assert (first.kind, first.name, first.total_bytes) == (DeviceKind.AMD, "AMD GPU 0", 196592 * MIB)
    assert first.free_bytes == (196592 - 283) * MIB
    assert second.free_bytes == (196592 - 49148) * MIB


@pytest.mark.parametrize(
    "text",
    [
        "", "no devices", "[", "{}", '{"gpu_data": null}', "[1, null]", '[{"gpu": 0, "mem_usage": "N/A"}]',
        '[{"gpu": 0, "mem_usage": {"total_vram": "N/A"}}]',
        '[{"gpu": 0, "mem_usage": {"total_vram": {"value": "N/A", "unit": "MB"}}}]',
        '[{"gpu": 0, "mem_usage": {"total_vram": {"value": 5, "unit": "furlongs"}}}]',
        '[{"gpu": 0, "mem_usage": {"total_vram": {"value": true, "unit": "MB"}}}]',
    ],
)  # fmt: skip
def test_an_amd_answer_without_totals_is_no_device(text):
    assert devices.read_amd(text) == ()


def test_an_amd_device_that_does_not_say_what_is_used():
    (found,) = devices.read_amd('[{"mem_usage": {"total_vram": {"value": 16, "unit": "GB"}}}]')
    assert (found.total_bytes, found.free_bytes) == (16 * GIB, None)


def tree(root, *, node_kib=None, limit=None):
    node = root / "devices/system/node/node0"
    node.mkdir(parents=True)
    if node_kib is not None:
        lines = {"MemTotal": node_kib, "MemFree": 1000, "Active(file)": 20, "Inactive(file)": 3, "SReclaimable": 1}
        text = "".join(f"Node 0 {name}:  {size} kB\n" for name, size in lines.items())
        (node / "meminfo").write_text(text + "Node 0 HugePages_Total:     0\n")
    if limit is not None:
        group = root / "fs/cgroup"
        group.mkdir(parents=True)
        (group / "memory.max").write_text(limit)
    return root


@pytest.fixture
def host(monkeypatch):
    memory = SimpleNamespace(total=64 * GIB, available=48 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


@pytest.mark.usefixtures("host")
def test_the_host_s_memory(tmp_path):
    found = devices.processor(system=tree(tmp_path))
    assert (found.kind, found.total_bytes, found.free_bytes) == (DeviceKind.CPU, 64 * GIB, 48 * GIB)


@pytest.mark.usefixtures("host")
def test_a_container_s_limit_binds(tmp_path):
    found = devices.processor(system=tree(tmp_path, limit="8589934592\n"))
    assert (found.total_bytes, found.free_bytes) == (8 * GIB, 8 * GIB)


@pytest.mark.usefixtures("host")
def test_no_limit_is_no_limit(tmp_path):
    assert devices.processor(system=tree(tmp_path, limit="max\n")).total_bytes == 64 * GIB


@pytest.mark.usefixtures("host")
def test_one_node_counts_what_vllm_counts(tmp_path):
    found = devices.processor(one_node=True, system=tree(tmp_path, node_kib=4096))
    assert (found.total_bytes, found.free_bytes) == (4096 * 1024, (1000 + 20 + 3 + 1) * 1024)


@pytest.mark.usefixtures("host")
def test_a_host_without_nodes_counts_as_a_whole(tmp_path):
    assert devices.processor(one_node=True, system=tmp_path).total_bytes == 64 * GIB


GPUS = tuple(Device(DeviceKind.NVIDIA, f"GPU {place}", (place + 1) * GIB) for place in range(3))


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, ["GPU 0", "GPU 1", "GPU 2"]),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, ["GPU 2", "GPU 0"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "GPU-5206045b"}, ["GPU 0", "GPU 1", "GPU 2"]),
        ({"CUDA_VISIBLE_DEVICES": "7"}, []),
        ({"NVIDIA_VISIBLE_DEVICES": "1"}, ["GPU 1"]),
    ],
)
def test_a_variable_chooses_devices(monkeypatch, environment, names):
    monkeypatch.setattr(devices, "nvidia", lambda: GPUS)
    monkeypatch.setattr(devices, "amd", lambda: ())
    assert [one.name for one in devices.accelerators(environment)] == names


def test_amd_devices_are_asked_for_where_nvidia_has_none(monkeypatch):
    monkeypatch.setattr(devices, "nvidia", lambda: ())
    monkeypatch.setattr(devices, "amd", lambda: GPUS)
    assert [one.name for one in devices.accelerators({"HIP_VISIBLE_DEVICES": "1"})] == ["GPU 1"]


def test_a_host_without_a_driver_has_no_nvidia_device(monkeypatch):
    def no_driver():
        raise devices.pynvml.NVMLError_LibraryNotFound

    monkeypatch.setattr(devices.pynvml, "nvmlInit", no_driver)
    assert devices.nvidia() == ()


def test_nvidia_s_library_is_asked_for_each_device_and_closed(monkeypatch):
    closed = []
    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: closed.append(True),
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: b"NVIDIA H200" if handle else "NVIDIA H100",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=(handle + 1) * GIB, free=GIB // 2),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(devices.pynvml, name, answer)
    assert devices.nvidia() == (
        Device(DeviceKind.NVIDIA, "NVIDIA H100", GIB, GIB // 2),
        Device(DeviceKind.NVIDIA, "NVIDIA H200", 2 * GIB, GIB // 2),
    )
    assert closed == [True]


def test_amd_smi_that_is_not_installed_is_no_device(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert devices.amd() == ()


def test_amd_smi_is_run_and_read(monkeypatch, tmp_path):
    program = tmp_path / "amd-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(LISTED)}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert [one.name for one in devices.amd()] == ["AMD GPU 0", "AMD GPU 1"]
