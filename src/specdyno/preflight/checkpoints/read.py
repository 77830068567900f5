"""Any checkpoint that a plan can name, read from its files alone.

`read` decides what the name means, a folder or file here or an id on the hub, as the engines do: what exists on this
machine goes first. No weight is loaded, and nothing but names, texts and headers is fetched.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from specdyno.errors import PlanError
from specdyno.preflight.checkpoints import gguf, huggingface, remote
from specdyno.preflight.checkpoints.files import FolderFiles, wrong
from specdyno.preflight.checkpoints.schema import Checkpoint

_HUB_ID = re.compile(r"(?:[\w.-]+/)?[\w.-]+")


def read(source: str, *, revision: str | None = None, place: str = "") -> Checkpoint:
    """The checkpoint that `source` names: a folder, a GGUF file, or "org/name" and "org/name:file.gguf" on the hub.

    Raises PlanError, standing at `place` (a key path of the plan), for what cannot be a checkpoint: nothing there, a
    broken file, a repository that is missing or gated. Raises `hub.Unreachable` where the hub cannot be asked.
    """
    try:
        return _read(source, revision)
    except PlanError as error:
        problems = [dataclasses.replace(problem, place=problem.place or place) for problem in error.problems]
        raise PlanError(problems, error.source) from error


def _read(source: str, revision: str | None) -> Checkpoint:
    path = Path(source).expanduser()
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except (OSError, ValueError) as error:  # a name that no file system takes
        raise wrong(f"{source!r} cannot be a path or a hub id", 'Name a folder, a GGUF file, or "org/name"') from error
    if exists:
        found = _folder(path, source) if is_folder else _file(path, source)
        return found if revision is None else _unpinned(found, revision)
    if _means_path(source):
        raise wrong(f"{source} does not exist", "Correct the path")
    return remote.read(source, revision=revision)


def _means_path(source: str) -> bool:
    """Whether a name that is not there can only have been meant as a path."""
    named, colon, _ = source.partition(":")
    is_id = _HUB_ID.fullmatch(named) and not source.startswith((".", "~"))
    return not is_id or (not colon and named.endswith(".gguf"))


def _folder(path: Path, source: str) -> Checkpoint:
    files = FolderFiles(path)
    names = files.names()
    if huggingface.CONFIG not in names and (models := gguf.models_among(names)):
        if len(models) > 1:
            listed = ", ".join(models[:4])
            raise wrong(f"{path} holds {len(models)} GGUF files ({listed})", "Name the one that the engine will load")
        return gguf.read(path / models[0], source=source)
    return huggingface.read(files, source=source)


def _file(path: Path, source: str) -> Checkpoint:
    if path.suffix in (".safetensors", ".bin", ".json"):
        raise wrong(f"{source} is one file of a checkpoint", f"Name its folder, {path.parent}")
    return gguf.read(path, source=source)


def _unpinned(found: Checkpoint, revision: str) -> Checkpoint:
    gap = f"revision {revision} says nothing about files on this machine: they are read as they are"
    return dataclasses.replace(found, gaps=(*found.gaps, gap))
