"""Checkpoints with one fault each, made from a good folder by a small edit; the good folder is never touched.

Each function writes a whole new folder (it must not exist) that differs from `source` in what its name says, and
returns it. Files that stay as they are become links, or copies where there are no links.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from lab.checkpoints import link, read_json

from specdyno.demo import eightbit

_QUANTISED = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight", "gate_proj.weight", "up_proj.weight",
              "down_proj.weight")  # fmt: skip


def wrong_fc_width(source: Path, folder: Path, *, layers: int = 2) -> Path:
    """`fc` takes the hidden states of `layers` target layers, not of as many as the configuration names."""
    hidden = int(read_json(source / "config.json")["hidden_size"])
    return _edited(
        source, folder, tensors=lambda name, tensor: (name, _columns(tensor, layers * hidden)), only="fc.weight"
    )


def wrong_hidden_size(source: Path, folder: Path, *, hidden_size: int = 640) -> Path:
    """A draft for a target of another hidden size: the configuration says so, the tensors are left as they were."""
    return _edited(source, folder, config={"hidden_size": hidden_size})


def without_tensors(source: Path, folder: Path, *names: str) -> Path:
    """The tensors whose names contain one of `names` are gone, from the index too: `"d2t"`, `"mtp_layers"`."""
    return _edited(source, folder, tensors=lambda *_: None, only=names)


def without_token_map(source: Path, folder: Path) -> Path:
    """An EAGLE-3 draft with a smaller vocabulary whose map to the target's tokens is missing."""
    return without_tensors(source, folder, "d2t", "t2d")


def quantised_without_mtp(source: Path, folder: Path) -> Path:
    """As re-quantised uploads are: int8 rows with scales, MTP still announced, its tensors left out."""
    quantisation = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True, "dynamic": False},
            }
        },
        "ignore": ["lm_head"],
    }
    change = {"quantization_config": quantisation}
    return _edited(source, folder, config=change, tensors=_int8_rows, only=(*_QUANTISED, "mtp_layers"))


def padded_vocabulary(source: Path, folder: Path, *, multiple: int = 1024) -> Path:
    """Embeddings and head padded with zero rows past the tokenizer's end, to the next larger multiple."""
    vocabulary = int(read_json(source / "config.json")["vocab_size"])
    padded = (vocabulary // multiple + 1) * multiple

    def pad(name: str, tensor: tuple[str, np.ndarray]) -> Any:
        dtype, array = tensor
        if array.ndim != 2 or array.shape[0] != vocabulary:
            return name, tensor
        return name, (dtype, np.concatenate([array, np.zeros((padded - vocabulary, array.shape[1]), array.dtype)]))

    return _edited(source, folder, config={"vocab_size": padded}, tensors=pad)


def other_block_size(source: Path, folder: Path, *, block_size: int) -> Path:
    """The block that a DFlash or DSpark draft says it was trained for."""
    return _edited(source, folder, config={"block_size": block_size})


def other_layer_ids(source: Path, folder: Path, *, ids: tuple[int, ...]) -> Path:
    """The target layers that a draft reads; ids past the target's depth are out of range."""
    config = read_json(source / "config.json")
    if "dflash_config" in config:
        return _edited(
            source, folder, config={"dflash_config": {**config["dflash_config"], "target_layer_ids": list(ids)}}
        )
    name = "target_layer_ids" if "target_layer_ids" in config else "eagle_aux_hidden_state_layer_ids"
    return _edited(source, folder, config={name: list(ids)})


def other_mask_token(source: Path, folder: Path, *, token: int) -> Path:
    """The mask token of a block draft; a token past the vocabulary is out of range."""
    config = read_json(source / "config.json")
    if "dflash_config" in config:
        return _edited(source, folder, config={"dflash_config": {**config["dflash_config"], "mask_token_id": token}})
    return _edited(source, folder, config={"mask_token_id": token})


def changed_config(source: Path, folder: Path, **changes: Any) -> Path:
    """Any keys of the configuration replaced; None removes one."""
    return _edited(source, folder, config=changes)


def header_of_no_json(source: Path, folder: Path) -> Path:
    """A tensor file whose header has the right length and is no JSON."""
    return _spoiled(source, folder, lambda data: data[:8] + b"#" + data[9:])


def header_beyond_the_end(source: Path, folder: Path) -> Path:
    """A tensor file whose header claims to be longer than the file."""
    return _spoiled(source, folder, lambda data: struct.pack("<Q", len(data) * 2) + data[8:])


def cut_off(source: Path, folder: Path) -> Path:
    """A download that broke off: the header is whole, the last tensors are not there."""
    return _spoiled(source, folder, lambda data: data[: len(data) * 3 // 4])


def pointer_file(source: Path, folder: Path) -> Path:
    """What a clone without large files holds in place of the tensors."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n"
    return _spoiled(source, folder, lambda data: pointer % (b"0" * 64, len(data)))


def renamed(source: Path, folder: Path) -> Path:
    """The same checkpoint under another name, e.g. one in which vLLM reads a method."""
    return _edited(source, folder)


# --- edits --------------------------------------------------------------------------------------------------------


Change = Callable[[str, tuple[str, np.ndarray]], Any]  # -> a (name, tensor), a dict of several, None: dropped


def _edited(
    source: Path,
    folder: Path,
    *,
    config: dict[str, Any] | None = None,
    tensors: Change | None = None,
    only: str | tuple[str, ...] = "",
) -> Path:
    """A new folder: `config` merged into config.json, `tensors` applied to those whose names contain one of `only`."""
    folder.mkdir(parents=True)
    wanted = (only,) if isinstance(only, str) else only
    for path in sorted(source.iterdir()):
        if path.name == "config.json" and config:
            merged = {**read_json(path), **config}
            _write_json(folder / path.name, {key: value for key, value in merged.items() if value is not None})
        elif path.suffix != ".safetensors" or tensors is None or not _touched(path, wanted):
            link(path, folder / path.name)
        else:
            _rewrite(path, folder / path.name, tensors, wanted)
    if tensors is not None and (index := folder / "model.safetensors.index.json").exists():
        _index_anew(index)
    return folder


def _touched(path: Path, wanted: tuple[str, ...]) -> bool:
    return any(part in name for name in _header(path) for part in wanted)


def _header(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return {name: entry for name, entry in json.loads(file.read(length)).items() if name != "__metadata__"}


def _rewrite(source: Path, target: Path, change: Change, wanted: tuple[str, ...]) -> None:
    kept: eightbit.Tensors = {}
    for name, tensor in eightbit.read(source).items():
        made = change(name, tensor) if any(part in name for part in wanted) else (name, tensor)
        if isinstance(made, dict):
            kept |= made
        elif made is not None:
            kept[made[0]] = made[1]
    eightbit.write(target, kept)


def _index_anew(path: Path) -> None:
    """The index lists what the shards hold, as an upload made by a tool would."""
    shards = sorted(path.parent.glob("*.safetensors"))
    size = sum(
        end - start for shard in shards for start, end in (one["data_offsets"] for one in _header(shard).values())
    )
    places = {name: shard.name for shard in shards for name in _header(shard)}
    path.unlink()  # a link to the good folder's
    _write_json(path, {"metadata": {"total_size": size}, "weight_map": places})


def _columns(tensor: tuple[str, np.ndarray], count: int) -> tuple[str, np.ndarray]:
    dtype, array = tensor
    if array.shape[1] == count:
        raise ValueError(f"{count} columns are what it has")
    return dtype, np.resize(array, (array.shape[0], count))


def _int8_rows(name: str, tensor: tuple[str, np.ndarray]) -> eightbit.Tensors | None:
    if "mtp_layers" in name:
        return None
    quantised, scales = eightbit.rows(*tensor)
    return {name: ("I8", quantised), f"{name}_scale": ("F32", scales[:, None])}


def _spoiled(source: Path, folder: Path, change: Callable[[bytes], bytes]) -> Path:
    """The last tensor file with its bytes changed."""
    _edited(source, folder)
    path = max(folder.glob("*.safetensors"))
    data = path.read_bytes()
    path.unlink()  # a link to the good folder's
    path.write_bytes(change(data))
    return folder


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
