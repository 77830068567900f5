"""The driver: active only while Triton interprets (TRITON_INTERPRET=1)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase


class InterpretingDriver(DriverBase):
    """One device, the CPU; its kernels are Python functions over tensors in main memory."""

    @classmethod
    def is_active(cls) -> bool:
        return os.environ.get("TRITON_INTERPRET") == "1"

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int | None = None) -> int:
        return 0

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError(f"nothing is compiled here, so {ty} has no C++ type")

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        return _once


def _once(kernel_call: Callable[[], object], *, quantiles: Sequence[float], **_: object) -> list[float]:
    """One timing in ms for every quantile: interpreted kernels are too slow, and too alike, to be tuned."""
    begin = time.perf_counter()
    kernel_call()
    return [1e3 * (time.perf_counter() - begin)] * len(quantiles)
