"""A target in small, of SmolLM2's names and form, and a cache of its own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lab import checkpoints
from specdyno.demo import eightbit

LAYERS, HIDDEN, KV, VOCABULARY = 8, 576, 192, 64


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDYNO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight layers with their attention only, random; the real target takes torch to be made."""
    folder = tmp_path / "SmolLM2-135M-Instruct-12345678"
    folder.mkdir()
    draw = np.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        for name, rows in {"q": HIDDEN, "k": KV, "v": KV, "o": HIDDEN}.items():
            shapes[f"model.layers.{layer}.self_attn.{name}_proj.weight"] = (rows, HIDDEN)
    tensors = {name: ("BF16", draw.integers(0x3C00, 0x3F00, shape, np.uint16)) for name, shape in shapes.items()}
    eightbit.write(folder / "model.safetensors", tensors)
    config = {"model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "vocab_size": VOCABULARY}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(checkpoints, "smollm2", lambda: folder)
    return folder
