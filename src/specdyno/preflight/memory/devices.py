"""The memory that an engine on this host can use, asked of the devices themselves.

NVIDIA through its management library, AMD through `amd-smi`'s JSON (written against recorded answers, not run here),
the processor's memory through psutil and the control group's limit. Nothing is guessed: no device means an empty list.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson
import psutil
import pynvml

_MIB = 1024 * 1024
_AMD_SMI = ("amd-smi", "metric", "--mem-usage", "--json")
_AMD_TIMEOUT_S = 20
_GROUP_LIMITS = ("fs/cgroup/memory.max", "fs/cgroup/memory/memory.limit_in_bytes")
_AVAILABLE = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")


class DeviceKind(StrEnum):
    NVIDIA = "nvidia"
    AMD = "amd"
    CPU = "cpu"
    GIVEN = "given"  # `preflight.device_memory` of the plan


@dataclass(frozen=True, slots=True)
class Device:
    kind: DeviceKind
    name: str
    total_bytes: int
    free_bytes: int | None = None  # None: not known


def accelerators(environment: dict[str, str]) -> tuple[Device, ...]:
    """The GPUs of this host that `environment` leaves visible, in the engine's order; empty where there are none."""
    found = _visible(nvidia(), environment, ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"))
    return found or _visible(amd(), environment, ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"))


def nvidia() -> tuple[Device, ...]:
    """Every NVIDIA device that the driver lists; empty without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(_nvidia_device(index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _nvidia_device(index: int) -> Device:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    name, memory = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetMemoryInfo(handle)
    text = name.decode() if isinstance(name, bytes) else str(name)
    return Device(DeviceKind.NVIDIA, text, int(memory.total), int(memory.free))


def amd() -> tuple[Device, ...]:
    """Every AMD device that `amd-smi` lists; empty where it is not installed or does not answer."""
    if shutil.which(_AMD_SMI[0]) is None:
        return ()
    try:
        answer = subprocess.run(_AMD_SMI, capture_output=True, timeout=_AMD_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return read_amd(answer.stdout.decode(errors="replace"))


def read_amd(text: str) -> tuple[Device, ...]:
    """Devices out of what `amd-smi metric --mem-usage --json` prints, in the order of its `gpu` numbers.

    A list of GPUs, or an object that holds it under `gpu_data`; warnings may stand before it. A GPU without its total
    is left out. The unit is spelled MB and means MiB.
    """
    begins = min((at for sign in "[{" if (at := text.find(sign)) >= 0), default=-1)
    try:
        page = orjson.loads(text[begins:]) if begins >= 0 else []
    except orjson.JSONDecodeError:
        return ()
    listed = page.get("gpu_data") if isinstance(page, dict) else page
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    found: list[Device] = []
    for row in sorted(rows, key=lambda row: row["gpu"] if isinstance(row.get("gpu"), int) else 0):
        usage = row.get("mem_usage")
        usage = usage if isinstance(usage, dict) else {}
        total, used = _amount(usage.get("total_vram")), _amount(usage.get("used_vram"))
        if total:
            free = total - used if used is not None else None
            found.append(Device(DeviceKind.AMD, f"AMD GPU {row.get('gpu', len(found))}", total, free))
    return tuple(found)


def _amount(cell: Any) -> int | None:
    value: Any
    value, unit = (cell.get("value"), cell.get("unit", "MB")) if isinstance(cell, dict) else (cell, "MB")
    scale = {"B": 1, "KB": 1024, "MB": _MIB, "GB": 1024 * _MIB}.get(str(unit))
    try:
        return int(float(value) * scale) if scale is not None and not isinstance(value, bool) else None
    except (TypeError, ValueError):
        return None


def processor(*, one_node: bool = False, system: Path = Path("/sys")) -> Device:
    """The host's memory, or what the control group of this process allows of it.

    `one_node`: only the NUMA node of the first processor that this process may use; vLLM binds its worker there.
    """
    memory = psutil.virtual_memory()
    total, free, name = memory.total, memory.available, "host memory"
    node = _first_node(system) if one_node else None
    if node is not None:
        total, free, name = node[0], min(free, node[1]), "memory of the first processor's node"
    limits = (found for path in _GROUP_LIMITS if (found := _whole_number(system / path)) is not None)
    total = min(total, *limits, total)
    return Device(DeviceKind.CPU, name, total, min(free, total))


def _first_node(system: Path) -> tuple[int, int] | None:
    """Total and available bytes of the node, as vLLM counts them (free, file pages and what can be reclaimed)."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    homes = [*(system / f"devices/system/cpu/cpu{cores[0]}").glob("node[0-9]*")] if cores else []
    node = homes[0].name if homes else "node0"
    try:
        lines = (system / f"devices/system/node/{node}/meminfo").read_text().splitlines()
    except OSError:
        return None
    cells = [line.split() for line in lines]
    sizes = {cell[2].rstrip(":"): int(cell[3]) * 1024 for cell in cells if len(cell) > 3 and cell[3].isdigit()}
    if "MemTotal" not in sizes:
        return None
    return sizes["MemTotal"], sum(sizes.get(name, 0) for name in _AVAILABLE)


def _whole_number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isascii() and text.isdigit() else None


def _visible(devices: tuple[Device, ...], environment: dict[str, str], names: Sequence[str]) -> tuple[Device, ...]:
    """The devices that a variable selects by number, in its order; all of them where it selects otherwise (by UUID)."""
    stated = next((environment[name] for name in names if name in environment), None)
    if stated is None or not devices:
        return devices
    parts = [part.strip() for part in stated.split(",")]
    if parts in ([""], ["-1"], ["none"], ["void"]):
        return ()
    if not all(part.isascii() and part.isdigit() for part in parts):
        return devices
    return tuple(devices[int(part)] for part in parts if int(part) < len(devices))
