"""Text for the tiny Gemma 4 pair: a tokenizer of its own, the big target's answers, then the tiny target's.

The tiny target learns from the big one's answers; the assistant has to foresee the tiny target, so it learns from what
that one writes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from lab.train import answers
from lab.train import prompts as prompt_lists
from lab.train.work import Progress, whole
from torch import Tensor, nn

VOCABULARY = 2048
SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>")
PAD, EOS, BOS = 0, 1, 2
_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|turn>{{ m['role'] }}\n{{ m['content'] }}<turn|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn>assistant\n{% endif %}"
)
_LENGTH = 256
_ROWS = 16
_WRITTEN_PROMPTS = 768


@dataclass(frozen=True)
class Batch:
    """`tokens` (B, T) padded on the right; `prompts` and `lengths` (B)."""

    tokens: Tensor
    prompts: Tensor
    lengths: Tensor


class Sequences:
    """Token sequences (prompt length, tokens) in batches that a step number names."""

    def __init__(self, rows: list[tuple[int, list[int]]], seed: int) -> None:
        self._rows, self._seed = rows, seed

    def at(self, step: int) -> Batch:
        draw = random.Random(f"{self._seed}/{step}")
        return _collate([self._rows[draw.randrange(len(self._rows))] for _ in range(_ROWS)])

    def once(self) -> Iterator[Batch]:
        for place in range(0, len(self._rows), _ROWS):
            yield _collate(self._rows[place : place + _ROWS])


def tokenizer(work: Path, folder: Path) -> object:
    """Byte-level pairs learnt from the training answers."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415 (with transformers)
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 (seconds to import, and only here)

    if (folder / "tokenizer.json").is_file():
        return PreTrainedTokenizerFast.from_pretrained(folder)
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    learn = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rows = [row for path in answers.parts(work / "answers", "train") for row in answers.read(path)]
    asked = [prompt.text for prompt in prompt_lists.read(work / "prompts.jsonl") if not prompt.held_out]
    plain.train_from_iterator([*(row.text for row in rows), *asked], learn)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>"
    )
    fast.chat_template = _TEMPLATE
    fast.save_pretrained(folder)
    return fast


def _chats(work: Path, split: str) -> list[str]:
    """The prompts in the order of the answers' parts."""
    held_out = split == "heldout"
    return [p.text for p in prompt_lists.read(work / "prompts.jsonl") if p.held_out == held_out]


def _rendered(tokenizer: object, text: str) -> list[int]:
    said = [{"role": "user", "content": text}]
    rendered = tokenizer.apply_chat_template(said, add_generation_prompt=True, tokenize=False)
    return tokenizer(rendered, add_special_tokens=False)["input_ids"]


def texts(answered: Path, tokenizer: object, split: str) -> list[tuple[int, list[int]]]:
    """Prompts with the big target's answers, in the small tokenizer, cut at the longest length."""
    rows = []
    said = [row.text for path in answers.parts(answered, split) for row in answers.read(path)]
    for asked, text in zip(_chats(answered.parent, split), said, strict=True):
        prompt = _rendered(tokenizer, asked)
        whole_text = [*prompt, *tokenizer(text, add_special_tokens=False)["input_ids"], EOS]
        rows.append((len(prompt), whole_text[:_LENGTH]))
    return rows


def written(work: Path, target: nn.Module, tokenizer: object, kept: Path, *, split: str) -> list[tuple[int, list[int]]]:
    """Prompts with the small target's own greedy answers, made once."""
    if kept.is_file():
        return [(int(length), tokens.tolist()) for length, tokens in torch.load(kept, weights_only=True)]
    asked = [_rendered(tokenizer, text) for text in _chats(work, split)[:_WRITTEN_PROMPTS]]
    asked = sorted((tokens for tokens in asked if len(tokens) < _LENGTH // 2), key=len)
    rows, progress = [], Progress(f"gemma4 writes ({split})")
    for place in range(0, len(asked), 64):
        rows += _continued(target, asked[place : place + 64])
        progress.at(place / len(asked))
    with whole(kept) as partial:
        torch.save([(length, torch.tensor(tokens)) for length, tokens in rows], partial)
    return rows


@torch.inference_mode()
def _continued(target: nn.Module, asked: list[list[int]]) -> list[tuple[int, list[int]]]:
    """Greedy answers; prompts are padded on the left, which the attention mask hides."""
    longest = max(map(len, asked))
    ids = torch.tensor([[PAD] * (longest - len(tokens)) + tokens for tokens in asked])
    output = target.eval().generate(
        input_ids=ids,
        attention_mask=(ids != PAD).long(),
        max_new_tokens=_LENGTH - longest,
        do_sample=False,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    rows = []
    for tokens, line in zip(asked, output[:, longest:].tolist(), strict=True):
        said = line[: line.index(EOS) + 1] if EOS in line else line
        rows.append((len(tokens), [*tokens, *said]))
    return rows


def _collate(rows: list[tuple[int, list[int]]]) -> Batch:
    sequences = [torch.tensor(tokens) for _, tokens in rows]
    return Batch(
        nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=PAD),
        torch.tensor([prompt for prompt, _ in rows]),
        torch.tensor([len(sequence) for sequence in sequences]),
    )
