"""Each faulty checkpoint has the fault that it is named for, no other, and leaves the good one as it was."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError, safe_open

from lab import checkpoints, faults
from specdyno.demo import eightbit

pytestmark = pytest.mark.usefixtures("cache")


def config(folder: Path) -> dict:
    return checkpoints.read_json(folder / "config.json")


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Every tensor's shape, read by the format's own package."""
    found = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "np") as tensors:
            found |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118 (no mapping)
    return found


def changed_keys(good: Path, bad: Path) -> set[str]:
    was, now = config(good), config(bad)
    return {key for key in was.keys() | now.keys() if was.get(key) != now.get(key)}


@pytest.mark.parametrize("make", [checkpoints.dflash, checkpoints.dspark, checkpoints.eagle3])
def test_wrong_fc_width_is_two_layers_where_the_draft_reads_three(make, tmp_path):
    good, bad = make(), faults.wrong_fc_width(make(), tmp_path / "bad")
    assert shapes(good)["fc.weight"] == (576, 3 * 576)
    assert shapes(bad) == {**shapes(good), "fc.weight": (576, 2 * 576)}
    assert changed_keys(good, bad) == set()


def test_a_width_that_is_right_is_no_fault(tmp_path):
    with pytest.raises(ValueError, match="are what it has"):
        faults.wrong_fc_width(checkpoints.dflash(), tmp_path / "bad", layers=3)


def test_a_draft_for_a_wider_target_only_says_so(tmp_path):
    good, bad = checkpoints.dflash(), faults.wrong_hidden_size(checkpoints.dflash(), tmp_path / "bad")
    assert config(bad)["hidden_size"] == 640
    assert changed_keys(good, bad) == {"hidden_size"}
    assert shapes(good) == shapes(bad)


def test_a_missing_token_map_is_missing_and_all_else_is_there(tmp_path):
    good, bad = checkpoints.eagle3(), faults.without_token_map(checkpoints.eagle3(), tmp_path / "bad")
    assert set(shapes(good)) - set(shapes(bad)) == {"d2t", "t2d"}
    assert config(bad)["draft_vocab_size"] < config(bad)["vocab_size"]


def test_a_quantised_upload_announces_mtp_and_lacks_it(target, tmp_path):
    good, bad = checkpoints.mtp_target(), faults.quantised_without_mtp(checkpoints.mtp_target(), tmp_path / "bad")
    assert config(bad)["num_nextn_predict_layers"] == 1
    assert config(bad)["quantization_config"]["quant_method"] == "compressed-tensors"
    assert not [name for name in shapes(bad) if "mtp_layers" in name]
    index = checkpoints.read_json(bad / "model.safetensors.index.json")
    assert set(index["weight_map"]) == set(shapes(bad))
    assert [
        name for name in checkpoints.read_json(good / "model.safetensors.index.json")["weight_map"] if "mtp" in name
    ]
    name = "model.layers.0.self_attn.q_proj.weight"
    packed, whole = (eightbit.read(folder / "model-00001-of-00002.safetensors") for folder in (bad, good))
    assert packed[name][0] == "I8"
    exact = (whole[name][1].astype(np.uint32) << 16).view(np.float32)
    assert np.allclose(packed[name][1] * packed[f"{name}_scale"][1], exact, atol=float(np.abs(exact).max()) / 250)


def test_mtp_tensors_alone_can_be_left_out(target, tmp_path):
    bad = faults.without_tensors(checkpoints.mtp_target(), tmp_path / "bad", "mtp_layers")
    assert set(shapes(checkpoints.mtp_target())) - set(shapes(bad)) == {
        name for name in shapes(checkpoints.mtp_target()) if "mtp_layers" in name
    }
    index = checkpoints.read_json(bad / "model.safetensors.index.json")
    assert index["metadata"]["total_size"] == sum(
        array.nbytes for path in bad.glob("*.safetensors") for _, array in eightbit.read(path).values()
    )


def test_a_padded_vocabulary_is_longer_in_embeddings_and_configuration_than_in_the_tokenizer(tmp_path):
    good, bad = checkpoints.gemma4_target(), faults.padded_vocabulary(checkpoints.gemma4_target(), tmp_path / "bad")
    assert config(bad)["vocab_size"] == 3072
    assert shapes(bad) == {**shapes(good), "model.embed_tokens.weight": (3072, 256)}
    padded, whole = (
        eightbit.read(folder / "model.safetensors")["model.embed_tokens.weight"][1] for folder in (bad, good)
    )
    assert np.array_equal(padded[:2048], whole)
    assert not padded[2048:].any()
    assert (good / "tokenizer.json").read_bytes() == (bad / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("make", [checkpoints.dflash, checkpoints.dspark])
def test_block_size_layer_ids_and_mask_token_are_what_is_asked_for(make, tmp_path):
    good = make()
    block = faults.other_block_size(good, tmp_path / "block", block_size=2)
    layers = faults.other_layer_ids(good, tmp_path / "layers", ids=(1, 14, 40))
    mask = faults.other_mask_token(good, tmp_path / "mask", token=60_000)
    assert config(block)["block_size"] == 2
    assert changed_keys(good, block) == {"block_size"}
    for folder, name, value in ((layers, "target_layer_ids", [1, 14, 40]), (mask, "mask_token_id", 60_000)):
        assert config(folder).get("dflash_config", config(folder))[name] == value
        assert len(changed_keys(good, folder)) == 1


def test_the_layer_ids_of_an_eagle3_draft_go_where_vllm_reads_them(tmp_path):
    bad = faults.other_layer_ids(checkpoints.eagle3(), tmp_path / "bad", ids=(2, 15))
    assert config(bad)["eagle_aux_hidden_state_layer_ids"] == [2, 15]


def test_any_key_can_be_changed_or_removed(tmp_path):
    bad = faults.changed_config(checkpoints.dspark(), tmp_path / "bad", markov_rank=8, mask_token_id=None)
    assert config(bad)["markov_rank"] == 8
    assert "mask_token_id" not in config(bad)


@pytest.mark.parametrize(
    "spoil", [faults.header_of_no_json, faults.header_beyond_the_end, faults.cut_off, faults.pointer_file]
)
def test_a_spoiled_file_is_refused_by_the_formats_own_package(spoil, tmp_path):
    good = checkpoints.dflash()
    before = (good / "model.safetensors").read_bytes()
    bad = spoil(good, tmp_path / "bad")
    with pytest.raises(SafetensorError), safe_open(bad / "model.safetensors", "np"):
        pass
    assert (good / "model.safetensors").read_bytes() == before


def test_the_spoiled_headers_are_spoiled_as_named(tmp_path):
    good = checkpoints.dflash()
    no_json = (faults.header_of_no_json(good, tmp_path / "a") / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", no_json[:8])
    with pytest.raises(json.JSONDecodeError):
        json.loads(no_json[8 : 8 + length])
    beyond = (faults.header_beyond_the_end(good, tmp_path / "b") / "model.safetensors").read_bytes()
    assert struct.unpack("<Q", beyond[:8])[0] > len(beyond)
    cut = faults.cut_off(good, tmp_path / "c") / "model.safetensors"
    assert cut.stat().st_size < (good / "model.safetensors").stat().st_size
    assert (
        (faults.pointer_file(good, tmp_path / "d") / "model.safetensors").read_bytes().startswith(b"version https://")
    )


def test_a_renamed_checkpoint_is_the_same_under_a_name_that_vllm_reads(tmp_path):
    good, bad = checkpoints.dflash(), faults.renamed(checkpoints.dflash(), tmp_path / "eagle3-draft")
    assert {path.name: path.read_bytes() for path in bad.iterdir()} == {
        path.name: path.read_bytes() for path in good.iterdir()
    }


def test_edits_do_not_reach_the_good_folder(target, tmp_path):
    good = checkpoints.mtp_target()
    before = {path.name: path.read_bytes() for path in good.iterdir()}
    faults.quantised_without_mtp(good, tmp_path / "a")
    faults.padded_vocabulary(good, tmp_path / "b")
    faults.cut_off(good, tmp_path / "c")
    assert {path.name: path.read_bytes() for path in good.iterdir()} == before
