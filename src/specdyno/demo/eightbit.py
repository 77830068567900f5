"""Checkpoints in 8 bits with one scale per row: small enough to carry, restored to bfloat16 before use.

A matrix W of shape (rows, columns) is kept as int8 q and float32 scales s with W ≈ q · s[:, None]; vectors and
integer tensors are kept as they are. The container is the safetensors format (8 bytes of little-endian header length,
a JSON header, the data); its Python package is not needed, whose writing interface changed between releases.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

_QUANTISED = ".q8"
_SCALES = ".row_scale"
_DTYPES = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32, "I8": np.int8, "I64": np.int64, "I32": np.int32,
           "BOOL": np.bool_}  # fmt: skip
Array = npt.NDArray[np.generic]
Tensors = dict[str, tuple[str, Array]]  # name -> (safetensors dtype, array); bfloat16 as its raw uint16 bits


def compress(source: Path, target: Path) -> None:
    """Write `source` (a .safetensors of bfloat16 or float weights) as 8-bit rows to `target`."""
    kept: Tensors = {}
    for name, (dtype, array) in read(source).items():
        if dtype in {"BF16", "F16", "F32"} and array.ndim == 2:
            quantised, scales = rows(dtype, array)
            kept[name + _QUANTISED] = ("I8", quantised)
            kept[name + _SCALES] = ("F32", scales)
        else:
            kept[name] = (dtype, array)
    write(target, kept)


def rows(dtype: str, array: Array) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """A matrix as int8 rows and one scale for each; an all-zero row has a scale that is no zero."""
    weights = _to_float(dtype, array)
    scales = np.maximum(np.abs(weights).max(axis=1), 1e-12) / 127.0
    return np.rint(weights / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def restore(source: Path, target: Path) -> None:
    """Write the 8-bit file `source` back as a bfloat16 .safetensors at `target`."""
    stored = read(source)
    whole: Tensors = {}
    for name, (dtype, array) in stored.items():
        if name.endswith(_QUANTISED):
            base = name.removesuffix(_QUANTISED)
            scales = np.asarray(stored[base + _SCALES][1], dtype=np.float32)
            whole[base] = ("BF16", _to_bfloat16(array.astype(np.float32) * scales[:, None]))
        elif not name.endswith(_SCALES):
            whole[name] = (dtype, array)
    write(target, whole)


def read(path: Path) -> Tensors:
    """Every tensor of a .safetensors file, read-only."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    tensors: Tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        array = np.frombuffer(data[begin:end], dtype=_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = (entry["dtype"], array)
    return tensors


def write(path: Path, tensors: Tensors) -> None:
    """Write a .safetensors file, which appears whole or not at all."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())
    partial.replace(path)


def _to_float(dtype: str, array: Array) -> npt.NDArray[np.float32]:
    if dtype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def _to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round to nearest, ties to even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
