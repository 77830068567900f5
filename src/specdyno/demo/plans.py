"""The demo's plans, filled in for this machine."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

from specdyno.demo import checkpoints
from specdyno.plan.schema import EngineKind

_LOOK = {False: "4", True: "1"}
_WINDOW = {EngineKind.VLLM: {False: "15s", True: "8s"}, EngineKind.LLAMACPP: {False: "20s", True: "8s"}}


def render(kind: EngineKind, *, quick: bool) -> str:
    """The plan as YAML, with the model, the draft and the windows named. Raises EngineError without the model."""
    text = files("specdyno.demo").joinpath(f"{kind}.yaml").read_text(encoding="utf-8")
    values = {"window": _WINDOW[kind][quick], "look": _LOOK[quick]}
    if kind is EngineKind.VLLM:
        values |= {"target": str(checkpoints.target_folder()), "draft": str(checkpoints.draft_folder())}
    else:
        values |= {"target": str(checkpoints.target_gguf())}
    for name, value in values.items():
        text = text.replace(f'"@{name}@"', value if value.isdigit() else _quoted(value))
    preload = openmp_library()
    if kind is EngineKind.VLLM and preload is not None:
        text = text.replace(
            'VLLM_CPU_KVCACHE_SPACE: "2"', f'VLLM_CPU_KVCACHE_SPACE: "2", LD_PRELOAD: {_quoted(str(preload))}'
        )
    return text


def _quoted(text: str) -> str:
    """A YAML string on one line, whatever the text holds."""
    return json.dumps(text, ensure_ascii=False)


def openmp_library() -> Path | None:
    """Intel's OpenMP runtime of this environment, which vLLM asks to be preloaded on a CPU."""
    path = Path(sys.prefix) / "lib" / "libiomp5.so"
    return path if path.is_file() else None
