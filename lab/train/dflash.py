"""DFlash: a block of mask tokens after the last token, each proposing the token at its own place."""

from __future__ import annotations

import torch
from lab.train.block import MASK_TOKEN, Block, drawn, every
from lab.train.hidden import Batch
from lab.train.objective import Candidates, best, soft_cross_entropy, weighted
from lab.train.target import Target
from torch import Tensor
from torch.nn import functional


class DFlash(Block):
    method = "dflash"
    block_size = 8

    def __init__(self, target: Target, common: Tensor, *, shared_key_norm: bool = True) -> None:
        super().__init__(target, intermediate=1024, shared_key_norm=shared_key_norm)
        self.candidates = Candidates(common, len(target.embeddings))

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """The number of masks varies, since attention goes both ways and an engine may ask for fewer than the block."""
        masks = (1, 3, 5, 7)[int(torch.randint(4, (1,), generator=generator))]
        places, real = drawn(batch, proposed=masks, generator=generator)
        states = self.states(batch, places, self.blocks(batch, places, masks))
        head = self.target.embeddings[self.candidates.draw(batch.tokens, generator)]
        rows = real.nonzero(as_tuple=True)[0]
        losses = []
        for mask in range(1, masks + 1):
            teacher = functional.linear(batch.final[rows, places[real] + mask], head)
            losses.append(soft_cross_entropy(functional.linear(states[:, :, mask][real], head), teacher))
        return weighted(losses)

    @torch.no_grad()
    def agreements(self, batch: Batch, draft_tokens: int) -> Tensor:
        found = []
        for places, real in every(batch, proposed=draft_tokens):
            states = self.states(batch, places, self.blocks(batch, places, draft_tokens))
            rows = real.nonzero(as_tuple=True)[0]
            wanted = [batch.tokens[rows, places[real] + 1 + mask] for mask in range(1, draft_tokens + 1)]
            proposed = [best(states[:, :, mask][real], self.target.embeddings) for mask in range(1, draft_tokens + 1)]
            found.append(torch.stack([p == w for p, w in zip(proposed, wanted, strict=True)], dim=1))
        return torch.cat(found) if found else torch.empty(0, draft_tokens, dtype=torch.bool)

    def config(self) -> dict[str, object]:
        return self.layout() | {
            "architectures": ["DFlashDraftModel"],
            "block_size": self.block_size,
            "dflash_config": {"mask_token_id": MASK_TOKEN, "target_layer_ids": self.listened()},
        }
