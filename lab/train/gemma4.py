"""A tiny Gemma 4 target with its assistant: a pair of the real architecture, small enough for two cores.

The target is trained on the answers' text with a tokenizer of its own; then it writes answers itself, and the assistant
is trained against those. The classes are those of transformers. The assistant keeps no keys and values: it reads the
target's, at one position for all its steps, with the embedding of the last token and its own projected state.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import torch
from lab.train import accept, export, gemma4_texts
from lab.train.gemma4_texts import BOS, EOS, PAD, VOCABULARY, Batch, Sequences
from lab.train.learn import Budget, Run
from lab.train.objective import soft_cross_entropy, weighted
from lab.train.unrolled import anchors
from torch import Tensor, nn
from torch.nn import functional

_STEPS = 4


class TargetLearner(nn.Module):
    """The target as a learner of the next token, in prompts and answers alike."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:  # noqa: ARG002 (drafts draw from it)
        logits = self.model(input_ids=batch.tokens, use_cache=False).logits[:, :-1]
        return functional.cross_entropy(logits.flatten(0, 1), batch.tokens[:, 1:].flatten(), ignore_index=PAD)


class AssistantLearner(nn.Module):
    """The assistant over a frozen target: all anchors of a sequence at once, several steps unrolled."""

    def __init__(self, assistant: nn.Module, target: nn.Module) -> None:
        super().__init__()
        self.assistant = assistant
        self._frozen = (target.requires_grad_(False).eval(),)  # in a tuple: not a part of this module

    @property
    def target(self) -> nn.Module:
        return self._frozen[0]

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:  # noqa: ARG002 (drafts draw from it)
        losses = []
        proposals, teacher = self._logits(batch, _STEPS)
        for step, logits in enumerate(proposals):
            rows, places = anchors(batch, proposed=1 + step).nonzero(as_tuple=True)
            losses.append(soft_cross_entropy(logits[rows, places], teacher[rows, places + 1 + step]))
        return weighted(losses)

    @torch.no_grad()
    def agreements(self, batch: Batch, draft_tokens: int) -> Tensor:
        rows, places = anchors(batch, proposed=draft_tokens).nonzero(as_tuple=True)
        proposals, _ = self._logits(batch, draft_tokens)
        found = [
            logits[rows, places].argmax(-1) == batch.tokens[rows, places + 2 + step]
            for step, logits in enumerate(proposals)
        ]
        return torch.stack(found, dim=1)

    def _logits(self, batch: Batch, steps: int) -> tuple[list[Tensor], Tensor]:
        """The assistant's logits at each step and the target's, all (B, T, vocabulary)."""
        length = batch.tokens.shape[1]
        with torch.no_grad():
            seen = self.target.model(input_ids=batch.tokens, use_cache=False, return_shared_kv_states=True)
            teacher = self.target.lm_head(seen.last_hidden_state)
        # Sequences are shorter than the sliding window, so both kinds of layer see all that came before.
        causal = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
        hidden, proposals = seen.last_hidden_state, []
        for step in range(steps):
            embeds = self.target.model.embed_tokens(torch.roll(batch.tokens, -(1 + step), dims=1))
            output = self.assistant.model(
                inputs_embeds=self.assistant.pre_projection(torch.cat([embeds, hidden], dim=-1)),
                attention_mask={"full_attention": causal, "sliding_attention": causal},
                position_ids=torch.arange(length)[None],
                shared_kv_states=dict(seen.shared_kv_states),
                use_cache=False,
            ).last_hidden_state
            proposals.append(self.assistant.lm_head(output))
            hidden = self.assistant.post_projection(output)
        return proposals, teacher


def make(work: Path, budget: Budget, *, live: bool) -> dict[str, object]:
    """Train target and assistant, half the budget each; both exported; what was accepted."""
    folder = work / "gemma4"
    half = replace(budget, minutes=budget.minutes / 2, rate=2e-3)
    tokenizer = gemma4_texts.tokenizer(work, folder / "tokenizer")
    torch.manual_seed(budget.seed)
    target = new_target()
    texts = Sequences(gemma4_texts.texts(work / "answers", tokenizer, "train"), budget.seed)
    learnt = Run(TargetLearner(target), texts.at, folder / "target.pt", budget=half)
    learnt.finish("gemma4 target")
    save(target, tokenizer, folder / "target")
    assistant = AssistantLearner(new_assistant(), target)
    parts = {}
    for split in ("train", "heldout"):
        kept = folder / f"written-{split}-{learnt.step}.pt"  # a target trained further writes anew
        rows = gemma4_texts.written(work, target, tokenizer, kept, split=split)
        parts[split] = Sequences(rows, budget.seed)
    written, held_out = parts["train"], parts["heldout"]
    report: dict[str, object] = {"untrained": accept.offline(assistant, held_out.once(), draft_tokens=7)}
    run = Run(assistant, written.at, folder / "assistant.pt", budget=half)
    run.finish("gemma4 assistant")
    save(assistant.assistant, tokenizer, folder / "assistant")
    for name in ("target", "assistant"):
        export.pack(folder / name, work / "packed" / f"gemma4-{name}")
    report |= {"trained_steps": run.step, "trained_s": round(run.elapsed_s)}
    report["offline"] = accept.offline(assistant, held_out.once(), draft_tokens=7)
    if live:
        speculation = {"method": "mtp", "model": str(folder / "assistant"), "num_speculative_tokens": 3}
        report["live"] = accept.live(folder / "target", speculation, work / "prompts.jsonl")
    return report


def _text_config(**changes: object) -> object:
    from transformers import Gemma4TextConfig  # noqa: PLC0415 (seconds to import, and only here)

    common = {
        "vocab_size": VOCABULARY,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0,
        "max_position_embeddings": 4096,
        "sliding_window": 512,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "bos_token_id": BOS,
        "tie_word_embeddings": True,
        "num_global_key_value_heads": None,
        "global_head_dim": 64,
    }
    return Gemma4TextConfig(**(common | changes))


def new_target() -> nn.Module:
    from transformers import Gemma4ForCausalLM  # noqa: PLC0415 (seconds to import, and only here)

    return Gemma4ForCausalLM(
        _text_config(
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=6,
            num_kv_shared_layers=0,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
        )
    )


def new_assistant() -> nn.Module:
    from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM  # noqa: PLC0415 (as above)

    text = _text_config(
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_kv_shared_layers=3,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    )
    return Gemma4AssistantForCausalLM(Gemma4AssistantConfig(text_config=text, backbone_hidden_size=256))


def save(model: nn.Module, tokenizer: object, folder: Path) -> None:
    """A bfloat16 copy beside the one in training, with the tokenizer's files."""
    stored = copy.deepcopy(model).to(torch.bfloat16)
    stored.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
