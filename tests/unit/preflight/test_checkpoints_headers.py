"""A safetensors header that the library would refuse is refused before the boot, by file and reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.preflight.small_checkpoint import WEIGHTS, header, safetensors

from specdyno.errors import PlanError
from specdyno.preflight.checkpoints import headers
from specdyno.preflight.checkpoints.files import FolderFiles


def entry(*, dtype="BF16", shape=(2, 2), span=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(span)}


GOOD = safetensors(header(WEIGHTS))
BROKEN = {
    "zero length": (b"", "is empty"),
    "four bytes": (b"\1\0\0\0", "has 4 bytes, too few"),
    "cut off in the header": (GOOD[:40], "but has 40 bytes in all: cut off"),
    "cut off in the data": (GOOD[:-1], "is cut off: the header describes 112 bytes of data and 111 are there"),
    "longer than it says": (GOOD + b"x", "is longer than its header says"),
    "another format": (b"PK\x03\x04" + bytes(60), "cut off, or another format"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "is a Git LFS pointer"),
    "no JSON": (safetensors(b"not json", 0), "a header that is not JSON"),
    "not UTF-8": (safetensors(b'{"\xff": {}}', 0), "a header that is not JSON"),
    "too deep": (safetensors(b'{"a":' + b"[" * 99_999, 0), "a header that is not JSON"),
    "a list": (safetensors(b"[]", 0), "not a JSON object"),
    "a tensor that is a number": (safetensors(b'{"a": 3}', 0), "'a' by something other than an object"),
    "the same name twice": (
        safetensors(b'{"a": %b, "a": %b}' % (json.dumps(entry()).encode(), json.dumps(entry()).encode()), 8),
        "names 'a' twice",
    ),
    "no offsets": (safetensors(b'{"a": {"dtype": "U8", "shape": [1]}}', 1), "'a' no pair of data_offsets"),
    "one offset": (safetensors({"a": entry(span=(0, 8))} | {"b": entry(span=(8,))}, 8), "'b' no pair of data_offsets"),
    "a negative offset": (safetensors({"a": entry(span=(-8, 0))}, 0), "'a' no pair of data_offsets"),
    "inverted offsets": (safetensors({"a": entry(span=(8, 0))}, 8), "'a' end at byte 0, before its start at 8"),
    "overlapping": (safetensors({"a": entry(), "b": entry(span=(4, 12))}, 12), "'b' at byte 4 of its data, which over"),
    "a hole": (safetensors({"a": entry(), "b": entry(span=(10, 18))}, 18), "leaves 2 bytes unused"),
    "outside": (safetensors({"a": entry(span=(0, 8))}, 4), "is cut off"),
    "the wrong size": (safetensors({"a": entry(shape=(2, 3))}, 8), "'a' 8 bytes, while BF16 [2, 3] takes 12"),
    "a negative shape": (safetensors({"a": entry(shape=(-2, -2))}, 8), "'a' no dtype and shape"),
    "a shape of booleans": (safetensors({"a": entry(shape=(True, 4))}, 8), "'a' no dtype and shape"),
    "no dtype": (safetensors({"a": entry(dtype=7)}, 8), "'a' no dtype and shape"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_header_is_told_with_its_file(tmp_path, content, said) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(PlanError) as caught:
        headers.read(FolderFiles(tmp_path), "model.safetensors")
    assert str(tmp_path / "model.safetensors") in str(caught.value)
    assert said in str(caught.value)


def test_a_header_above_the_formats_limit_is_refused_unread(tmp_path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write((headers.LARGEST_BYTES + 1).to_bytes(8, "little"))
        file.truncate(headers.LARGEST_BYTES + 100)  # sparse: takes no room
    with pytest.raises(PlanError, match="above the format's limit"):
        headers.read(FolderFiles(tmp_path), "model.safetensors")


def test_sizes_of_packed_and_of_unknown_types(tmp_path) -> None:
    table = {"four": entry(dtype="F4", shape=(4, 4), span=(0, 8)), "new": entry(dtype="Q3_X", shape=(5,), span=(8, 11))}
    (tmp_path / "x.safetensors").write_bytes(safetensors({"__metadata__": {"format": "pt"}} | table, 11))
    found = headers.read(FolderFiles(tmp_path), "x.safetensors")
    assert {name: tensor.size_bytes for name, tensor in found.items()} == {"four": 8, "new": 3}


def survives(tmp_path_factory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("header")
    (folder / "model.safetensors").write_bytes(content)
    try:
        found = headers.read(FolderFiles(folder), "model.safetensors")
    except PlanError as error:
        said = str(error)
    else:
        said = (
            "model.safetensors" if sum(tensor.size_bytes for tensor in found.values()) <= len(content) else "too much"
        )
    assert "model.safetensors" in said


@given(content=st.binary(max_size=300))
def test_no_bytes_whatever_give_anything_but_a_message(tmp_path_factory, content) -> None:
    survives(tmp_path_factory, content)


@given(position=st.integers(0, len(GOOD) - 1), byte=st.integers(0, 255), cut=st.integers(0, len(GOOD)))
def test_no_single_fault_gives_anything_but_a_message(tmp_path_factory, position, byte, cut) -> None:
    survives(tmp_path_factory, GOOD[:position] + bytes([byte]) + GOOD[position + 1 :])
    survives(tmp_path_factory, GOOD[:cut])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "a", "__metadata__"]), inner, max_size=4)
    ),
)


@given(table=st.dictionaries(st.text(max_size=5), JSON, max_size=4), data=st.integers(0, 64))
def test_no_json_whatever_gives_anything_but_a_message(tmp_path_factory, table, data) -> None:
    survives(tmp_path_factory, safetensors(json.dumps(table).encode(), data))
