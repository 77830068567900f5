"""A checkpoint on the hub: the cache first, then the network, then what the cache holds in part.

Owns that order and the choice of a GGUF in a repository that has several.
"""

from __future__ import annotations

import dataclasses

from specdyno.preflight.checkpoints import gguf, hub, huggingface
from specdyno.preflight.checkpoints.files import FolderFiles, wrong
from specdyno.preflight.checkpoints.hub import HubFiles, Unreachable
from specdyno.preflight.checkpoints.schema import Checkpoint, Format


def read(source: str, *, revision: str | None = None) -> Checkpoint:
    """The checkpoint "org/name" or "org/name:file.gguf". PlanError and `hub.Unreachable` as in `read.read`."""
    repository, _, file = source.partition(":")
    snapshot = hub.cached(repository, revision)
    if snapshot and (found := _whole(snapshot, source, file)):
        return found
    if hub.is_offline():
        return _in_part(snapshot, source, hub.offline(repository))
    try:
        files = HubFiles(repository, revision)
        return _from_hub(files, source, file)
    except Unreachable as error:
        return _in_part(snapshot or hub.cached(repository, revision), source, error)


def _whole(snapshot: FolderFiles, source: str, file: str) -> Checkpoint | None:
    names, commit = snapshot.names(), snapshot.folder.name
    if huggingface.CONFIG in names and not file:
        whole = huggingface.has_weights(snapshot)
        return huggingface.read(snapshot, source=source, revision=commit) if whole else None
    chosen = [name for name in gguf.models_among(names) if _means(name, file)]
    return gguf.read(snapshot.folder / chosen[0], source=source, revision=commit) if len(chosen) == 1 else None


def _in_part(snapshot: FolderFiles | None, source: str, error: Unreachable) -> Checkpoint:
    """What the cache holds of a checkpoint that cannot be asked for: its texts, without its tensors."""
    if snapshot is None or huggingface.CONFIG not in snapshot.names():
        raise error
    found = huggingface.read(snapshot, source=source, revision=snapshot.folder.name, weights=False)
    return dataclasses.replace(found, gaps=(*found.gaps, f"tensors are unknown: {error}"))


def _from_hub(files: HubFiles, source: str, file: str) -> Checkpoint:
    if huggingface.CONFIG in files.names() and not file:
        return huggingface.read(files, source=source, revision=files.revision)
    chosen = _one_gguf(files, file)
    if chosen is None:
        return huggingface.read(files, source=source, revision=files.revision)  # says what is missing
    gap = (
        f"{chosen} is not in the local cache, and a GGUF on the hub is not read from afar: fetch it to have it checked"
    )
    return Checkpoint(source=source, format=Format.GGUF, config={}, revision=files.revision, gaps=(gap,))


def _one_gguf(files: HubFiles, file: str) -> str | None:
    models = gguf.models_among(files.names() | files.nested)
    chosen = [name for name in models if _means(name, file)]
    if len(chosen) == 1 or (not models and not file):
        return chosen[0] if chosen else None
    state = f"holds {len(chosen)} GGUF files" if chosen else "holds no GGUF file"
    named = f" that {file!r} can mean" if file else ""
    listed = f" ({', '.join((chosen or models)[:4])})" if models else ""
    raise wrong(f"{files.place} {state}{named}{listed}", f'Name one as "{files.place}:FILE.gguf"')


def _means(name: str, file: str) -> bool:
    """Whether a file answers to what stands behind the colon: its name, llama.cpp's short type (Q4_K_M), or nothing."""
    return not file or name == file or (not file.endswith(".gguf") and file.lower() in name.lower())
