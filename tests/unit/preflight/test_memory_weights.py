"""Loaded size of weights, from tensor headers."""

from __future__ import annotations

import math

from specdyno.preflight.checkpoints.schema import Checkpoint, Format, Tensor
from specdyno.preflight.memory.weights import weight_bytes

WIDTHS = {"BF16": 2, "F32": 4, "F16": 2, "F8_E4M3": 1, "I64": 8}


def checkpoint(tensors, *, kind=Format.HUGGING_FACE, **config):
    made = {
        name: Tensor(name, dtype, shape, math.prod(shape) * WIDTHS[dtype]) for name, (dtype, shape) in tensors.items()
    }
    return Checkpoint("org/model", kind, {"num_hidden_layers": 2, **config}, made)


MODEL = {
    "model.embed_tokens.weight": ("BF16", (100, 8)),
    "model.layers.1.mlp.up_proj.weight": ("BF16", (8, 8)),
    "lm_head.weight": ("BF16", (100, 8)),
}


def test_the_sum_of_the_headers():
    assert weight_bytes(checkpoint(MODEL), load_dtype=None) == 1600 + 128 + 1600


def test_an_output_layer_that_is_the_embedding_is_loaded_once():
    assert weight_bytes(checkpoint(MODEL, tie_word_embeddings=True), load_dtype=None) == 1600 + 128


def test_a_head_without_an_embedding_in_the_file_is_kept():
    draft = {"lm_head.weight": ("BF16", (100, 8))}
    assert weight_bytes(checkpoint(draft, tie_word_embeddings=True), load_dtype=None) == 1600


def test_a_32_bit_file_is_loaded_in_16_bits_unless_asked_otherwise():
    wide = {"model.norm.weight": ("F32", (1000,)), "d2t": ("I64", (10,))}
    assert weight_bytes(checkpoint(wide), load_dtype=None) == 2000 + 80
    assert weight_bytes(checkpoint(wide), load_dtype="bfloat16") == 2000 + 80
    assert weight_bytes(checkpoint(wide), load_dtype="float32") == 4000 + 80


def test_a_16_bit_file_doubles_when_loaded_in_32_bits():
    assert weight_bytes(checkpoint({"w": ("F16", (10, 10))}), load_dtype="float32") == 400


def test_quantised_weights_and_their_scales_stay_as_they_are():
    parts = {"w": ("F8_E4M3", (64, 64)), "w_scale_inv": ("F32", (2, 2))}
    assert weight_bytes(checkpoint(parts, quantization_config={"quant_method": "fp8"}), load_dtype=None) == 4096 + 16


def test_mtp_layers_count_for_their_arm_only():
    parts = {
        **MODEL,
        "model.layers.2.eh_proj.weight": ("BF16", (8, 16)),
        "mtp.fc.weight": ("BF16", (8, 8)),
        "model.mtp_layers.0.norm.weight": ("BF16", (8,)),
    }
    whole = checkpoint(parts)
    assert weight_bytes(whole, load_dtype=None, mtp=True) == 256 + 128 + 16
    assert weight_bytes(whole, load_dtype=None, mtp=False) == 1600 + 128 + 1600
    assert weight_bytes(whole, load_dtype=None) == 3328 + 400


def test_a_gguf_is_taken_as_it_lies():
    assert weight_bytes(checkpoint({"w": ("F32", (10,))}, kind=Format.GGUF), load_dtype=None) == 40


def test_without_headers_nothing_is_known():
    assert weight_bytes(Checkpoint("org/model", Format.HUGGING_FACE, {}), load_dtype=None) is None
