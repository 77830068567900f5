"""What a study is measured with, as far as files and drivers tell: devices, and what identifies each checkpoint.

Goes into the study's header and so into the fingerprint: another revision, tokenizer, chat template or driver is
another study. Weights are not read, so a checkpoint is identified by its configuration and its tensors' headers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

import orjson
import pynvml

from specdyno.errors import PlanError
from specdyno.plan.schema import Plan
from specdyno.preflight.checkpoints.hub import Unreachable
from specdyno.preflight.checkpoints.schema import Checkpoint
from specdyno.preflight.memory import devices

Read = Callable[[str, str | None], Checkpoint]


def origins(plan: Plan, *, read: Read) -> dict[str, Any]:
    """JSON: the host's GPUs with their driver, and target and drafts by the name that the plan gives them.

    A checkpoint that cannot be read here (another host's, no network) stands with the reason alone.
    """
    named = {plan.target.model: plan.target.revision}
    named |= {part.draft: None for part in plan.candidates if part.draft is not None}
    found = devices.accelerators(dict(os.environ) | plan.engine.env)
    return {
        "devices": [{"kind": str(one.kind), "name": one.name, "total_bytes": one.total_bytes} for one in found],
        "driver": nvidia_driver(),
        "checkpoints": {source: _described(source, revision, read) for source, revision in named.items()},
    }


def nvidia_driver() -> str | None:
    """The version of NVIDIA's driver; None without one."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        version = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    return version.decode() if isinstance(version, bytes) else str(version)


def headers_sha256(checkpoint: Checkpoint) -> str | None:
    """SHA-256 over configuration, names, types and shapes of all tensors; None where no header could be read."""
    if checkpoint.tensors is None:
        return None
    tensors = [[one.name, one.dtype, list(one.shape)] for _, one in sorted(checkpoint.tensors.items())]
    whole = {"config": dict(checkpoint.config), "tensors": tensors}
    text = orjson.dumps(whole, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
    return hashlib.sha256(text).hexdigest()


def _described(source: str, revision: str | None, read: Read) -> dict[str, Any]:
    try:
        checkpoint = read(source, revision)
    except (PlanError, Unreachable) as error:
        return {"not_read": str(error)}
    return {
        "format": str(checkpoint.format),
        "model_type": checkpoint.model_type,
        "revision": checkpoint.revision,
        "headers_sha256": headers_sha256(checkpoint),
        "weight_bytes": checkpoint.weight_bytes,
        "tokenizer_sha256": checkpoint.tokenizer.sha256 if checkpoint.tokenizer is not None else None,
        "chat_template_sha256": checkpoint.chat_template_sha256,
    }
