"""vLLM's pool of blocks, against vLLM itself and against figures worked by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdyno.preflight.memory.layers import Layer, LayerKind, NotModelledError
from specdyno.preflight.memory.pool import PoolRules, bytes_per_token, capacity, state_bytes

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "memory" / "vllm_kv_pool.json").read_text())
MIXES = sorted({case["mix"] for case in RECORDED["cases"]})
RULES = PoolRules(max_model_len=1024, block_tokens=16, in_flight_tokens=2048)
SMOL = Layer(LayerKind.FULL, kv_heads=3, key_dim=64, value_dim=64)
GIB = 2**30


def layers(case):
    one = ((count, Layer(**{**sizes, "kind": LayerKind(sizes["kind"])})) for count, sizes in case["layers"])
    return tuple(chain.from_iterable(repeat(layer, count) for count, layer in one))


@pytest.mark.parametrize("mix", MIXES)
def test_the_pool_holds_what_vllm_says_it_holds(mix):
    cases = [case for case in RECORDED["cases"] if case["mix"] == mix]
    assert len(cases) >= 10
    for case in cases:
        found = capacity(layers(case), case["budget_bytes"], PoolRules(**case["rules"]))
        told = case["vllm"]
        assert (found.kv_tokens, found.concurrency, found.blocks) == (
            told["tokens"], told["concurrency"], told["blocks"],
        ), case  # fmt: skip


def test_smollm2_holds_93_184_tokens_in_two_gib():
    # 30 layers x 3 heads x (64 + 64) x 2 B = 23,040 B; 2 GiB / (128 x 23,040 B) = 728.2 blocks of 128 tokens.
    rules = replace(RULES, block_tokens=128)
    assert bytes_per_token([SMOL] * 30, rules) == 23_040
    found = capacity([SMOL] * 30, 2 * GIB, rules)
    assert (found.blocks, found.kv_tokens) == (728, 93_184)


@pytest.mark.parametrize(("drafted", "tokens"), [(0, 93_184), (1, 90_112), (2, 87_296)])
def test_each_layer_of_a_draft_takes_its_share_of_the_pool(drafted, tokens):
    # As booted: no draft, EAGLE-3 or one MTP layer, DFlash or DSpark of two layers.
    assert capacity([SMOL] * (30 + drafted), 2 * GIB, replace(RULES, block_tokens=128)).kv_tokens == tokens


def test_a_request_takes_whole_blocks():
    # 1,000 tokens take 8 blocks of 128: 704 blocks are 88 requests, and vLLM calls that 88,000 tokens.
    rules = replace(RULES, block_tokens=128, max_model_len=1000)
    found = capacity([SMOL] * 31, 2 * GIB, rules)
    assert (found.blocks, found.request_blocks, found.concurrency, found.kv_tokens) == (704, 8, 88.0, 88_000)


@pytest.mark.parametrize(
    ("name", "layer", "count", "expected"),
    [
        # 32 x 8 x (128 + 128) x 2
        ("Llama 3.1 8B", Layer(LayerKind.FULL, 8, 128, 128), 32, 131_072),
        # 80 x 8 x 256 x 2
        ("Llama 3.1 70B", Layer(LayerKind.FULL, 8, 128, 128), 80, 327_680),
        # 64 x 8 x 256 x 2
        ("Qwen3 32B", Layer(LayerKind.FULL, 8, 128, 128), 64, 262_144),
        # 28 x 4 x 256 x 2
        ("Qwen2.5 7B", Layer(LayerKind.FULL, 4, 128, 128), 28, 57_344),
        # 61 x (512 + 64) x 2: one latent vector for keys and values
        ("DeepSeek V3", Layer(LayerKind.LATENT, 1, 576, 0), 61, 70_272),
    ],
)
def test_published_shapes_take_the_bytes_worked_by_hand(name, layer, count, expected):
    assert bytes_per_token([layer] * count, RULES) == expected, name


def test_an_eight_bit_cache_takes_half():
    assert bytes_per_token([SMOL] * 30, replace(RULES, element_bytes=1)) == 11_520


def test_heads_are_split_over_ranks_and_latent_vectors_are_not():
    heads, latent = Layer(LayerKind.FULL, 8, 128, 128), Layer(LayerKind.LATENT, 1, 576, 0)
    rules = replace(RULES, ranks=4)
    assert bytes_per_token([heads], rules) == 2 * 256 * 2
    assert bytes_per_token([latent], rules) == 576 * 2
    # More ranks than heads: each still holds one.
    assert bytes_per_token([heads], replace(RULES, ranks=16)) == 256 * 2


def test_sliding_layers_stop_growing_at_their_window():
    # Gemma 3 like: 5 of 6 layers keep 1,024 tokens. 60 sliding + 12 full of 4 x (128 + 128) x 2 = 2,048 B per token:
    # groups of 12 layers, pages of 12 x 16 x 2,048 B; a request of 32,768 tokens takes 2,048 blocks in the full group
    # and ceil((1,023 + 2,048) / 16) + 1 = 193 in each of five sliding ones.
    full = Layer(LayerKind.FULL, 4, 128, 128)
    slides = replace(full, kind=LayerKind.SLIDING, window_tokens=1024)
    model = [full if (place + 1) % 6 == 0 else slides for place in range(72)]
    found = capacity(model, 40 * GIB, replace(RULES, max_model_len=32_768))
    assert found.block_bytes == 12 * 16 * 2048
    assert found.request_blocks == 2048 + 5 * 193
    assert found.kv_tokens > 2 * 40 * GIB // (72 * 2048)  # more than twice what full attention everywhere would hold


def test_a_hybrid_keeps_one_state_more_for_each_drafted_token():
    # Qwen3-Next like: 32 value heads of 128 x 128, 16 key heads, convolution of 4 over 2 x 16 x 128 + 32 x 128 = 8,192.
    # 16-bit convolution and 32-bit state: 8,192 x 3 x 2 + 32 x 128 x 128 x 4 = 2,146,304 B per layer and request.
    state = Layer(LayerKind.STATE, conv_width=8192, conv_kernel=4, state_heads=32, state_dim=128 * 128)
    rules = replace(RULES, state_bytes=4, aligned_states=False)
    assert state_bytes([state] * 36, rules) == 36 * 2_146_304
    # With three drafted tokens the convolution is three wider, and there are four copies.
    drafted = replace(rules, draft_tokens=3)
    assert state_bytes([state] * 36, drafted) == 36 * 4 * (8192 * 6 * 2 + 32 * 128 * 128 * 4)
    assert state_bytes([state], replace(rules, aligned_states=True)) == 2 * 2_146_304


def test_latent_vectors_beside_pages_that_do_not_divide_are_refused():
    latent = Layer(LayerKind.LATENT, 1, 576, 0)
    chunks = Layer(LayerKind.CHUNKED, 8, 64, 64, window_tokens=1024)
    with pytest.raises(NotModelledError, match="latent"):
        capacity([latent, latent, chunks], GIB, RULES)


def test_a_model_that_keeps_nothing_is_refused():
    with pytest.raises(NotModelledError, match="nothing per token"):
        capacity([], GIB, RULES)


@given(
    count=st.integers(1, 80),
    drafted=st.integers(1, 8),
    heads=st.integers(1, 16),
    budget=st.integers(0, 200 * GIB),
    length=st.integers(1, 200_000),
)
def test_a_draft_never_adds_room(count, drafted, heads, budget, length):
    layer = Layer(LayerKind.FULL, heads, 128, 128)
    rules = replace(RULES, max_model_len=length)
    without, with_draft = (capacity([layer] * n, budget, rules) for n in (count, count + drafted))
    assert with_draft.concurrency <= without.concurrency
    assert with_draft.blocks * with_draft.block_bytes <= budget
