"""Drafts that propose a whole block in one pass: queries over the target's states and, both ways, over each other.

A block begins with the token after the anchor, which the target has just chosen; the rest are mask tokens. Keys and
values of the context come from the target's states (mixed by `fc`, normed, projected by each layer), those of the
block from the block itself.
"""

from __future__ import annotations

import torch
from lab.train.hidden import Batch
from lab.train.modules import Mlp, Norm, Projections, Shape, begin
from lab.train.target import Target, auxiliary_layers
from lab.train.unrolled import anchors
from torch import Tensor, nn

MASK_TOKEN = 0
_BLOCKS_PER_SEQUENCE = 24


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden, shape.eps)
        self.self_attn = Projections(shape, width=shape.hidden, head_norms=True)
        self.post_attention_layernorm = Norm(shape.hidden, shape.eps)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, positions: Tensor, context: tuple[Tensor, Tensor], unseen: Tensor) -> Tensor:
        x = x + self._attend(self.input_layernorm(x), positions, context, unseen)
        return x + self.mlp(self.post_attention_layernorm(x))

    def _attend(self, x: Tensor, positions: Tensor, context: tuple[Tensor, Tensor], unseen: Tensor) -> Tensor:
        """`x` (B, A, Q, H) for A blocks of Q; `context` (B, heads, T, D); `unseen` (B, A, T) hides from each block."""
        attention = self.self_attn
        queries = attention.queries(x, positions) * attention.shape.head_dim**-0.5  # (B, A, heads, Q, D)
        keys, values = attention.keys_values(x, positions)
        outside = (queries @ context[0][:, None].transpose(-1, -2)).masked_fill(unseen[:, :, None, None], float("-inf"))
        inside = queries @ keys.transpose(-1, -2)
        weights = torch.cat([outside, inside], dim=-1).softmax(-1)
        length = outside.shape[-1]
        return attention.output(weights[..., :length] @ context[1][:, None] + weights[..., length:] @ values)


class Block(nn.Module):
    """Backbone of DFlash and DSpark. Its layers share one key norm: vLLM's CPU build applies the first layer's to all
    of the context, and so nothing is lost there (`shared_key_norm=False` reads checkpoints made otherwise)."""

    def __init__(self, target: Target, *, intermediate: int, layers: int = 2, shared_key_norm: bool = True) -> None:
        super().__init__()
        self.target = target
        self.shape = shape = Shape(target.config, intermediate=intermediate)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(layers))
        self.fc = nn.Linear(3 * shape.hidden, shape.hidden, bias=False)
        self.hidden_norm = Norm(shape.hidden, shape.eps)
        self.norm = Norm(shape.hidden, shape.eps)
        begin(self, self.norm, target.norm)
        if shared_key_norm:
            for layer in self.layers[1:]:
                layer.self_attn.k_norm = self.layers[0].self_attn.k_norm

    def states(self, batch: Batch, places: Tensor, tokens: Tensor) -> Tensor:
        """Normed states (B, A, Q, H) of blocks after the anchors `places` (B, A), with input `tokens` (B, A, Q)."""
        seen = torch.arange(batch.tokens.shape[1])
        unseen = seen[None, None] > places[..., None]
        positions = places[..., None] + 1 + torch.arange(tokens.shape[-1])
        mixed = self.hidden_norm(self.fc(batch.auxiliary))
        x = self.target.embeddings[tokens]
        for layer in self.layers:
            context = layer.self_attn.keys_values(mixed, seen.expand_as(batch.tokens))
            x = layer(x, positions, context, unseen)
        return self.norm(x)

    def blocks(self, batch: Batch, places: Tensor, masks: int) -> Tensor:
        """Input tokens of the blocks: the token after the anchor and `masks` masks."""
        chosen = batch.tokens.gather(1, places + 1)
        return torch.cat([chosen[..., None], torch.full((*chosen.shape, masks), MASK_TOKEN)], dim=-1)

    def layout(self) -> dict[str, object]:
        """What the configurations of both drafts share."""
        return {
            "num_hidden_layers": len(self.layers),
            "intermediate_size": self.shape.intermediate,
            "tie_word_embeddings": False,
            "model_type": "qwen3",
            "attention_bias": False,
            "use_sliding_window": False,
            "layer_types": ["full_attention"] * len(self.layers),
        }

    def listened(self) -> list[int]:
        """Layers counted as these drafts count them: the state after layer 1 is that after two layers."""
        return [after - 1 for after in auxiliary_layers(int(self.target.config["num_hidden_layers"]))]


def drawn(batch: Batch, *, proposed: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Anchors of some blocks per sequence, (B, A), and which of them are real (a short answer has fewer)."""
    allowed = anchors(batch, proposed=proposed)
    chance = torch.rand(allowed.shape, generator=generator).masked_fill(~allowed, -1.0)
    places = chance.topk(min(_BLOCKS_PER_SEQUENCE, chance.shape[1] - 1), dim=1).indices
    real = allowed.gather(1, places)
    return places.where(real, 0), real


def every(batch: Batch, *, proposed: int) -> list[tuple[Tensor, Tensor]]:
    """All anchors, in groups of the size that `drawn` makes."""
    allowed = anchors(batch, proposed=proposed)
    ranks = allowed.cumsum(1) - 1
    groups = []
    for first in range(0, int(allowed.sum(1).max()), _BLOCKS_PER_SEQUENCE):
        real = torch.zeros(len(allowed), _BLOCKS_PER_SEQUENCE, dtype=torch.bool)
        places = torch.zeros(len(allowed), _BLOCKS_PER_SEQUENCE, dtype=torch.long)
        inside = allowed & (ranks >= first) & (ranks < first + _BLOCKS_PER_SEQUENCE)
        rows, columns = inside.nonzero(as_tuple=True)
        slots = ranks[rows, columns] - first
        places[rows, slots], real[rows, slots] = columns, True
        groups.append((places, real))
    return groups
