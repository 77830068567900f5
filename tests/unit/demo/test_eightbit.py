"""Eight bits and back: every weight within half a step, in a file that is a safetensors file."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import load_file

from specdyno.demo import checkpoints, eightbit

SIZES = {"BF16": 2, "F16": 2, "F32": 4, "I8": 1, "I32": 4, "I64": 8, "BOOL": 1}


def write(path: Path, tensors: dict[str, tuple[str, np.ndarray]]) -> Path:
    """A safetensors file written by its description, not by the code under test."""
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + array.nbytes],
        }
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def read(path: Path) -> tuple[dict, bytes]:
    """Header and data of a safetensors file, with the rules of the format checked."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    end = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, stop = entry["data_offsets"]
        assert begin == end
        assert stop - begin == SIZES[entry["dtype"]] * int(np.prod(entry["shape"]))
        end = stop
    assert end == len(data)
    return header, data


def tensor(path: Path, name: str) -> np.ndarray:
    header, data = read(path)
    begin, end = header[name]["data_offsets"]
    raw = data[begin:end]
    if header[name]["dtype"] == "BF16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(header[name]["shape"])
    kinds = {"I8": np.int8, "F32": np.float32, "I64": np.int64}
    return np.frombuffer(raw, kinds[header[name]["dtype"]]).reshape(header[name]["shape"])


def check_restored(packed: Path, restored: Path) -> None:
    header, _ = read(packed)
    whole, _ = read(restored)
    names = {name.removesuffix(".q8") for name in header if not name.endswith(".row_scale")}
    assert set(whole) == names | {"__metadata__"}
    for name in names - {"__metadata__"}:
        if f"{name}.q8" not in header:
            assert whole[name]["dtype"] == header[name]["dtype"]
            continue
        assert whole[name]["dtype"] == "BF16"
        assert whole[name]["shape"] == header[f"{name}.q8"]["shape"]
        scale = tensor(packed, f"{name}.row_scale")[:, None]
        exact = tensor(packed, f"{name}.q8").astype(np.float64) * scale
        assert np.all(np.abs(tensor(restored, name) - exact) <= scale / 2), name


def test_the_carried_draft_is_restored_within_half_a_step(tmp_path):
    packed = Path(checkpoints.__file__).with_name("draft") / "weights.q8.safetensors"
    assert packed.stat().st_size < 8_000_000
    eightbit.restore(packed, tmp_path / "model.safetensors")
    check_restored(packed, tmp_path / "model.safetensors")
    assert 1.9 < (tmp_path / "model.safetensors").stat().st_size / packed.stat().st_size < 2.1


def test_a_restored_file_is_read_by_others(tmp_path):
    weights = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    source = write(tmp_path / "a.safetensors", {"ids": ("I64", np.arange(3)), "bias": ("F32", weights[0])})
    eightbit.compress(source, tmp_path / "b.safetensors")
    eightbit.restore(tmp_path / "b.safetensors", tmp_path / "c.safetensors")
    loaded = load_file(tmp_path / "c.safetensors")
    assert loaded["ids"].tolist() == [0, 1, 2]
    assert loaded["bias"].tolist() == weights[0].tolist()


@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 5), st.integers(1, 7)),
        elements=st.floats(-1e4, 1e4, width=32).filter(lambda x: x == 0 or abs(x) > 1e-6),
    )
)
@settings(max_examples=60, deadline=None)
def test_any_matrix_comes_back_within_half_a_step_and_the_last_bit_of_bfloat16(tmp_path_factory, weights):
    folder = tmp_path_factory.mktemp("eightbit")
    source = write(folder / "a.safetensors", {"w": ("F32", weights), "bias": ("F32", weights[0])})
    eightbit.compress(source, folder / "b.safetensors")
    eightbit.restore(folder / "b.safetensors", folder / "c.safetensors")
    step = np.maximum(np.abs(weights).max(axis=1, keepdims=True), 1e-12) / 127
    error = np.abs(tensor(folder / "c.safetensors", "w").astype(np.float64) - weights)
    assert np.all(error <= step * 0.501 + np.abs(weights) * 2.0**-8 + step * 2.0**-8)
    check_restored(folder / "b.safetensors", folder / "c.safetensors")
    assert np.array_equal(tensor(folder / "c.safetensors", "bias"), weights[0])
    assert not list(folder.glob("*.partial"))


@pytest.mark.parametrize(
    ("value", "bits"),
    [(1.0, 0x3F80), (-2.5, 0xC020), (0.0, 0), (1.00390625, 0x3F80), (1.01171875, 0x3F82), (np.inf, 0x7F80)],
)
def test_bfloat16_rounds_to_nearest_and_ties_to_even(value, bits):
    assert eightbit._to_bfloat16(np.array([value], np.float32)).tolist() == [bits]


def test_a_bfloat16_source_is_read_as_such(tmp_path):
    weights = np.array([[1.0, -0.5], [0.25, 2.0]], np.float32)
    bits = (weights.view(np.uint32) >> 16).astype(np.uint16)
    eightbit.compress(write(tmp_path / "a.safetensors", {"w": ("BF16", bits)}), tmp_path / "b.safetensors")
    assert tensor(tmp_path / "b.safetensors", "w.q8").tolist() == [[127, -64], [16, 127]]
