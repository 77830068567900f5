"""The training loop: a budget of minutes or of steps, a checkpoint every minute, the same batches after a restart.

With `steps` the result is a function of seed and data (on one machine and thread count); with minutes alone the
learning rate follows the clock, and a faster machine gets further.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import torch
from lab.train.work import Progress, whole
from torch import Tensor

_CHECKPOINT_S = 60.0
_WARM_UP = 0.03
_HALF = bool(torch.cpu.get_capabilities().get("avx512_bf16"))  # elsewhere bfloat16 is slower than float32
B_contra = TypeVar("B_contra", contravariant=True)
B = TypeVar("B")


class Learner(Protocol[B_contra]):
    def loss(self, batch: B_contra, generator: torch.Generator) -> Tensor: ...

    def parameters(self) -> object: ...

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state: dict[str, Tensor]) -> object: ...


@dataclass(frozen=True)
class Budget:
    minutes: float
    steps: int | None
    seed: int
    rate: float = 1e-3

    def share(self, step: int, elapsed_s: float) -> float:
        """How much of the budget is used, 0 to 1."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        return min(1.0, elapsed_s / (60.0 * self.minutes))


def rate_at(share: float) -> float:
    """Learning rate as a part of its peak: a short rise, then half a cosine down to a twentieth."""
    if share < _WARM_UP:
        return max(share / _WARM_UP, 0.01)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (share - _WARM_UP) / (1 - _WARM_UP)))


class Run(Generic[B]):
    """One training, from its last checkpoint on; `finish` trains `learner` in place until the budget is used up."""

    def __init__(self, learner: Learner[B], batches: Callable[[int], B], checkpoint: Path, *, budget: Budget) -> None:
        self._learner, self._batches, self._checkpoint, self._budget = learner, batches, checkpoint, budget
        trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
        self._trained = trained
        self._optimiser = torch.optim.AdamW(trained, lr=budget.rate, betas=(0.9, 0.95), weight_decay=0.01)
        self.step, self.elapsed_s = 0, 0.0
        if checkpoint.is_file():
            self._restore()

    def finish(self, label: str) -> None:
        """The checkpoint stays, with the budget used up: a re-run finds nothing left to do."""
        progress, smoothed = Progress(label), None
        kept = began = time.monotonic()
        before_s, first = self.elapsed_s, self.step
        while (share := self._budget.share(self.step, self.elapsed_s)) < 1.0:
            loss = self._advance(share)
            smoothed = loss if smoothed is None else 0.95 * smoothed + 0.05 * loss
            self.elapsed_s = before_s + time.monotonic() - began
            progress.at(self._budget.share(self.step, self.elapsed_s), f"step {self.step}, loss {smoothed:.3f}")
            if time.monotonic() - kept > _CHECKPOINT_S:
                kept = time.monotonic()
                self._keep()
        if self.step > first:
            self._keep()

    def _advance(self, share: float) -> float:
        for group in self._optimiser.param_groups:
            group["lr"] = self._budget.rate * rate_at(share)
        generator = torch.Generator().manual_seed(1_000_003 * self._budget.seed + self.step)
        with torch.autocast("cpu", torch.bfloat16, enabled=_HALF):
            loss = self._learner.loss(self._batches(self.step), generator)
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._trained, 1.0)
        self._optimiser.step()
        self.step += 1
        return float(loss.detach())

    def _keep(self) -> None:
        state = {
            "step": self.step,
            "elapsed_s": self.elapsed_s,
            "learner": self._learner.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }
        with whole(self._checkpoint) as partial:
            torch.save(state, partial)

    def _restore(self) -> None:
        state = torch.load(self._checkpoint, weights_only=True)
        self._learner.load_state_dict(state["learner"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.step, self.elapsed_s = state["step"], state["elapsed_s"]
