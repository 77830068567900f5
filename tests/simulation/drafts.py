"""Answers whose every token is hard or easy to draft, and engines with any K that run on the very same tokens.

Difficulty wanders along an answer (logits of first-order autocorrelation) and differs between answers. Two runs with
different K share tokens and luck, so that what differs between a replay and a run is bias and hardly noise.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from specdyno.statistics.replay import replay

MEASURED = 7
TOKENS = 300


@dataclass(frozen=True)
class Traffic:
    name: str
    wander: float  # spread of the logit along an answer
    memory: float  # its autocorrelation from token to token
    between: float  # spread of the logit between answers
    mean: float = 1.0


SMOOTH = Traffic("tokens nearly alike", 0.6, 0.7, 0.2)
UNEVEN = Traffic("easy and hard stretches", 1.0, 0.9, 0.5)
LONG = Traffic("long easy and hard stretches", 1.0, 0.98, 0.5)
TRAFFIC = (SMOOTH, UNEVEN, LONG)


class Answers:
    """`answers` answers of `TOKENS` tokens, and room for a last step that runs past them."""

    def __init__(self, traffic, *, answers, seed):
        rng = np.random.default_rng(seed)
        shape = (TOKENS + MEASURED + 1, answers)
        shocks = rng.normal(size=shape)
        logit = np.empty(shape)
        logit[0] = shocks[0]
        for t in range(1, len(shocks)):
            logit[t] = traffic.memory * logit[t - 1] + np.sqrt(1 - traffic.memory**2) * shocks[t]
        centre = traffic.mean + traffic.between * rng.normal(size=answers)
        self.known = special.expit(centre + traffic.wander * logit)
        self.luck = rng.random(shape)

    def run(self, k, *, decay=0.0):
        """Accepted tokens of every step by answer, as an engine with K counts them. Position i is accepted with
        (1 - decay) ** (i - 1) of the chance that its token has."""
        answers = np.arange(self.known.shape[1])
        place = np.zeros(len(answers), dtype=int)
        steps = [[] for _ in answers]
        while len(rows := np.flatnonzero(place < TOKENS)):
            accepted, alive = np.zeros(len(rows), dtype=int), np.ones(len(rows), dtype=bool)
            for i in range(k):
                at = (place[rows] + i, rows)
                alive &= self.luck[at] < self.known[at] * (1 - decay) ** i
                accepted += alive
            for row, count in zip(rows, accepted, strict=True):
                steps[row].append(int(count))
            place[rows] += accepted + 1
        return steps


@dataclass(frozen=True)
class Errors:
    """Errors of the mean accepted length against a run at K, by K."""

    traffic: str
    decay: float
    replayed: dict[int, float]
    truncated: dict[int, float]


def errors(traffic, *, decay, answers, seed, depths=range(1, MEASURED)):
    made = Answers(traffic, answers=answers, seed=seed)
    deep = made.run(MEASURED, decay=decay)
    drafted = [[MEASURED] * len(row) for row in deep]
    pooled = np.concatenate(deep)
    replayed, truncated = {}, {}
    for k in depths:
        truth = 1 + np.concatenate(made.run(k, decay=decay)).mean()
        replayed[k] = replay(deep, drafted, draft_tokens=k).mean_accepted_length / truth - 1
        truncated[k] = (1 + np.minimum(pooled, k).mean()) / truth - 1
    return Errors(traffic.name, decay, replayed, truncated)


def table(found):
    lines = [
        f"| traffic | decay per position | K cut from {MEASURED} | replay | truncated survival curve |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        cells = [f"{one.traffic}", f"{one.decay:.0%}", f"{min(one.replayed)} to {max(one.replayed)}"]
        cells += [_range(one.replayed.values()), _range(one.truncated.values())]
        lines.append(f"| {' | '.join(cells)} |".replace("%", " %"))
    return "\n".join(lines) + "\n"


def _range(values):
    return f"{min(values):+.2%} to {max(values):+.2%}".replace("-", "\N{MINUS SIGN}")
