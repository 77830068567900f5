"""A checkpoint in Hugging Face's layout: config.json, tokenizer files, safetensors.

Owns which files count: the index with its shards, else every safetensors file, as vLLM's loader takes them. Works on
any `Files`, so that a folder and the hub are read by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from specdyno.preflight.checkpoints import headers, tokenizers
from specdyno.preflight.checkpoints.files import Files, load_object, wrong
from specdyno.preflight.checkpoints.schema import Checkpoint, Format, Tensor

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")
_PICKLED = (".bin", ".pt", ".pth")
_AT_ONCE = 8  # headers asked for at the same time: on the hub each costs two round trips
_SHOWN = 3

Tensors = dict[str, Tensor]


def read(files: Files, *, source: str, revision: str | None = None, weights: bool = True) -> Checkpoint:
    """The checkpoint that `files` hold. `weights` False leaves the tensor headers out (the caller states the gap)."""
    names = files.names()
    if CONFIG not in names:
        raise _no_config(files, names)
    config = load_object(files, CONFIG)
    text = tokenizers.read(files, config)
    tensors, gaps = _tensors(files, names) if weights else (None, ())
    return Checkpoint(
        source=source,
        format=Format.HUGGING_FACE,
        config=config,
        tensors=tensors,
        tokenizer=text.tokenizer,
        chat_template_sha256=text.template_sha256,
        shows_tools=text.shows_tools,
        revision=revision,
        gaps=(*text.gaps, *gaps),
    )


def has_weights(files: Files) -> bool:
    """Whether the weights that the names promise are all there, so that a cached snapshot can stand for the hub's."""
    names = files.names()
    if INDEX in names:
        return set(_weight_map(files).values()) <= names
    return any(name.endswith((".safetensors", *_PICKLED)) for name in names) and not _lacking(names)


def _no_config(files: Files, names: Iterable[str]) -> Exception:
    if "params.json" in names:
        return wrong(
            f"{files.place} has no config.json (its params.json is Mistral's own layout)",
            "Name a checkpoint in Hugging Face's layout",
        )
    if "adapter_config.json" in names:
        return wrong(
            f"{files.place} has no config.json, only an adapter's", "Name the merged model, or the adapter's base"
        )
    listed = ", ".join(sorted(names)[:_SHOWN]) or "nothing"
    return wrong(
        f"{files.place} has no config.json (it holds {listed}{', ...' if len(list(names)) > _SHOWN else ''})",
        "Name a folder or repository that holds a model: config.json and its weights, or a GGUF file",
    )


def _tensors(files: Files, names: frozenset[str]) -> tuple[Tensors | None, tuple[str, ...]]:
    if INDEX in names:
        return _indexed(files, names)
    listed = sorted(name for name in names if name.endswith(".safetensors"))
    if not listed:
        return None, (_no_headers(files, names),)
    if missing := _lacking(names):
        raise _missing(files, missing)
    gaps: tuple[str, ...] = ()
    if "model.safetensors" in listed and (doubles := [name for name in listed if name.startswith("consolidated")]):
        # Mistral ships the same weights twice, in its own layout and in Hugging Face's.
        listed = [name for name in listed if name not in doubles]
        gaps = (f"{_some(doubles)} left out as the same weights in another layout",)
    return _merged(files, listed), gaps


def _indexed(files: Files, names: frozenset[str]) -> tuple[Tensors, tuple[str, ...]]:
    weight_map = _weight_map(files)
    shards = sorted(set(weight_map.values()))
    if missing := [shard for shard in shards if shard not in names]:
        raise _missing(files, missing)
    found = _merged(files, shards)
    lacking = [name for name in weight_map if name not in found]
    if lacking:
        raise wrong(
            f"{files.place}/{INDEX} names tensors that the shards do not hold: {_some(lacking)}",
            "Fetch the checkpoint again; a re-quantised upload may have dropped them",
        )
    beyond = [name for name in found if name not in weight_map]
    return found, (f"{INDEX} does not name tensors that the shards hold: {_some(beyond)}",) if beyond else ()


def _weight_map(files: Files) -> dict[str, str]:
    table = load_object(files, INDEX).get("weight_map")
    place = f"{files.place}/{INDEX}"
    if not isinstance(table, dict) or not all(isinstance(shard, str) for shard in table.values()):
        raise wrong(f"{place} holds no weight_map from tensor to file", "Fetch the index again")
    for shard in set(table.values()):
        if "/" in shard or "\\" in shard or not shard.endswith(".safetensors"):
            raise wrong(f"{place} names {shard!r}, which is no safetensors file beside it", "Fetch the index again")
    return table


def _lacking(names: Iterable[str]) -> list[str]:
    """Shards that the names of the others promise ("-00001-of-00003") and that are not there."""
    there = set(names)
    series = {(match["stem"], match["count"]) for name in there if (match := _SHARD.fullmatch(name))}
    promised = (
        f"{stem}-{number:05d}-of-{count}.safetensors"
        for stem, count in sorted(series)
        for number in range(1, int(count) + 1)
    )
    return [name for name in promised if name not in there]


def _merged(files: Files, names: list[str]) -> Tensors:
    found: Tensors = {}
    holder: dict[str, str] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for name, tensors in zip(names, pool.map(lambda name: headers.read(files, name), names), strict=True):
            if doubles := [tensor for tensor in tensors if tensor in found]:
                raise wrong(
                    f"{files.place} holds tensors twice, in {holder[doubles[0]]} and {name}: {_some(doubles)}",
                    f"Remove the file that is too much, or add the {INDEX} that chooses",
                )
            found |= tensors
            holder |= dict.fromkeys(tensors, name)
    return found


def _missing(files: Files, missing: list[str]) -> Exception:
    return wrong(
        f"{files.place} lacks {_some(missing)}, which the index or the other shards' names promise",
        "Fetch the missing files",
    )


def _no_headers(files: Files, names: Iterable[str]) -> str:
    pickled = sorted(name for name in names if name.endswith(_PICKLED))
    if pickled:
        return f"the weights of {files.place} are pickled ({_some(pickled)}), which is not read: convert to safetensors"
    return f"{files.place} holds no weights: tensors are unknown"


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest
