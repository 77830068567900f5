"""The parts that the drafts are built of; attribute names are the tensor names of the checkpoints."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_SPREAD = 0.02
_QUIET = 0.3


class Shape:
    """Width, heads and positions of a draft's layers, taken from the target's configuration."""

    def __init__(self, config: dict[str, object], *, intermediate: int) -> None:
        self.hidden = int(config["hidden_size"])
        self.heads = int(config["num_attention_heads"])
        self.kv_heads = int(config["num_key_value_heads"])
        self.head_dim = int(config.get("head_dim") or self.hidden // self.heads)
        self.intermediate = intermediate
        self.eps = float(config["rms_norm_eps"])
        self.rope_theta = float(config["rope_parameters"]["rope_theta"])


class Norm(nn.Module):
    """Root-mean-square norm over the last dimension."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x.float(), self.weight.shape, self.weight, self.eps)


class Mlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Projections(nn.Module):
    """Queries, keys, values and output of grouped-query attention; how they attend is the draft's matter."""

    def __init__(self, shape: Shape, *, width: int, bias: bool = False, head_norms: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(width, shape.heads * shape.head_dim, bias=bias)
        self.k_proj = nn.Linear(width, shape.kv_heads * shape.head_dim, bias=bias)
        self.v_proj = nn.Linear(width, shape.kv_heads * shape.head_dim, bias=bias)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)
        self.q_norm = Norm(shape.head_dim, shape.eps) if head_norms else None
        self.k_norm = Norm(shape.head_dim, shape.eps) if head_norms else None

    def queries(self, x: Tensor, positions: Tensor) -> Tensor:
        """(..., T, width) at `positions` (..., T) to (..., heads, T, head_dim), rotated."""
        q = self._heads(self.q_proj(x), self.q_norm)
        return rotate(q, positions, self.shape.rope_theta)

    def keys_values(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """As `queries`, each key and value head repeated for the query heads that share it."""
        k = rotate(self._heads(self.k_proj(x), self.k_norm), positions, self.shape.rope_theta)
        v = self._heads(self.v_proj(x), None)
        group = self.shape.heads // self.shape.kv_heads
        return k.repeat_interleave(group, dim=-3), v.repeat_interleave(group, dim=-3)

    def output(self, attended: Tensor) -> Tensor:
        return self.o_proj(attended.transpose(-3, -2).flatten(-2))

    def _heads(self, x: Tensor, norm: Norm | None) -> Tensor:
        x = x.unflatten(-1, (-1, self.shape.head_dim))
        return (norm(x) if norm is not None else x).transpose(-3, -2)


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary positions, halves paired: `x` (..., heads, T, D), `positions` (..., T) without the heads."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = (positions[..., None].float() * frequencies).unsqueeze(-3)
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


@torch.no_grad()
def begin(draft: nn.Module, last: Norm, norm: Tensor) -> None:
    """First weights: small random matrices, and a last norm that keeps the first logits quiet.

    The target's own norm would make the logits of a random state some six wide; its layers, copied, are about eight
    times larger than a trained draft's, and their first steps go into undoing them.
    """
    for parameter in draft.parameters():
        if parameter.dim() == 2:
            parameter.normal_(std=_SPREAD)
    last.weight.copy_(_QUIET * norm)
