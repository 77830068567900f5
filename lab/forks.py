"""Where an answer leaves the baseline's, token by token, and how likely the baseline held the two tokens.

Text does not tell tokens apart (a run of spaces or dashes is written in many ways), so token ids are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TIE_NATS, WRONG_RANK = 0.5, 3


@dataclass(frozen=True, slots=True)
class Fork:
    """The first token at which two answers differ, and how far apart the two are for the baseline."""

    prompt_id: str
    after_tokens: int
    gap_nats: float | None  # None: one of the two is not among the baseline's likeliest
    rank: int | None  # of the less likely of the two for the baseline, from 1

    @property
    def tie(self) -> bool:
        """Whether numerics explain it: within half a nat, or the baseline's first and second choice.

        A token that the target would not say is nats away and further down.
        """
        return self.gap_nats is not None and (self.gap_nats <= TIE_NATS or (self.rank or WRONG_RANK) < WRONG_RANK)


def parting(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The first place where two answers' tokens differ; None where one is the other's beginning."""
    return next((place for place, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)


def fork(prompt_id: str, at: int, tokens: tuple[int, int], likely: Mapping[int, float]) -> Fork:
    """A fork after `at` tokens, from the log-probabilities of the baseline's likeliest tokens there.

    >>> fork("p", 4, (7, 9), {7: -0.75, 9: -1.0, 2: -3.0})
    Fork(prompt_id='p', after_tokens=4, gap_nats=0.25, rank=2)
    """
    known = [likely[token] for token in tokens if token in likely]
    if len(known) < len(tokens):
        return Fork(prompt_id, at, None, None)
    return Fork(prompt_id, at, max(known) - min(known), 1 + sum(one > min(known) for one in likely.values()))
