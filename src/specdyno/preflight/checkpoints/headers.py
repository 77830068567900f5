"""Safetensors headers: which tensors a file holds, how large, and whether the file can be whole.

Owns the format's rules (eight bytes of length, a JSON object, one gapless run of data): what the safetensors library
refuses to load is refused here, before an engine boots. The weights are never read. Source: the format's description
and `Metadata::validate` of the library, version 0.8.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from specdyno.errors import PlanError
from specdyno.preflight.checkpoints import files as place
from specdyno.preflight.checkpoints.schema import Tensor

LARGEST_BYTES = 100_000_000  # the library's own limit for a header
_PREFIX = 8
# Bits per element. A type that is not here is taken as it stands: only its size cannot be checked.
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8, "F8_E8M0": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


def read(files: place.Files, name: str) -> dict[str, Tensor]:
    """Tensors of one file by name. PlanError, naming the file, where it cannot be a whole safetensors file."""
    where = f"{files.place}/{name}"
    prefix, size = files.part(name, 0, _PREFIX)
    if place.is_pointer(prefix):
        raise place.pointer(where)
    length = _length(prefix, size, where)
    header, _ = files.part(name, _PREFIX, length)
    if len(header) < length:
        raise _corrupt(where, f"ends after {len(header)} of the {length} bytes of its header")
    return parse(header, size - _PREFIX - length, where)


def _length(prefix: bytes, size: int, where: str) -> int:
    if size < _PREFIX or len(prefix) < _PREFIX:
        raise _corrupt(where, "is empty" if size == 0 else f"has {size} bytes, too few for a safetensors file")
    length = int.from_bytes(prefix, "little")
    if length > size - _PREFIX:
        raise _corrupt(
            where, f"states a header of {length} bytes but has {size} bytes in all: cut off, or another format"
        )
    if length > LARGEST_BYTES:
        raise _corrupt(where, f"states a header of {length} bytes, above the format's limit of {LARGEST_BYTES}")
    return length


def parse(header: bytes, data_bytes: int, where: str) -> dict[str, Tensor]:
    """Tensors from a header's JSON, in the order of their data; `data_bytes` follow the header in the file.

    >>> parse(b'{"a": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}}', 12, "x.safetensors")["a"].shape
    (2, 3)
    """
    entries = _entries(header, where)
    spans = sorted((_span(name, entry, where), name) for name, entry in entries.items())
    end = 0
    for (start, stop), name in spans:
        if start != end:
            relation = (
                "overlaps the tensor before it" if start < end else f"leaves {start - end} bytes unused before it"
            )
            raise _corrupt(where, f"places tensor {name!r} at byte {start} of its data, which {relation}")
        end = stop
    if end != data_bytes:
        state = "cut off" if end > data_bytes else "longer than its header says"
        raise _corrupt(where, f"is {state}: the header describes {end} bytes of data and {data_bytes} are there")
    return {name: _tensor(name, entries[name], stop - start, where) for (start, stop), name in spans}


def _entries(header: bytes, where: str) -> dict[str, Mapping[str, Any]]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            raise _corrupt(where, f"names {next(key for key in keys if keys.count(key) > 1)!r} twice in its header")
        return found

    try:
        table = json.loads(header, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise _corrupt(where, "has a header that is not JSON") from error
    if not isinstance(table, dict):
        raise _corrupt(where, "has a header that is not a JSON object")
    table.pop("__metadata__", None)
    for name, entry in table.items():
        if not isinstance(entry, dict):
            raise _corrupt(where, f"describes tensor {name!r} by something other than an object")
    return table


def _span(name: str, entry: Mapping[str, Any], where: str) -> tuple[int, int]:
    offsets = _counts(entry.get("data_offsets"))
    if offsets is None or len(offsets) != 2:
        raise _corrupt(where, f"gives tensor {name!r} no pair of data_offsets")
    start, stop = offsets
    if stop < start:
        raise _corrupt(where, f"lets tensor {name!r} end at byte {stop}, before its start at {start}")
    return start, stop


def _tensor(name: str, entry: Mapping[str, Any], size: int, where: str) -> Tensor:
    dtype, shape = entry.get("dtype"), _counts(entry.get("shape"))
    if not isinstance(dtype, str) or shape is None:
        raise _corrupt(where, f"gives tensor {name!r} no dtype and shape")
    bits = _BITS.get(dtype)
    if bits is not None and math.prod(shape) * bits != size * 8:
        needed = math.prod(shape) * bits / 8
        raise _corrupt(where, f"gives tensor {name!r} {size} bytes, while {dtype} {list(shape)} takes {needed:g}")
    return Tensor(name, dtype, shape, size)


def _counts(value: Any) -> tuple[int, ...] | None:
    """A list of counts as a tuple; None for anything else (a JSON true is an int to Python, and none to us)."""
    if isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value):
        return tuple(value)
    return None


def _corrupt(where: str, what: str) -> PlanError:
    return place.wrong(f"{where} {what}", "Fetch this file again, or leave it out of the folder")
