"""The drafts that a clone carries: restored whole, under names that leave the choice of a method to the user."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors import safe_open

from lab import checkpoints
from specdyno.demo import checkpoints as demo
from specdyno.demo import eightbit

pytestmark = pytest.mark.usefixtures("cache")
PLAIN = ["dflash", "dspark", "gemma4_target", "gemma4_assistant"]
LIMIT_BYTES = 35_000_000
SNIFFED = ("eagle-", "eagle3", "dflash", "dspark", "mtp", "medusa")


def test_a_clone_carries_at_most_35_mb_of_weights():
    stored = [*checkpoints.DRAFTS.rglob("*.safetensors"), demo._DRAFT / "weights.q8.safetensors"]
    assert len(stored) == 6
    assert sum(path.stat().st_size for path in stored) < LIMIT_BYTES


@pytest.mark.parametrize("name", PLAIN)
def test_a_draft_is_restored_with_the_tensors_that_it_was_stored_with(name, cache):
    folder = getattr(checkpoints, name)()
    assert folder.parent == cache
    assert checkpoints.read_json(folder / "config.json")["architectures"]
    stored = eightbit.read(checkpoints.DRAFTS / name.replace("_", "-") / "weights.q8.safetensors")
    with safe_open(folder / "model.safetensors", "np") as tensors:
        expected = {one.removesuffix(".q8") for one in stored if not one.endswith(".row_scale")}
        assert set(tensors.keys()) == expected
    restored = eightbit.read(folder / "model.safetensors")
    assert {dtype for dtype, _ in restored.values()} == {"BF16"}


@pytest.mark.parametrize("name", [*PLAIN, "mtp_target", "first_layers"])
def test_no_folder_is_named_so_that_vllm_reads_a_method_out_of_it(name, target):
    folder = getattr(checkpoints, name)()
    assert not [word for word in SNIFFED if word in folder.name.lower()]
    assert getattr(checkpoints, name)() == folder


def test_the_assistant_has_its_targets_tokenizer():
    target, assistant = checkpoints.gemma4_target(), checkpoints.gemma4_assistant()
    assert (target / "tokenizer.json").read_bytes() == (assistant / "tokenizer.json").read_bytes()
    config = checkpoints.read_json(assistant / "config.json")
    assert config["backbone_hidden_size"] == checkpoints.read_json(target / "config.json")["hidden_size"]


def test_the_mtp_model_is_the_target_with_zero_biases_and_a_trained_layer(target):
    folder = checkpoints.mtp_target()
    index = checkpoints.read_json(folder / "model.safetensors.index.json")
    shards = {shard: eightbit.read(folder / shard) for shard in set(index["weight_map"].values())}
    assert {name: shard for shard, tensors in shards.items() for name in tensors} == index["weight_map"]
    merged = {name: tensor for tensors in shards.values() for name, tensor in tensors.items()}
    assert index["metadata"]["total_size"] == sum(array.nbytes for _, array in merged.values())
    for name, (dtype, array) in eightbit.read(target / "model.safetensors").items():
        assert merged[name][0] == dtype
        assert np.array_equal(merged[name][1], array)
    biases = {name: array for name, (_, array) in merged.items() if name.endswith("bias") and ".layers." in name}
    assert len(biases) == 3 * 8
    assert not any(array.any() for array in biases.values())
    assert merged["model.mtp_layers.0.self_attn.q_proj.bias"][1].any()
    config = checkpoints.read_json(folder / "config.json")
    assert (config["architectures"], config["num_nextn_predict_layers"]) == (["MiMoForCausalLM"], 1)
    assert (folder / "tokenizer.json").is_file()


def test_mtp_tensors_as_they_were_trained_are_taken_bit_by_bit(target, tmp_path):
    layer, name = tmp_path / "trained", "model.mtp_layers.0.input_proj.weight"
    layer.mkdir()
    (layer / "config.json").write_bytes((checkpoints.DRAFTS / "mtp" / "config.json").read_bytes())
    trained = np.arange(12, dtype=np.uint16).reshape(3, 4) + 0x3C00  # odd bits, which 8 bits would not keep
    eightbit.write(layer / "model.safetensors", {name: ("BF16", trained)})
    folder = checkpoints.mtp_target(layer)
    assert folder != checkpoints.mtp_target()
    shard = checkpoints.read_json(folder / "model.safetensors.index.json")["weight_map"][name]
    assert np.array_equal(eightbit.read(folder / shard)[name][1], trained)


def test_a_draft_model_is_the_targets_first_layers_with_embeddings_and_final_norm(target):
    folder = checkpoints.first_layers(6)
    whole, cut = (eightbit.read(one / "model.safetensors") for one in (target, folder))
    assert set(whole) - set(cut) == {name for name in whole if name.startswith(("model.layers.6.", "model.layers.7."))}
    assert all(np.array_equal(cut[name][1], whole[name][1]) for name in cut)
    config = json.loads((folder / "config.json").read_text())
    assert (config["num_hidden_layers"], config["vocab_size"]) == (6, 64)
    assert (folder / "tokenizer.json").is_file()


def test_a_restore_that_fails_leaves_no_folder(cache, monkeypatch):
    def fail(*_):
        raise ValueError("broken off")

    monkeypatch.setattr(eightbit, "restore", fail)
    with pytest.raises(ValueError, match="broken off"):
        checkpoints.dflash()
    assert list(cache.iterdir()) == []
