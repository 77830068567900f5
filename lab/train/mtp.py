"""Native multi-token prediction in MiMo's layout: one more layer of the target, on its last state and an embedding.

The target itself is SmolLM2 under MiMo's name, so the draft's tensors are merged into a copy of it (`export.merge`).
"""

from __future__ import annotations

import torch
from lab.train.hidden import Batch
from lab.train.modules import Mlp, Norm, Projections, Shape, begin
from lab.train.objective import Candidates, best, soft_cross_entropy, weighted
from lab.train.target import Target
from lab.train.unrolled import Past, Unrolled, anchors, attend
from torch import Tensor, nn
from torch.nn import functional


class Mtp(Unrolled):
    method = "mtp"
    prefix = "model.mtp_layers.0."

    def __init__(self, target: Target, common: Tensor, *, steps: int = 3) -> None:
        super().__init__(target, steps=steps)
        self.shape = shape = Shape(target.config, intermediate=int(target.config["intermediate_size"]))
        self.candidates = Candidates(common, len(target.embeddings))
        self.token_layernorm = Norm(shape.hidden, shape.eps)
        self.hidden_layernorm = Norm(shape.hidden, shape.eps)
        self.input_proj = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.input_layernorm = Norm(shape.hidden, shape.eps)
        self.self_attn = Projections(shape, width=shape.hidden, bias=True)
        self.post_attention_layernorm = Norm(shape.hidden, shape.eps)
        self.mlp = Mlp(shape)
        self.final_layernorm = Norm(shape.hidden, shape.eps)
        begin(self, self.final_layernorm, target.norm)
        with torch.no_grad():
            for projection in (self.self_attn.q_proj, self.self_attn.k_proj, self.self_attn.v_proj):
                projection.bias.zero_()

    def first(self, batch: Batch) -> Tensor:
        return batch.final

    def advance(self, embeds: Tensor, hidden: Tensor, positions: Tensor, past: Past) -> tuple[Tensor, Tensor]:
        embeds = embeds.masked_fill(positions[..., None] == 0, 0.0)  # as vLLM does at the very first position
        joined = torch.cat([self.hidden_layernorm(hidden), self.token_layernorm(embeds)], dim=-1)
        hidden = self.input_proj(joined)
        hidden = hidden + attend(self.self_attn, self.input_layernorm(hidden), positions, past)
        hidden = hidden + self.mlp(self.post_attention_layernorm(hidden))
        hidden = self.final_layernorm(hidden)
        return hidden, hidden

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        losses, head = [], self.target.embeddings[self.candidates.draw(batch.tokens, generator)]
        for step, output in enumerate(self.outputs(batch, self.steps)):
            rows, places = anchors(batch, proposed=1 + step).nonzero(as_tuple=True)
            teacher = functional.linear(batch.final[rows, places + 1 + step], head)
            losses.append(soft_cross_entropy(functional.linear(output[rows, places], head), teacher))
        return weighted(losses)

    def proposed(self, output: Tensor) -> Tensor:
        return best(output, self.target.embeddings)

    def config(self) -> dict[str, object]:
        layers = self.target.config["num_hidden_layers"]
        return {
            "num_hidden_layers": layers,
            "intermediate_size": self.shape.intermediate,
            "tie_word_embeddings": True,
            "architectures": ["MiMoForCausalLM"],
            "model_type": "qwen2",
            "num_nextn_predict_layers": 1,
            "use_sliding_window": False,
            "sliding_window": None,
            "max_window_layers": layers,
            "attention_bias": True,
        }
