"""A checkpoint in one GGUF file, or in the parts of a split one: metadata, tokens and tensor sizes.

Reads through the `gguf` package's reader, memory mapped, with two things added: every read is checked against the end
of the file (the reader itself would run on past it), and arrays are taken whole (a vocabulary of 262,144 tokens would
take it many seconds). Tensor data is never touched.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from specdyno.errors import PlanError
from specdyno.preflight.checkpoints.files import is_pointer, pointer, unreadable, wrong
from specdyno.preflight.checkpoints.schema import Checkpoint, Format, Tensor, Tokenizer
from specdyno.preflight.checkpoints.tokenizers import sha256_text, speak_of_tools

_SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_LONG = 1_024  # entries; longer arrays (vocabulary, merges, scores) stay out of `config`
_TOKENS = "tokenizer.ggml.tokens"
_TEMPLATE = "tokenizer.chat_template"  # others are named after it: tokenizer.chat_template.tool_use
_MALFORMED = (ValueError, LookupError, ArithmeticError, TypeError, RecursionError, struct.error)


class _Reader(gguf.GGUFReader):
    """The package's reader, bounded by the file and quick on arrays."""

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
        end = int(offset) + np.dtype(dtype).itemsize * int(count)
        if end > len(self.data):
            raise ValueError(f"it ends at byte {len(self.data)}, and byte {end} is asked for")
        return super()._get(int(offset), dtype, count, override_order)

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[Any]]:
        if raw_type != gguf.GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        item_type, count = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
        kind, start = gguf.GGUFValueType(int(item_type[0])), orig_offs + 12
        if kind == gguf.GGUFValueType.STRING:
            items = self._strings(start, int(count[0]))
            size = sum(8 + len(item) for item in items)
        elif kind in self.gguf_scalar_to_np:
            items = [self._get(start, self.gguf_scalar_to_np[kind], int(count[0]))]
            size = int(items[0].nbytes)
        else:
            return super()._get_field_parts(orig_offs, raw_type)
        # `contents()` joins the parts that the indices name: one per string, one for all numbers.
        indices = list(range(2, 2 + len(items)))
        return 12 + size, [item_type, count, *items], indices, [gguf.GGUFValueType.ARRAY, kind]

    def _strings(self, offset: int, count: int) -> list[memoryview]:
        raw, end = memoryview(np.asarray(self.data).data), len(self.data)
        length = struct.Struct("<Q" if (self.byte_order == "I") == (sys.byteorder == "little") else ">Q")
        found = []
        for _ in range(count):
            (size,) = length.unpack_from(raw, offset)  # struct.error past the end
            if offset + 8 + size > end:
                raise ValueError(f"it ends at byte {end}, within a text of {size} bytes")
            found.append(raw[offset + 8 : offset + 8 + size])
            offset += 8 + size
        return found


def read(path: Path, *, source: str, revision: str | None = None) -> Checkpoint:
    """The checkpoint in `path`; of a split one any part may be named. PlanError, naming the file, for a broken one."""
    parts = parts_of(path)
    first = _open(parts[0])
    config = _metadata(first, parts[0])
    tensors = _tensors(first, parts[0])
    for part in parts[1:]:
        found = _tensors(_open(part), part)
        if doubles := sorted(found.keys() & tensors.keys()):
            raise wrong(f"{part} holds tensor {doubles[0]!r}, which another part holds too", "Fetch the parts again")
        tensors |= found
    promised = config.get("split.tensors.count")
    if type(promised) is int and promised != len(tensors):
        raise wrong(
            f"{path} promises {promised} tensors over its parts and they hold {len(tensors)}", "Fetch them again"
        )
    if not isinstance(config.get("general.architecture"), str):
        raise wrong(f"{parts[0]} names no general.architecture", "Name a GGUF file that holds a model")
    template = config.get(_TEMPLATE)
    templates = [text for key, text in config.items() if key.startswith(_TEMPLATE) and isinstance(text, str)]
    tokenizer = _tokenizer(first, config)
    return Checkpoint(
        source=source,
        format=Format.GGUF,
        config=config,
        tensors=tensors,
        tokenizer=tokenizer,
        chat_template_sha256=sha256_text(template) if isinstance(template, str) else None,
        shows_tools=speak_of_tools(templates),
        revision=revision,
        gaps=() if tokenizer else (f"{path} holds no tokens: token ids are unknown",),
    )


def parts_of(path: Path) -> list[Path]:
    """The file itself, or all parts of a split GGUF in order. PlanError where a part is missing."""
    match = _SPLIT.fullmatch(path.name)
    if match is None:
        return [path]
    names = [f"{match['stem']}-{number:05d}-of-{match['count']}.gguf" for number in range(1, int(match["count"]) + 1)]
    parts = [path.with_name(name) for name in names]
    if missing := [part.name for part in parts if not part.is_file()]:
        raise wrong(
            f"{path.parent} lacks {', '.join(missing[:3])}, a part of the split GGUF", "Fetch the missing parts"
        )
    return parts or [path]


def models_among(names: frozenset[str]) -> list[str]:
    """GGUF files that a plan can mean, one name per model: the first part of a split one; no vision projector."""
    models = (name for name in sorted(names) if name.endswith(".gguf") and not name.startswith("mmproj"))
    return [name for name in models if (match := _SPLIT.fullmatch(name)) is None or int(match["number"]) == 1]


def _open(path: Path) -> _Reader:
    try:
        with path.open("rb") as file:
            start = file.read(64)
        if is_pointer(start[:20]):
            raise pointer(str(path))
        if start[:4] != b"GGUF":
            raise wrong(
                f"{path} is not a GGUF file" if start else f"{path} is empty", "Name a GGUF file, or fetch it again"
            )
        with np.errstate(all="raise"):
            return _Reader(path)
    except OSError as error:
        raise unreadable(path, error) from error
    except _MALFORMED as error:
        raise _corrupt(path, str(error)) from error


def _corrupt(path: Path, what: str) -> PlanError:
    return wrong(f"{path} is a broken GGUF file ({what})", "Fetch the file again; it may be cut off")


def _metadata(reader: _Reader, path: Path) -> dict[str, Any]:
    try:
        return {
            name: field.contents()
            for name, field in reader.fields.items()
            if not name.startswith("GGUF.") and len(field.data) <= _LONG and _entries(field) <= _LONG
        }
    except _MALFORMED as error:
        raise _corrupt(path, str(error)) from error


def _entries(field: Any) -> int:
    is_array = field.types and field.types[0] == gguf.GGUFValueType.ARRAY
    return sum(len(field.parts[index]) for index in field.data) if is_array and len(field.data) == 1 else 1


def _tensors(reader: _Reader, path: Path) -> dict[str, Tensor]:
    found = {}
    for entry in reader.tensors:
        shape = tuple(int(size) for size in reversed(entry.shape.tolist()))
        block, block_bytes = gguf.GGML_QUANT_SIZES[entry.tensor_type]
        size = math.prod(shape) * block_bytes // block
        if size != entry.n_bytes:  # the reader's own product has 64 bits
            raise _corrupt(path, f"tensor {entry.name!r} has the impossible shape {list(shape)}")
        found[entry.name] = Tensor(entry.name, entry.tensor_type.name, shape, size)
    return found


def _tokenizer(reader: _Reader, config: Mapping[str, Any]) -> Tokenizer | None:
    field = reader.fields.get(_TOKENS)
    if field is None or field.types[-1] != gguf.GGUFValueType.STRING:
        return None
    raw = [bytes(field.parts[index]) for index in field.data]
    tokens = [token.decode("utf-8", "surrogateescape") for token in raw]
    kind = config.get("tokenizer.ggml.model")

    def special(role: str) -> str | None:
        number = config.get(f"tokenizer.ggml.{role}_token_id")
        return tokens[number] if type(number) is int and 0 <= number < len(tokens) else None

    return Tokenizer(
        ids={token: number for number, token in enumerate(tokens)},
        kind=kind if isinstance(kind, str) else None,
        bos=special("bos"),
        eos=special("eos"),
        sha256=hashlib.sha256(b"".join(len(token).to_bytes(4, "little") + token for token in raw)).hexdigest(),
    )
