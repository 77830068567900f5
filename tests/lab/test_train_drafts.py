"""The drafts' passes over whole sequences are what an engine does one anchor at a time; checkpoints have its names."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip(
    "torch", reason="torch is not installed (it comes with the demo extra): nothing trains here"
)

from lab.train import accept, export, hidden, learn, objective, target, unrolled  # noqa: E402 (as above)
from lab.train.block import every  # noqa: E402 (as above)
from lab.train.dflash import DFlash  # noqa: E402 (as above)
from lab.train.dspark import DSpark  # noqa: E402 (as above)
from lab.train.eagle3 import Eagle3  # noqa: E402 (as above)
from lab.train.mtp import Mtp  # noqa: E402 (as above)
from safetensors.torch import load_file, save_file  # noqa: E402 (only where torch is)

from specdyno.demo import checkpoints, eightbit  # noqa: E402 (as above)

WIDTH, VOCABULARY, LAYERS = 24, 50, 8
CONFIG = {
    "model_type": "llama", "tie_word_embeddings": True, "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
    "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 1100,
    "vocab_size": VOCABULARY, "rms_norm_eps": 9.999999747378752e-06, "hidden_act": "silu",
    "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
}  # fmt: skip
KINDS = [Eagle3, Mtp, DFlash, DSpark]


@pytest.fixture
def folder(tmp_path) -> Path:
    """A target with random weights of a Llama's names and shapes."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * 0.3).to(torch.bfloat16)

    inner, tensors = CONFIG["intermediate_size"], {"model.embed_tokens.weight": random(VOCABULARY, WIDTH)}
    tensors["model.norm.weight"] = 1 + random(WIDTH)
    for number in range(LAYERS):
        layer = {
            "input_layernorm": 1 + random(WIDTH), "post_attention_layernorm": 1 + random(WIDTH),
            "self_attn.q_proj": random(24, WIDTH), "self_attn.k_proj": random(8, WIDTH),
            "self_attn.v_proj": random(8, WIDTH), "self_attn.o_proj": random(WIDTH, 24),
            "mlp.gate_proj": random(inner, WIDTH), "mlp.up_proj": random(inner, WIDTH),
            "mlp.down_proj": random(WIDTH, inner) * 0.1,
        }  # fmt: skip
        tensors |= {f"model.layers.{number}.{name}.weight": tensor for name, tensor in layer.items()}
    path = tmp_path / "target"
    path.mkdir()
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


def sequences(seed: int = 3, lengths: tuple[int, ...] = (12, 9, 17)) -> hidden.Batch:
    torch.manual_seed(seed)
    rows = [
        hidden.Batch(
            torch.randint(VOCABULARY, (1, length)),
            torch.randn(1, length, 3 * WIDTH),
            torch.randn(1, length, WIDTH),
            torch.tensor([4]),
            torch.tensor([length]),
        )
        for length in lengths
    ]
    return hidden.collate(rows)


def made(kind: type, folder: Path) -> torch.nn.Module:
    """A draft whose weights are all random, so that nothing is right by being zero."""
    torch.manual_seed(5)
    draft = kind(target.read(folder), torch.arange(0, VOCABULARY, 2))
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return draft


def attend_with_a_growing_cache(layer, x, positions, past):
    """What an engine does: the last query of a pass sees every key so far, whichever pass made it."""
    keys, values = layer.keys_values(x, positions)
    past.keys[:] = [torch.cat([*past.keys, keys], dim=2)]
    past.values[:] = [torch.cat([*past.values, values], dim=2)]
    causal = len(x[0]) > 1
    queries = layer.queries(x, positions)
    attended = torch.nn.functional.scaled_dot_product_attention(queries, past.keys[0], past.values[0], is_causal=causal)
    return layer.output(attended)


@pytest.mark.parametrize("kind", [Eagle3, Mtp])
def test_unrolled_steps_equal_the_engine_one_anchor_at_a_time(kind, folder, monkeypatch):
    draft, batch, steps = made(kind, folder), sequences(lengths=(12,)), 3
    whole = draft.outputs(batch, steps)
    monkeypatch.setattr(sys.modules[kind.__module__], "attend", attend_with_a_growing_cache)
    for anchor in range(3, 8):
        seen = anchor + 1
        cut = replace(batch, auxiliary=batch.auxiliary[:, :seen], final=batch.final[:, :seen])
        state, past = draft.first(cut), unrolled.Past()
        tokens, positions = batch.tokens[:, 1 : seen + 1], torch.arange(seen)[None]
        for step in range(steps):
            output, state = draft.advance(
                draft.target.embeddings[tokens], state[:, -tokens.shape[1] :], positions, past
            )
            torch.testing.assert_close(whole[step][:, anchor], output[:, -1])
            tokens, positions = batch.tokens[:, anchor + 2 + step, None], torch.tensor([[anchor + 1 + step]])


@pytest.mark.parametrize("kind", [DFlash, DSpark])
def test_a_block_sees_what_is_before_its_anchor_and_nothing_after(kind, folder):
    draft, batch = made(kind, folder), sequences(lengths=(14,))
    places = torch.tensor([[5, 8]])
    states = draft.states(batch, places, draft.blocks(batch, places, 3))
    alone = draft.states(batch, places[:, :1], draft.blocks(batch, places[:, :1], 3))
    torch.testing.assert_close(states[:, :1], alone)
    auxiliary = batch.auxiliary.clone()
    auxiliary[:, 6:] += 1
    later = replace(batch, auxiliary=auxiliary)
    torch.testing.assert_close(draft.states(later, places, draft.blocks(batch, places, 3))[:, 0], states[:, 0])
    auxiliary[:, 5] += 1
    assert not torch.allclose(draft.states(later, places, draft.blocks(batch, places, 3))[:, 0], states[:, 0])


def test_a_block_is_read_in_both_directions(folder):
    draft, batch = made(DFlash, folder), sequences(lengths=(14,))
    places = torch.tensor([[5]])
    short = draft.states(batch, places, draft.blocks(batch, places, 1))
    long = draft.states(batch, places, draft.blocks(batch, places, 4))
    assert not torch.allclose(short[:, :, 0], long[:, :, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_every_anchor_of_an_answer_is_checked_once(kind, folder):
    draft, batch = made(kind, folder), sequences()
    # 4 prompt tokens: anchors from 3 on, each with the chosen token and two proposals before the end.
    assert len(draft.agreements(batch, 2)) == sum(length - 3 - 3 for length in (12, 9, 17))
    total = sum(int(real.sum()) for _, real in every(batch, proposed=2))
    assert total == int(unrolled.anchors(batch, proposed=2).sum())


@pytest.mark.parametrize("kind", KINDS)
def test_training_on_one_batch_raises_its_acceptance(kind, folder, tmp_path):
    draft, batch = made(kind, folder), sequences()
    batch = replace(batch, tokens=2 * (batch.tokens // 2))  # within the small vocabulary
    following = batch.tokens.roll(-1, dims=1)
    batch = replace(batch, final=40 * draft.target.embeddings[following])  # the target is sure of the answers
    before = accept.offline(draft, [batch], draft_tokens=2)["joint"][0]
    budget = learn.Budget(minutes=1, steps=60, seed=1, rate=5e-3)
    learn.Run(draft, lambda _: batch, tmp_path / "checkpoint.pt", budget=budget).finish("test")
    assert accept.offline(draft, [batch], draft_tokens=2)["joint"][0] > before + 0.4


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_training_goes_on_to_the_same_weights(kind, folder, tmp_path, monkeypatch):
    budget = learn.Budget(minutes=1, steps=6, seed=1)
    whole = made(kind, folder)
    learn.Run(whole, sequences, tmp_path / "whole.pt", budget=budget).finish("test")
    halted = made(kind, folder)
    monkeypatch.setattr(learn, "_CHECKPOINT_S", 0.0)

    def until_third(step: int) -> hidden.Batch:
        if step == 3:
            raise KeyboardInterrupt
        return sequences(step)

    with pytest.raises(KeyboardInterrupt):
        learn.Run(halted, until_third, tmp_path / "halted.pt", budget=budget).finish("test")
    resumed = made(kind, folder)
    run = learn.Run(resumed, sequences, tmp_path / "halted.pt", budget=budget)
    assert run.step == 3
    run.finish("test")
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], tensor, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_draft_reads_back_and_packs(kind, folder, tmp_path):
    draft = made(kind, folder)
    export.write(draft, tmp_path / "draft")
    export.pack(tmp_path / "draft", tmp_path / "packed")
    eightbit.restore(tmp_path / "packed/weights.q8.safetensors", tmp_path / "restored.safetensors")
    written, restored = load_file(tmp_path / "draft/model.safetensors"), load_file(tmp_path / "restored.safetensors")
    assert {n: (t.dtype, t.shape) for n, t in written.items()} == {n: (t.dtype, t.shape) for n, t in restored.items()}
    again = kind(target.read(folder), torch.arange(0, VOCABULARY, 2))
    export.read(again, tmp_path / "draft")
    for name, tensor in again.state_dict().items():
        torch.testing.assert_close(tensor, draft.state_dict()[name], rtol=1e-2, atol=1e-2, msg=name)


def given(method: str) -> Path:
    """The packed draft that the repository carries; EAGLE-3's is the demo's."""
    if method == "eagle3":
        return Path(checkpoints.__file__).with_name("draft")
    return Path(__file__).parents[2] / "lab/drafts" / method


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_for_the_demos_target_has_exactly_the_layout_of_the_carried_one(kind, tmp_path):
    """Tensor names, types and shapes, and the whole configuration."""
    config = json.loads((given("mtp") / "config.json").read_text()) | {"model_type": "llama"}
    size, width = config["vocab_size"], config["hidden_size"]
    smollm2 = target.Target(tmp_path, config, torch.zeros(size, width), torch.ones(width))
    export.write(kind(smollm2, torch.arange(4096)), tmp_path / "draft")
    eightbit.restore(given(kind.method) / "weights.q8.safetensors", tmp_path / "given.safetensors")
    ours, theirs = load_file(tmp_path / "draft/model.safetensors"), load_file(tmp_path / "given.safetensors")
    assert {n: (t.dtype, t.shape) for n, t in ours.items()} == {n: (t.dtype, t.shape) for n, t in theirs.items()}
    written = json.loads((tmp_path / "draft/config.json").read_text())
    assert written == json.loads((given(kind.method) / "config.json").read_text())


def test_small_vocabulary_maps_there_and_back(folder):
    draft = made(Eagle3, folder)
    assert draft.vocabulary().tolist() == list(range(0, VOCABULARY, 2))
    assert draft.t2d.nonzero().flatten().tolist() == draft.vocabulary().tolist()


def test_a_target_with_native_mtp_gains_zero_biases_and_the_drafts_tensors(folder, tmp_path):
    export.write(made(Mtp, folder), tmp_path / "draft")
    export.merge(folder, tmp_path / "draft", tmp_path / "merged")
    merged, alone = load_file(tmp_path / "merged/model.safetensors"), load_file(folder / "model.safetensors")
    for name, tensor in alone.items():
        torch.testing.assert_close(merged[name], tensor)
    added = merged.keys() - alone.keys()
    biases = {name for name in added if name.startswith("model.layers.")}
    assert len(biases) == 3 * LAYERS
    assert not any(merged[name].any() for name in biases)
    assert {name for name in added if "mtp_layers.0." in name} == load_file(tmp_path / "draft/model.safetensors").keys()


def test_shards_visit_every_sequence_once_an_epoch_in_an_order_of_the_seed(tmp_path):
    for part, count in enumerate((5, 3)):
        states = {}
        for row in range(count):
            states[f"{row:05d}.tokens"] = torch.tensor([part * 10 + row, 1, 2], dtype=torch.int32)
            states[f"{row:05d}.prompt"] = torch.tensor([1], dtype=torch.int32)
            states[f"{row:05d}.auxiliary"] = torch.zeros(3, 6, dtype=torch.bfloat16)
            states[f"{row:05d}.final"] = torch.zeros(3, 2, dtype=torch.bfloat16)
        save_file(states, tmp_path / f"train-{part:03d}.safetensors")
    shards = hidden.Shards(tmp_path, "train", rows=2, seed=1)
    epochs = [[shards.at(step).tokens[:, 0].tolist() for step in range(first, first + 5)] for first in (0, 5)]
    assert [sorted(token for batch in epoch for token in batch) for epoch in epochs] == [
        [0, 1, 2, 3, 4, 10, 11, 12]
    ] * 2
    assert epochs[0] != epochs[1]
    again = hidden.Shards(tmp_path, "train", rows=2, seed=1)
    assert [again.at(step).tokens[:, 0].tolist() for step in range(5)] == epochs[0]


def test_joint_acceptance_stops_at_the_first_miss():
    agreed = torch.tensor([[True, True, True], [True, False, True], [False, True, True]])
    assert objective.joint(agreed).tolist() == [2, 1, 1]


def test_the_objective_is_the_entropy_where_the_student_is_the_teacher():
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [50.0, 0.0, 0.0, 0.0]])
    assert float(objective.soft_cross_entropy(logits, logits)) == pytest.approx(torch.log(torch.tensor(4.0)) / 2)
    assert float(objective.soft_cross_entropy(logits[:0], logits[:0])) == 0.0


def test_later_positions_weigh_less():
    ones = [torch.tensor(1.0), torch.tensor(0.0)]
    assert float(objective.weighted(ones)) == pytest.approx(1 / 1.85)


def test_frequent_tokens_come_first_and_in_order():
    assert objective.frequent(torch.tensor([7, 7, 3, 3, 3, 9]), 2, 10).tolist() == [3, 7]
    assert objective.frequent(torch.tensor([7]), 3, 10).tolist() == [0, 1, 7]


def test_the_learning_rate_rises_then_falls():
    rates = [learn.rate_at(share) for share in (0.0, 0.03, 0.5, 1.0)]
    assert rates[0] < rates[2] < rates[1] == pytest.approx(1.0)
    assert rates[3] == pytest.approx(0.05)
