"""The error rates that the documentation states: what is simulated, how often, and what the promise allows.

`measure` runs every case; `table` spells it as Markdown. The full set writes the table into `docs/statistics.md`.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats
from tests.simulation import oracle, worlds

from specdyno.verdict.levels import ALPHA, MIXTURE_SHARE, nominal_level

LOOKS = (4, 6, 8, 12)
THRESHOLD = math.log(1.05)
PROMISE = 0.025
BATCH = 50_000


@dataclass(frozen=True)
class Rate:
    what: str
    m: int
    studies: int
    wrong: int
    allowed: float | None  # None: an assumption is broken on purpose and the rate only stated

    @property
    def rate(self):
        return self.wrong / self.studies

    @property
    def kept(self):
        """Whether the count fits a true rate of at most `allowed`, at 99.9 %."""
        return self.allowed is None or self.wrong <= stats.binom.ppf(0.999, self.studies, self.allowed)


def wrong_promotes(draw, m, *, studies, seed, looks=LOOKS, threshold=THRESHOLD):
    """Studies in which any of m candidates is promoted, none of which should be."""
    rng, wrong, level = np.random.default_rng(seed), 0, nominal_level(looks, ALPHA, m)
    for start in range(0, studies, BATCH):
        ys = draw(rng, (min(BATCH, studies - start), looks[-1], m))
        found, _ = oracle.decide(ys, looks=looks, level=level, threshold=threshold)
        wrong += int((found == oracle.PROMOTE).any(axis=1).sum())
    return wrong


def wrong_promotes_of_leavers(m, *, studies, seed):
    """As `wrong_promotes`, but every candidate is missing from the blocks after a look drawn for it."""
    rng, level = np.random.default_rng(seed), nominal_level(LOOKS, ALPHA, m)
    wrong = 0
    for start in range(0, studies, BATCH):
        ys = worlds.normal(rng, (min(BATCH, studies - start), LOOKS[-1], m), THRESHOLD)
        found, when = oracle.decide(ys, looks=LOOKS, level=level, threshold=THRESHOLD)
        left = rng.choice(LOOKS, size=found.shape)
        wrong += int(((found == oracle.PROMOTE) & (when <= left)).any(axis=1).sum())
    return wrong


def wrong_with_scopes(m, truth, truths, *, studies, seed, own=0.5):
    """Studies with a wrong promote, of the whole traffic or of a class whose gain is not above the minimum."""
    rng, wrong = np.random.default_rng(seed), 0
    level = nominal_level(LOOKS, ALPHA * MIXTURE_SHARE, m)
    null = np.array(truths) <= THRESHOLD + 1e-12
    for start in range(0, studies, BATCH):
        shape = (min(BATCH, studies - start), LOOKS[-1], m)
        ys, cells = worlds.with_cells(rng, shape, truth=truth, truths=truths, own=own)
        found, _ = oracle.decide(ys, looks=LOOKS, level=level, threshold=THRESHOLD)
        crossed = oracle.crossed_cells(cells, looks=LOOKS, level_of=cell_level(m), threshold=THRESHOLD)
        promoted = found == oracle.PROMOTE
        bad = (promoted & (truth <= THRESHOLD + 1e-12)) | (~promoted & (crossed & null).any(axis=2))
        wrong += int(bad.any(axis=1).sum())
    return wrong


def cell_level(m):
    return lambda left: nominal_level(LOOKS, ALPHA * (1 - MIXTURE_SHARE), m * left)


def at_the_edge(world):
    return lambda rng, shape: worlds.WORLDS[world](rng, shape, THRESHOLD)


def measure(studies):
    """Every case of the table, `studies` simulated studies each (a fifth of it where there are classes)."""
    edge = THRESHOLD
    rates = []
    for m in (1, 2, 3, 8):
        wrong = wrong_promotes(at_the_edge("normal boots"), m, studies=studies, seed=m)
        rates.append(Rate("true gain exactly the minimum, looks 4, 6, 8, 12", m, studies, wrong, PROMISE))
    wrong = wrong_promotes(at_the_edge("normal boots"), 3, studies=studies, seed=20, looks=(4,))
    rates.append(Rate("the same, one look at 4", 3, studies, wrong, PROMISE))
    wrong = wrong_promotes_of_leavers(3, studies=studies, seed=21)
    rates.append(Rate("candidates missing after a look at random", 3, studies, wrong, PROMISE))
    few = studies // 5
    for name, truth, truths, own in (
        ("all classes at the minimum", edge, (edge, edge, edge), 0.5),
        ("all at the minimum, classes that move together", edge, (edge, edge, edge), 0.1),
        ("one class at the minimum, two that lose", -0.01, (edge, -0.05, -0.05), 0.5),
        ("two classes at the minimum, one that loses", edge - 0.01, (edge, edge, -0.1), 0.5),
    ):
        for m in (1, 3, 8):
            wrong = wrong_with_scopes(m, truth, truths, studies=few, seed=30 + m, own=own)
            rates.append(Rate(f"with scopes: {name}", m, few, wrong, PROMISE))
    for name in worlds.WORLDS:
        if name != "normal boots":
            allowed = None if name in worlds.BEYOND else PROMISE
            for m in (1, 3):
                wrong = wrong_promotes(at_the_edge(name), m, studies=studies, seed=40 + m)
                rates.append(Rate(name, m, studies, wrong, allowed))
    for m in (1, 3, 8):
        wrong = wrong_promotes(worlds.normal, m, studies=studies, seed=50 + m, threshold=0.33 * worlds.S)
        rates.append(Rate("identical arms, minimum gain 0.33 s", m, studies, wrong, 0.005))
    return rates


def table(rates):
    lines = ["| true state of affairs | candidates | studies | any wrong promote | promised |", "|---|---|---|---|---|"]
    for rate in rates:
        promised = f"none: {worlds.BEYOND[rate.what]}" if rate.allowed is None else f"at most {rate.allowed:.1%}"
        row = (rate.what, str(rate.m), f"{rate.studies:,}", f"{rate.rate:.2%}", promised)
        lines.append(f"| {' | '.join(row)} |".replace("%", " %"))
    return "\n".join(lines) + "\n"
