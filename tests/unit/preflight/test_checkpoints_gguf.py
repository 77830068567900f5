"""A GGUF tells the same facts as a folder; a broken one ends in a message, soon and without a traceback."""

from __future__ import annotations

import hashlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.preflight.small_checkpoint import folder, gguf_file

from specdyno.errors import PlanError
from specdyno.preflight.checkpoints.read import read
from specdyno.preflight.checkpoints.schema import Format


def refusal(source) -> str:
    with pytest.raises(PlanError) as caught:
        read(str(source))
    return str(caught.value)


def test_a_gguf_tells_metadata_tensors_tokens_and_template(tmp_path) -> None:
    found = read(str(gguf_file(tmp_path / "m.gguf")))
    assert (found.format, found.model_type) == (Format.GGUF, "llama")
    assert found.config["llama.attention.head_count_kv"] == 2
    embedding, quantised = found.tensors["token_embd.weight"], found.tensors["token_embd.weight.q"]
    assert (embedding.shape, embedding.dtype, embedding.size_bytes) == ((6, 32), "F32", 6 * 32 * 4)
    assert (quantised.shape, quantised.dtype, quantised.size_bytes) == ((2, 32), "Q8_0", 2 * 34)
    same = read(str(folder(tmp_path / "folder")))
    assert found.tokenizer.ids == same.tokenizer.ids
    assert (found.tokenizer.bos, found.tokenizer.eos) == (same.tokenizer.bos, same.tokenizer.eos)
    assert found.chat_template_sha256 == same.chat_template_sha256 == hashlib.sha256(b"{{ messages }}").hexdigest()


def test_long_arrays_stay_out_of_the_config_and_short_ones_in_it(tmp_path) -> None:
    tokens = [f"t{number}" for number in range(2_000)]
    found = read(
        str(
            gguf_file(
                tmp_path / "m.gguf",
                tokenizer__ggml__tokens=tokens,
                tokenizer__ggml__scores=[1.5] * 2_000,
                llama__attention__head_count_kv=[2, 0],
                general__languages=["en", "de"],
            )
        )
    )
    assert found.tokenizer.ids["t1999"] == 1_999
    assert not any(key in found.config for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.scores"))
    assert found.config["llama.attention.head_count_kv"] == [2, 0]
    assert found.config["general.languages"] == ["en", "de"]


def test_a_folder_with_one_gguf_is_that_gguf_and_with_two_must_choose(tmp_path) -> None:
    gguf_file(tmp_path / "m-Q8_0.gguf")
    gguf_file(tmp_path / "mmproj-m.gguf")
    assert read(str(tmp_path)).format is Format.GGUF
    gguf_file(tmp_path / "m-Q4_0.gguf")
    assert "2 GGUF files (m-Q4_0.gguf, m-Q8_0.gguf)" in refusal(tmp_path)


def test_a_split_gguf_is_whole_or_refused(tmp_path) -> None:
    first = gguf_file(tmp_path / "m-00001-of-00002.gguf", split__tensors__count=4)
    assert "lacks m-00002-of-00002.gguf" in refusal(first)
    second = gguf_file(tmp_path / "m-00002-of-00002.gguf", tensors=("blk.0.x",), llama__block_count=7)
    for source in (first, second, tmp_path):
        found = read(str(source))
        assert found.tensors.keys() == {"token_embd.weight", "token_embd.weight.q", "blk.0.x", "blk.0.x.q"}
        assert found.config["llama.block_count"] == 2, "the first part's metadata count"
    gguf_file(second)
    assert "'token_embd.weight', which another part holds too" in refusal(tmp_path)
    gguf_file(second, tensors=())
    assert "promises 4 tensors over its parts and they hold 2" in refusal(tmp_path)


def test_a_gguf_without_tokens_has_a_gap(tmp_path) -> None:
    found = read(str(gguf_file(tmp_path / "m.gguf", tokenizer__ggml__tokens=None)))
    assert found.tokenizer is None
    assert "holds no tokens" in found.gaps[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
        (b"\x93NUMPY" + bytes(99), "is not a GGUF file"),
        (b"GGUF", "broken GGUF file"),
        (b"GGUF\3\0\0\0" + b"\xff" * 16, "broken GGUF file"),
        (b"GGUF\x63\0\0\0" + bytes(16), "version 99"),
    ],
)
def test_what_is_no_gguf_is_told(tmp_path, content, said) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    assert said in refusal(tmp_path / "m.gguf")


def test_an_array_without_end_does_not_hang(tmp_path) -> None:
    key = b"x.scores"
    array = (9).to_bytes(4, "little") + (6).to_bytes(4, "little") + (2**60).to_bytes(8, "little")
    counts = (0).to_bytes(8, "little") + (1).to_bytes(8, "little")
    (tmp_path / "m.gguf").write_bytes(b"GGUF\3\0\0\0" + counts + len(key).to_bytes(8, "little") + key + array)
    started = time.perf_counter()
    assert "it ends at byte" in refusal(tmp_path / "m.gguf")
    assert time.perf_counter() - started < 1


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> bytes:
    return gguf_file(tmp_path_factory.mktemp("good") / "m.gguf").read_bytes()


@settings(max_examples=150)
@given(data=st.data())
def test_no_fault_in_a_gguf_gives_anything_but_a_message(tmp_path_factory, good, data) -> None:
    content = bytearray(good[: data.draw(st.integers(0, len(good)), label="cut")])
    for _ in range(data.draw(st.integers(0, 3), label="faults") if content else 0):
        content[data.draw(st.integers(0, min(len(content), 900) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    path.write_bytes(content)
    try:
        said = read(str(path)).source
    except PlanError as error:
        said = str(error)
    assert "m.gguf" in said
