"""What a draft needs of its target: its shape, its embeddings (also its output head) and its last norm.

Only a Llama-like target with tied embeddings in one file is read; anything else is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from lab.train.work import WorkError
from safetensors import safe_open
from torch import Tensor


@dataclass(frozen=True)
class Target:
    """`embeddings` (V, H) and `norm` (H), the weights before the output head, in float32."""

    folder: Path
    config: dict[str, object]
    embeddings: Tensor
    norm: Tensor

    @property
    def hidden(self) -> int:
        return self.embeddings.shape[1]

    @property
    def rope_theta(self) -> float:
        return float(self.config["rope_parameters"]["rope_theta"])

    @property
    def eps(self) -> float:
        return tidy(self.config["rms_norm_eps"])


def tidy(value: float) -> float:
    """A float32 that went through JSON, as it was meant: 9.99999974e-06 is 1e-05."""
    return float(f"{value:.6g}")


def auxiliary_layers(layers: int) -> tuple[int, int, int]:
    """After how many layers a draft listens: vLLM's default for EAGLE-3, early, middle and late."""
    return (2, layers // 2, layers - 3)


def read(folder: Path) -> Target:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != "llama" or not config.get("tie_word_embeddings"):
        raise WorkError(f"{folder}: only a Llama target with tied embeddings can be trained for here")
    config.setdefault("rope_parameters", {"rope_theta": config.get("rope_theta", 10000.0), "rope_type": "default"})
    with safe_open(folder / "model.safetensors", "pt") as file:
        embeddings = file.get_tensor("model.embed_tokens.weight").to(torch.float32)
        norm = file.get_tensor("model.norm.weight").float()
    return Target(folder, config, embeddings, norm)
