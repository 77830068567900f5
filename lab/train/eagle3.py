"""EAGLE-3: one Llama layer over the embedding and three of the target's states, with a small vocabulary of its own."""

from __future__ import annotations

import torch
from lab.train.hidden import Batch
from lab.train.modules import Mlp, Norm, Projections, Shape, begin
from lab.train.objective import best, soft_cross_entropy, weighted
from lab.train.target import Target
from lab.train.unrolled import Past, Unrolled, anchors, attend
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = 4096


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden, shape.eps)
        self.hidden_norm = Norm(shape.hidden, shape.eps)
        self.self_attn = Projections(shape, width=2 * shape.hidden)
        self.post_attention_layernorm = Norm(shape.hidden, shape.eps)
        self.mlp = Mlp(shape)

    def forward(self, embeds: Tensor, hidden: Tensor, positions: Tensor, past: Past) -> Tensor:
        joined = torch.cat([self.input_layernorm(embeds), self.hidden_norm(hidden)], dim=-1)
        hidden = hidden + attend(self.self_attn, joined, positions, past)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Eagle3(Unrolled):
    """`d2t` holds offsets: draft token i is target token i + d2t[i]."""

    method = "eagle3"

    def __init__(self, target: Target, common: Tensor, *, steps: int = 4) -> None:
        """`common`: the target's most frequent tokens; the first `VOCABULARY` of them, by id, are the draft's."""
        super().__init__(target, steps=steps)
        self.shape = Shape(target.config, intermediate=int(target.config["intermediate_size"]))
        self.midlayer = Layer(self.shape)
        self.fc = nn.Linear(3 * self.shape.hidden, self.shape.hidden, bias=False)
        self.norm = Norm(self.shape.hidden, self.shape.eps)
        self.lm_head = nn.Linear(self.shape.hidden, len(common), bias=False)
        self.register_buffer("d2t", common - torch.arange(len(common)))
        self.register_buffer("t2d", torch.zeros(len(target.embeddings), dtype=torch.bool).index_fill(0, common, True))
        begin(self, self.norm, target.norm)
        with torch.no_grad():
            self.lm_head.weight.copy_(target.embeddings[common])

    def vocabulary(self) -> Tensor:
        return torch.arange(len(self.d2t)) + self.d2t

    def first(self, batch: Batch) -> Tensor:
        return self.fc(batch.auxiliary)

    def advance(self, embeds: Tensor, hidden: Tensor, positions: Tensor, past: Past) -> tuple[Tensor, Tensor]:
        hidden = self.midlayer(embeds, hidden, positions, past)
        return self.norm(hidden), hidden

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:  # noqa: ARG002 (other drafts draw from it)
        """Only positions whose own next token the small vocabulary has; its share of the target's distribution."""
        losses, head = [], self.target.embeddings[self.vocabulary()]
        for step, output in enumerate(self.outputs(batch, self.steps)):
            rows, places = anchors(batch, proposed=1 + step).nonzero(as_tuple=True)
            known = self.t2d[batch.tokens[rows, places + 2 + step]]
            rows, places = rows[known], places[known]
            teacher = functional.linear(batch.final[rows, places + 1 + step], head)
            losses.append(soft_cross_entropy(self.lm_head(output[rows, places]), teacher))
        return weighted(losses)

    def proposed(self, output: Tensor) -> Tensor:
        return self.vocabulary()[best(output, self.lm_head.weight)]

    def config(self) -> dict[str, object]:
        return {
            "num_hidden_layers": 1,
            "intermediate_size": self.shape.intermediate,
            "tie_word_embeddings": False,
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "draft_vocab_size": len(self.d2t),
            "attention_bias": False,
            "mlp_bias": False,
        }
