"""Devices that the estimate of memory is told, whatever runs the test."""

from __future__ import annotations

import pytest
from tests.unit.preflight.small_memory import GIB

from specdyno.preflight.memory import assess as memory
from specdyno.preflight.memory.devices import Device, DeviceKind


@pytest.fixture
def small_host(monkeypatch):
    """A host of 64 GiB without a GPU, whatever runs the test."""
    monkeypatch.setattr(memory.devices, "accelerators", lambda variables: ())
    host = Device(DeviceKind.CPU, "host memory", 64 * GIB, 48 * GIB)
    monkeypatch.setattr(memory.devices, "processor", lambda one_node: host)


@pytest.fixture
def gpus(monkeypatch):
    def have(*devices):
        monkeypatch.setattr(memory.devices, "accelerators", lambda variables: devices)

    return have
