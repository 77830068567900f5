"""What training minimises: cross-entropy against the target's whole distribution, later positions counting less."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

DECAY = 0.85


def soft_cross_entropy(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean over rows of -Σ p log q, for logits (rows, tokens) of the teacher (p) and the student (q); 0 of no rows."""
    return -(teacher.float().softmax(-1) * student.float().log_softmax(-1)).sum() / max(len(student), 1)


def weighted(losses: list[Tensor]) -> Tensor:
    """Mean of the positions' losses with weights 1, 0.85, 0.85², …"""
    weights = [DECAY**place for place in range(len(losses))]
    return sum(w * loss for w, loss in zip(weights, losses, strict=True)) / sum(weights)


def frequent(tokens: Tensor, count: int, vocabulary: int) -> Tensor:
    """The `count` most frequent of `tokens`, ascending; where fewer occur, the lowest unseen ids fill up."""
    seen = torch.bincount(tokens, minlength=vocabulary)
    return seen.sort(descending=True, stable=True).indices[:count].sort().values


class Candidates:
    """A part of the vocabulary per step, since logits over 49,152 tokens would take most of the time.

    The frequent tokens always, those of the batch, and random others, so that no token's logit is left alone for good.
    """

    def __init__(self, common: Tensor, vocabulary: int, *, others: int = 1024) -> None:
        self._common, self._vocabulary, self._others = common, vocabulary, others

    def draw(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        chance = torch.randint(self._vocabulary, (self._others,), generator=generator)
        return torch.cat([self._common, tokens.flatten(), chance]).unique()


def joint(agreements: Tensor) -> Tensor:
    """(rows, K) agreement by position to the counts (K) of rows that agree up to and with each position."""
    return agreements.long().cumprod(dim=1).sum(dim=0)


def best(states: Tensor, head: Tensor, *, rows: int = 512) -> Tensor:
    """Index of the largest logit of each state (n, H) under `head` (V, H), some rows at a time."""
    parts = [functional.linear(part, head).argmax(-1) for part in states.split(rows)]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.long)
