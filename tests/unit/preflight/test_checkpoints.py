"""A folder is read as the engines read it, from names, texts and headers; what cannot be one is told in one message."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import pytest
from tests.unit.preflight.small_checkpoint import TOKENIZER, WEIGHTS, folder, header, safetensors, sharded

import specdyno
from specdyno.errors import PlanError
from specdyno.preflight.checkpoints.read import read
from specdyno.preflight.checkpoints.schema import Format


def refusal(source, **keys) -> str:
    with pytest.raises(PlanError) as caught:
        read(str(source), **keys)
    assert len(caught.value.problems) == 1
    return str(caught.value)


def test_a_folder_tells_config_tensors_tokens_and_template(tmp_path) -> None:
    found = read(str(folder(tmp_path / "model")), place="target.model")
    assert (found.format, found.model_type, found.architectures) == (
        Format.HUGGING_FACE, "llama", ("LlamaForCausalLM",),
    )  # fmt: skip
    assert {name: tensor.shape for name, tensor in found.tensors.items()} == {
        name: shape for name, (_, shape) in WEIGHTS.items()
    }
    assert found.weight_bytes == (6 * 8 + 8) * 2
    assert found.tokenizer.ids["ab"] == 4
    assert found.tokenizer.ids["<|tool|>"] == 5, "added tokens count"
    assert (found.tokenizer.kind, found.tokenizer.bos, found.tokenizer.eos) == ("BPE", "<s>", "</s>")
    assert found.chat_template_sha256 == hashlib.sha256(b"{{ messages }}").hexdigest()
    assert found.gaps == ()


def test_a_file_of_the_library_itself_reads() -> None:
    """The demo's draft, as the safetensors library wrote it."""
    found = read(str(Path(specdyno.__file__).parent / "demo" / "draft"))
    assert found.architectures == ("LlamaForCausalLMEagle3",)
    assert found.tensors["d2t"].shape == (found.config["draft_vocab_size"],)
    assert found.tokenizer is None


def test_a_wrapper_keeps_its_outer_type_and_shows_the_language_model(tmp_path) -> None:
    found = read(str(folder(tmp_path, model_type="gemma4", text_config={"hidden_size": 32})))
    assert found.model_type == "gemma4"
    assert found.text_config == {"hidden_size": 32}


def test_the_template_file_goes_before_the_settings(tmp_path) -> None:
    folder(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{# own #}")
    assert read(str(tmp_path)).chat_template_sha256 == hashlib.sha256(b"{# own #}").hexdigest()


def test_of_several_templates_the_default_counts(tmp_path) -> None:
    folder(tmp_path)
    listed = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": listed}))
    found = read(str(tmp_path))
    assert found.chat_template_sha256 == hashlib.sha256(b"d").hexdigest()
    assert found.tokenizer.eos == "</s>", "named by the id in config.json where no text names it"
    assert found.tokenizer.bos is None


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ({"type": "Unigram", "vocab": [["<s>", 0.0], ["a", -1.5], ["b", -2.0]]}, "Unigram"),
        ({"type": "WordPiece", "vocab": {"<s>": 0, "a": 1, "b": 2}}, "WordPiece"),
        ({"vocab": {"<s>": 0, "a": 1, "b": 2}}, None),
    ],
)
def test_every_kind_of_vocabulary_gives_ids(tmp_path, model, kind) -> None:
    folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    found = read(str(tmp_path)).tokenizer
    assert found.ids == {"<s>": 0, "a": 1, "b": 2}
    assert found.kind == kind


def test_a_slow_tokenizer_is_its_vocabulary_with_the_added_tokens(tmp_path) -> None:
    folder(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.json").write_text(json.dumps(TOKENIZER["model"]["vocab"]))
    (tmp_path / "added_tokens.json").write_text('{"<tool>": 9}')
    settings = {"added_tokens_decoder": {"10": {"content": "<end>"}}, "eos_token": "<end>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    found = read(str(tmp_path)).tokenizer
    assert (found.ids["ab"], found.ids["<tool>"], found.ids["<end>"], found.eos) == (4, 9, 10, "<end>")


def test_what_only_its_own_library_reads_is_a_gap(tmp_path) -> None:
    folder(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert "holds no tokenizer file" in read(str(tmp_path)).gaps[0]
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a\x0e")
    found = read(str(tmp_path))
    assert found.tokenizer is None
    assert "tokenizer.model alone" in found.gaps[0]


def test_shards_are_one_checkpoint(tmp_path) -> None:
    found = read(str(sharded(tmp_path)))
    assert found.tensors.keys() == WEIGHTS.keys()
    assert found.gaps == ()


def test_a_missing_shard_is_named_with_and_without_an_index(tmp_path) -> None:
    sharded(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert "lacks model-00002-of-00002.safetensors" in refusal(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    assert "lacks model-00002-of-00002.safetensors" in refusal(tmp_path)


def test_a_tensor_that_the_index_promises_and_no_shard_holds_is_named(tmp_path) -> None:
    """As quantised uploads do it that dropped their MTP layer."""
    sharded(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    table["weight_map"]["mtp.fc.weight"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(table))
    assert "names tensors that the shards do not hold: mtp.fc.weight" in refusal(tmp_path)


def test_tensors_beyond_the_index_are_kept_and_told(tmp_path) -> None:
    sharded(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(
        safetensors(header({"model.norm.weight": ("BF16", (8,)), "mtp.fc.weight": ("F32", (2, 2))}))
    )
    found = read(str(tmp_path))
    assert found.tensors["mtp.fc.weight"].size_bytes == 16
    assert "mtp.fc.weight" in found.gaps[0]


def test_the_same_tensor_in_two_files_is_refused(tmp_path) -> None:
    folder(tmp_path)
    (tmp_path / "other.safetensors").write_bytes(safetensors(header({"model.norm.weight": ("BF16", (8,))})))
    assert "twice, in model.safetensors and other.safetensors: model.norm.weight" in refusal(tmp_path)


def test_the_same_weights_in_mistrals_layout_are_left_out_and_told(tmp_path) -> None:
    folder(tmp_path)
    (tmp_path / "consolidated.safetensors").write_bytes(safetensors(header({"norm.weight": ("BF16", (8,))})))
    found = read(str(tmp_path))
    assert found.tensors.keys() == WEIGHTS.keys()
    assert "consolidated.safetensors" in found.gaps[0]


@pytest.mark.parametrize("weight_map", [None, [], {"a": 3}, {"a": "../../secret.safetensors"}, {"a": "x.bin"}])
def test_an_index_that_is_none_is_refused(tmp_path, weight_map) -> None:
    sharded(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert "model.safetensors.index.json" in refusal(tmp_path)


def test_pickled_weights_and_no_weights_are_gaps(tmp_path) -> None:
    folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert "holds no weights" in read(str(tmp_path)).gaps[0]
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    found = read(str(tmp_path))
    assert found.tensors is None
    assert found.weight_bytes is None
    assert "pickled (pytorch_model.bin)" in found.gaps[0]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b"", "config.json is empty"),
        ("config.json", b"{", "config.json is not JSON"),
        ("config.json", b"[1]", "config.json holds a list"),
        ("config.json", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        ("tokenizer.json", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        ("tokenizer.json", b"{}", "tokenizer.json holds no vocabulary"),
        ("tokenizer.json", b"\xff\xfe", "tokenizer.json is not JSON"),
        ("tokenizer_config.json", b"nope", "tokenizer_config.json is not JSON"),
    ],
)
def test_a_broken_text_file_is_named(tmp_path, name, content, said) -> None:
    folder(tmp_path)
    (tmp_path / name).write_bytes(content)
    message = refusal(tmp_path, place="target.model")
    assert message.startswith("target.model: ")
    assert said in message


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((), "has no config.json (it holds nothing)"),
        (("notes.txt",), "has no config.json (it holds notes.txt)"),
        (("params.json", "consolidated.safetensors"), "Mistral's own layout"),
        (("adapter_config.json",), "only an adapter's"),
    ],
)
def test_a_folder_without_a_model_says_what_it_holds(tmp_path, files, said) -> None:
    for name in files:
        (tmp_path / name).write_bytes(b"{}")
    assert said in refusal(tmp_path)


@pytest.mark.parametrize(
    "source", ["./no/such", "/no/such/folder", "~/no-such-folder", "a/b/c", "models/x.gguf", "x\0y", ""]
)
def test_a_path_that_is_not_there_is_never_asked_for_on_the_hub(source, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # would be Unreachable
    assert refusal(source)


def test_one_file_of_a_folder_points_to_the_folder(tmp_path) -> None:
    folder(tmp_path)
    assert f"Name its folder, {tmp_path}" in refusal(tmp_path / "model.safetensors")


def test_a_revision_says_nothing_about_a_folder(tmp_path) -> None:
    assert "revision v2 says nothing" in read(str(folder(tmp_path)), revision="v2").gaps[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_named(tmp_path) -> None:
    folder(tmp_path)
    (tmp_path / "model.safetensors").chmod(0)
    assert "model.safetensors cannot be read (Permission denied)" in refusal(tmp_path)


def test_a_folder_of_three_hundred_tensors_reads_at_once(tmp_path) -> None:
    folder(tmp_path)
    many = {f"model.layers.{number}.weight": ("BF16", (64, 64)) for number in range(300)}
    (tmp_path / "model.safetensors").write_bytes(safetensors(header(many)))
    started = time.perf_counter()
    assert len(read(str(tmp_path)).tensors) == 300
    assert time.perf_counter() - started < 1
