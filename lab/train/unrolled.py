"""Drafts that make one token after another: the passes of vLLM's proposer over all anchors of a sequence at once.

At anchor t the target has the state of position t and has chosen token t+1. Step 0 runs at position t with the
embedding of token t+1 and proposes token t+2; step k runs at position t+k with the embedding of the token just proposed
and the draft's own state instead of the target's. It sees step 0 of every position up to t and its own steps since. The
proposed tokens are taken to be right (the answer's own), which is exact for joint acceptance: after a wrong one nothing
counts any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from lab.train.hidden import Batch
from lab.train.modules import Projections
from lab.train.target import Target
from torch import Tensor, nn


@dataclass
class Past:
    """Keys and values (B, heads, T, D) of step 0 and of each later step."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)


def attend(layer: Projections, x: Tensor, positions: Tensor, past: Past) -> Tensor:
    """Attention of one step for every anchor; adds the step's keys and values to `past`."""
    queries = layer.queries(x, positions) * layer.shape.head_dim**-0.5
    keys, values = layer.keys_values(x, positions)
    past.keys.append(keys)
    past.values.append(values)
    length = x.shape[1]
    unseen = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = [(queries @ past.keys[0].transpose(-1, -2)).masked_fill(unseen, float("-inf"))]
    scores += [(queries * own).sum(-1, keepdim=True) for own in past.keys[1:]]
    weights = torch.cat(scores, dim=-1).softmax(-1)
    attended = weights[..., :length] @ past.values[0]
    for place, own in enumerate(past.values[1:]):
        attended = attended + weights[..., length + place, None] * own
    return layer.output(attended)


class Unrolled(nn.Module):
    """A draft with `first` (state before step 0), `advance` (one step) and `proposed` (what the head makes of it)."""

    def __init__(self, target: Target, *, steps: int) -> None:
        super().__init__()
        self.target, self.steps = target, steps

    def first(self, batch: Batch) -> Tensor:
        raise NotImplementedError

    def advance(self, embeds: Tensor, hidden: Tensor, positions: Tensor, past: Past) -> tuple[Tensor, Tensor]:
        """One step: (what the head reads, the state that the next step starts from)."""
        raise NotImplementedError

    def proposed(self, output: Tensor) -> Tensor:
        """The likeliest token of each row of what the head reads, (N, H) to (N,), in the target's ids."""
        raise NotImplementedError

    def outputs(self, batch: Batch, steps: int) -> list[Tensor]:
        """What the head reads at each step, (B, T, H) each; row t belongs to anchor t."""
        hidden, past, found = self.first(batch), Past(), []
        length = batch.tokens.shape[1]
        for step in range(steps):
            following = torch.roll(batch.tokens, -(1 + step), dims=1)  # what wraps around is never an anchor's
            positions = (torch.arange(length) + step).expand_as(batch.tokens)
            output, hidden = self.advance(self.target.embeddings[following], hidden, positions, past)
            found.append(output)
        return found

    @torch.no_grad()
    def agreements(self, batch: Batch, draft_tokens: int) -> Tensor:
        """(anchors, K): does step k propose the answer's own token?"""
        rows, places = anchors(batch, proposed=draft_tokens).nonzero(as_tuple=True)
        found = []
        for step, output in enumerate(self.outputs(batch, draft_tokens)):
            found.append(self.proposed(output[rows, places]) == batch.tokens[rows, places + 2 + step])
        return torch.stack(found, dim=1)


def anchors(batch: Batch, *, proposed: int) -> Tensor:
    """(B, T) true where the answer has begun at t+1 and still has `proposed` tokens from t+2 on."""
    place = torch.arange(batch.tokens.shape[1])
    begun = place[None] >= batch.prompts[:, None] - 1
    return begun & (place[None] + 1 + proposed < batch.lengths[:, None])
