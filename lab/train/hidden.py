"""The target's hidden states over prompts and answers, once computed, kept in shards of bfloat16, read one at a time.

A shard belongs to one part of the answers. The states are the target's own precision, so nothing is lost by it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from lab.train import answers
from lab.train.target import auxiliary_layers
from lab.train.work import Progress, whole
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

_ROWS = 8


@dataclass(frozen=True)
class Batch:
    """Sequences padded on the right.

    `tokens` (B, T); `auxiliary` (B, T, 3H), the states after three layers; `final` (B, T, H), after the last norm, so
    that final @ embeddings.T are the target's logits for the next token; `prompts`, `lengths` (B): tokens in the
    prompt and in all.
    """

    tokens: Tensor
    auxiliary: Tensor
    final: Tensor
    prompts: Tensor
    lengths: Tensor


def cache(target: Path, answered: Path, folder: Path) -> None:
    """Write the shards that `folder` lacks; at most one part of the answers is in memory."""
    wanted = [path for path in sorted(answered.glob("*.jsonl")) if not _shard(folder, path).is_file()]
    if not wanted:
        return
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 (seconds to import, and only here)

    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.bfloat16).model.eval()
    layers = auxiliary_layers(model.config.num_hidden_layers)
    progress = Progress("hidden states")
    for done, path in enumerate(wanted):
        rows = [row for row in answers.read(path) if row.answer_tokens]
        rows.sort(key=lambda row: len(row.prompt_tokens) + len(row.answer_tokens))  # little padding
        states = {}
        for place in range(0, len(rows), _ROWS):
            states |= _states(model, rows[place : place + _ROWS], layers, first=place)
            progress.at((done + place / len(rows)) / len(wanted), path.stem)
        with whole(_shard(folder, path)) as partial:
            save_file(states, partial)


class Shards:
    """Batches out of cached states: the order is a function of the seed, so that a step number names a batch."""

    def __init__(self, folder: Path, split: str, *, rows: int, seed: int) -> None:
        self._rows, self._seed = rows, seed
        self._paths = sorted(folder.glob(f"{split}-*.safetensors"))
        self._held: tuple[Path, list[Batch]] | None = None
        self._counts = [_count(path) for path in self._paths]
        self._orders: dict[int, list[tuple[int, list[int]]]] = {}

    def at(self, step: int) -> Batch:
        """The batch of a training step: each epoch visits every sequence once."""
        per_epoch = sum(-(-count // self._rows) for count in self._counts)
        shard, chosen = self._order(step // per_epoch)[step % per_epoch]
        held = self._load(self._paths[shard])
        return collate([held[row] for row in chosen])

    def once(self) -> Iterator[Batch]:
        """Every sequence once, in the order of the files."""
        for path in self._paths:
            held = self._load(path)
            for place in range(0, len(held), self._rows):
                yield collate(held[place : place + self._rows])

    def answer_tokens(self) -> Iterator[Tensor]:
        for path in self._paths:
            for row in self._load(path):
                yield row.tokens[0, int(row.prompts[0]) :]

    def _order(self, epoch: int) -> list[tuple[int, list[int]]]:
        if epoch not in self._orders:
            draw = random.Random(f"{self._seed}/{epoch}")
            order = []
            for shard in draw.sample(range(len(self._paths)), len(self._paths)):
                rows = draw.sample(range(self._counts[shard]), self._counts[shard])
                order += [(shard, rows[place : place + self._rows]) for place in range(0, len(rows), self._rows)]
            self._orders = {epoch: order}
        return self._orders[epoch]

    def _load(self, path: Path) -> list[Batch]:
        if self._held is None or self._held[0] != path:
            self._held = None  # before the next is read: two shards need not fit in memory
            self._held = (path, _sequences(load_file(path)))
        return self._held[1]


def collate(rows: list[Batch]) -> Batch:
    """Batches of one sequence each as one batch, states in float32."""

    def padded(tensors: list[Tensor]) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence([tensor[0] for tensor in tensors], batch_first=True)

    return Batch(
        padded([row.tokens for row in rows]),
        padded([row.auxiliary for row in rows]).float(),
        padded([row.final for row in rows]).float(),
        torch.cat([row.prompts for row in rows]),
        torch.cat([row.lengths for row in rows]),
    )


@torch.inference_mode()
def _states(
    model: torch.nn.Module, rows: list[answers.Answer], layers: tuple[int, ...], *, first: int
) -> dict[str, Tensor]:
    sequences = [torch.tensor(row.prompt_tokens + row.answer_tokens) for row in rows]
    padded = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)  # causal: what follows cannot be seen
    output = model(padded, output_hidden_states=True, use_cache=False)
    auxiliary = torch.cat([output.hidden_states[layer] for layer in layers], dim=-1)
    states = {}
    for place, (row, sequence) in enumerate(zip(rows, sequences, strict=True)):
        name, length = f"{first + place:05d}", len(sequence)
        states[f"{name}.tokens"] = sequence.to(torch.int32)
        states[f"{name}.prompt"] = torch.tensor([len(row.prompt_tokens)], dtype=torch.int32)
        states[f"{name}.auxiliary"] = auxiliary[place, :length].to(torch.bfloat16).contiguous()
        states[f"{name}.final"] = output.last_hidden_state[place, :length].to(torch.bfloat16).contiguous()
    return states


def _sequences(states: dict[str, Tensor]) -> list[Batch]:
    rows = []
    for name in sorted({key.split(".")[0] for key in states}):
        tokens = states[f"{name}.tokens"].long()[None]
        rows.append(
            Batch(
                tokens,
                states[f"{name}.auxiliary"][None],
                states[f"{name}.final"][None],
                states[f"{name}.prompt"].long(),
                torch.tensor([tokens.shape[1]]),
            )
        )
    return rows


def _count(path: Path) -> int:
    with safe_open(path, "pt") as file:
        return sum(name.endswith(".tokens") for name in file.keys())  # noqa: SIM118 (not a dict)


def _shard(folder: Path, part: Path) -> Path:
    return folder / f"{part.stem}.safetensors"
