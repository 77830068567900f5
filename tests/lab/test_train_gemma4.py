"""The tiny Gemma 4 pair: its layout is that of the carried pair, its assistant steps as an engine's do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip(
    "torch", reason="torch is not installed (it comes with the demo extra): nothing trains here"
)
pytest.importorskip("transformers", reason="transformers is not installed (it comes with the demo extra)")

from lab.train import gemma4, gemma4_texts  # noqa: E402 (as above)
from safetensors.torch import load_file  # noqa: E402 (only where torch is)

from specdyno.demo import eightbit  # noqa: E402 (as above)

CARRIED = Path(__file__).parents[2] / "lab/drafts"


class NoTokenizer:
    def save_pretrained(self, folder: Path) -> None:
        """The tokenizer is learnt from answers, which are not here."""


def sequences(lengths: tuple[int, ...] = (12, 9)) -> gemma4_texts.Batch:
    torch.manual_seed(2)
    rows = [(4, torch.randint(6, gemma4_texts.VOCABULARY, (length,)).tolist()) for length in lengths]
    return next(gemma4_texts.Sequences(rows, seed=1).once())


@pytest.fixture
def pair() -> gemma4.AssistantLearner:
    torch.manual_seed(1)
    target = gemma4.new_target()
    learner = gemma4.AssistantLearner(gemma4.new_assistant(), target)
    with torch.no_grad():
        for parameter in (*target.parameters(), *learner.parameters()):
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return learner


@pytest.mark.parametrize("name", ["target", "assistant"])
def test_the_pair_has_the_layout_of_the_carried_one(name, tmp_path):
    model = {"target": gemma4.new_target, "assistant": gemma4.new_assistant}[name]()
    gemma4.save(model, NoTokenizer(), tmp_path / name)
    carried = CARRIED / f"gemma4-{name}"
    eightbit.restore(carried / "weights.q8.safetensors", tmp_path / "carried.safetensors")
    ours, theirs = load_file(tmp_path / name / "model.safetensors"), load_file(tmp_path / "carried.safetensors")
    assert {n: (t.dtype, t.shape) for n, t in ours.items()} == {n: (t.dtype, t.shape) for n, t in theirs.items()}
    configs = [json.loads((folder / "config.json").read_text()) for folder in (tmp_path / name, carried)]
    assert configs[0] | {"transformers_version": ""} == configs[1] | {"transformers_version": ""}


def test_the_assistant_over_all_anchors_equals_its_own_class_at_one(pair):
    """transformers' forward takes one position, with the keys and values of the target up to it."""
    batch, anchor, steps = sequences((12,)), 6, 3
    proposals, _ = pair._logits(batch, steps)
    seen = pair.target.model(input_ids=batch.tokens[:, : anchor + 1], use_cache=False, return_shared_kv_states=True)
    hidden = seen.last_hidden_state[:, -1:]
    for step in range(steps):
        embeds = pair.target.model.embed_tokens(batch.tokens[:, anchor + 1 + step, None])
        output = pair.assistant(
            inputs_embeds=torch.cat([embeds, hidden], dim=-1),
            position_ids=torch.tensor([[anchor]]),
            shared_kv_states=dict(seen.shared_kv_states),
        )
        torch.testing.assert_close(proposals[step][:, anchor], output.logits[:, 0], rtol=1e-3, atol=1e-4)
        hidden = output.last_hidden_state


def test_training_the_assistant_leaves_the_target_as_it_is(pair):
    before = {name: tensor.clone() for name, tensor in pair.target.state_dict().items()}
    pair.loss(sequences(), torch.Generator()).backward()
    assert all(parameter.grad is None for parameter in pair.target.parameters())
    assert pair.assistant.pre_projection.weight.grad.abs().sum() > 0
    assert not any(name.startswith("target") for name, _ in pair.named_parameters())
    for name, tensor in pair.target.state_dict().items():
        torch.testing.assert_close(tensor, before[name])
