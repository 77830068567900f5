"""What the files of a checkpoint say, before anything is loaded.

Owns the typed facts that pair and memory checks read. A fact that no file states is None or absent, and `gaps` says
why; nothing here is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Format(StrEnum):
    HUGGING_FACE = "hugging_face"  # config.json, tokenizer files, safetensors
    GGUF = "gguf"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor's header. `shape` is row-major, as torch prints it (a GGUF's dimensions are reversed)."""

    name: str
    dtype: str  # as the file spells it: "BF16", "F8_E4M3", "Q4_1", ...
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer as far as pairs need it. `ids` maps token text to id, added tokens included."""

    ids: Mapping[str, int] = field(repr=False)
    kind: str | None = None  # "BPE", "Unigram", a GGUF's tokenizer.ggml.model, ...
    bos: str | None = None
    eos: str | None = None
    sha256: str | None = None  # of the tokenizer's file, or of the tokens in a GGUF


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A target or a draft from its files alone.

    `config` is config.json as it stands, or the metadata of a GGUF (keys as written, long arrays left out). `tensors`
    is None where no header could be read, with the reason in `gaps`.
    """

    source: str  # as the plan names it
    format: Format
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor] | None = None
    tokenizer: Tokenizer | None = None
    chat_template_sha256: str | None = None
    shows_tools: bool | None = None  # whether a chat template of it speaks of tools; None: it has none, or it is unread
    revision: str | None = None  # commit of the hub's snapshot
    gaps: tuple[str, ...] = ()  # what could not be read, and why, one sentence each

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's own configuration: `text_config` of a multimodal wrapper, else the whole."""
        inner = self.config.get("text_config")
        return inner if isinstance(inner, Mapping) else self.config

    @property
    def model_type(self) -> str | None:
        """Outer `model_type`, or `general.architecture` of a GGUF."""
        key = "general.architecture" if self.format is Format.GGUF else "model_type"
        value = self.config.get(key)
        return value if isinstance(value, str) else None

    @property
    def architectures(self) -> tuple[str, ...]:
        listed = self.config.get("architectures")
        return tuple(str(name) for name in listed) if isinstance(listed, list) else ()

    @property
    def weight_bytes(self) -> int | None:
        """Sum over all tensors, quantisation scales included."""
        return None if self.tensors is None else sum(tensor.size_bytes for tensor in self.tensors.values())
