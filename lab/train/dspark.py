"""DSpark: DFlash's block, where every place proposes the token after it, plus a low-rank Markov head.

The head adds to the logits a bias that depends on the token before: the block's tokens are chosen left to right.
"""

from __future__ import annotations

import torch
from lab.train.block import MASK_TOKEN, Block, drawn, every
from lab.train.hidden import Batch
from lab.train.objective import Candidates, soft_cross_entropy, weighted
from lab.train.target import Target
from torch import Tensor, nn
from torch.nn import functional

RANK = 16


class MarkovHead(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocabulary, RANK)
        self.markov_w2 = nn.Linear(RANK, vocabulary, bias=False)
        nn.init.normal_(self.markov_w1.weight, std=RANK**-0.5)
        nn.init.zeros_(self.markov_w2.weight)


class DSpark(Block):
    method = "dspark"
    block_size = 7

    def __init__(self, target: Target, common: Tensor, *, shared_key_norm: bool = True) -> None:
        super().__init__(target, intermediate=768, shared_key_norm=shared_key_norm)
        self.candidates = Candidates(common, len(target.embeddings))
        self.markov_head = MarkovHead(len(target.embeddings))

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """The bias follows the answer's own tokens; the length of the block varies, as in DFlash."""
        length = (1, 3, 5, 7)[int(torch.randint(4, (1,), generator=generator))]
        places, real = drawn(batch, proposed=length, generator=generator)
        states = self.states(batch, places, self.blocks(batch, places, length - 1))
        chosen = self.candidates.draw(batch.tokens, generator)
        head, second = self.target.embeddings[chosen], self.markov_head.markov_w2.weight[chosen]
        rows, anchor = real.nonzero(as_tuple=True)[0], places[real]
        losses = []
        for step in range(length):
            before = self.markov_head.markov_w1(batch.tokens[rows, anchor + 1 + step])
            student = functional.linear(states[:, :, step][real], head) + functional.linear(before, second)
            teacher = functional.linear(batch.final[rows, anchor + 1 + step], head)
            losses.append(soft_cross_entropy(student, teacher))
        return weighted(losses)

    @torch.no_grad()
    def agreements(self, batch: Batch, draft_tokens: int) -> Tensor:
        found = []
        for places, real in every(batch, proposed=draft_tokens):
            states = self.states(batch, places, self.blocks(batch, places, draft_tokens - 1))
            rows, anchor = real.nonzero(as_tuple=True)[0], places[real]
            agreed = []
            for step in range(draft_tokens):
                proposed = self._proposed(states[:, :, step][real], batch.tokens[rows, anchor + 1 + step])
                agreed.append(proposed == batch.tokens[rows, anchor + 2 + step])
            found.append(torch.stack(agreed, dim=1))
        return torch.cat(found) if found else torch.empty(0, draft_tokens, dtype=torch.bool)

    def _proposed(self, states: Tensor, before: Tensor) -> Tensor:
        """Largest logit with the bias of the tokens before, some rows at a time."""
        parts = []
        for state, token in zip(states.split(512), before.split(512), strict=True):
            logits = functional.linear(state, self.target.embeddings)
            parts.append((logits + self.markov_head.markov_w2(self.markov_head.markov_w1(token))).argmax(-1))
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.long)

    def config(self) -> dict[str, object]:
        return self.layout() | {
            "architectures": ["Qwen3DSparkModel"],
            "block_size": self.block_size,
            "mask_token_id": MASK_TOKEN,
            "target_layer_ids": self.listened(),
            "markov_rank": RANK,
            "markov_head_type": "vanilla",
            "enable_confidence_head": False,
        }
