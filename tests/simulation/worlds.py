"""Truths to be deceived by: y_b of many studies at once, with what goes wrong on real hosts.

Every world gives y of shape (N, n, m) with mean `truth` and spread about S; candidates share the baseline's boots.
"""

import numpy as np

S = 0.02  # spread of y_b: two boots of S / sqrt(2) each
BOOT = S / np.sqrt(2)


def _pairs(errors, truth):
    """From boot errors (N, n, m + 1), the baseline first, to y."""
    return truth + errors[:, :, 1:] - errors[:, :, :1]


def normal(rng, shape, truth=0.0):
    studies, blocks, m = shape
    return _pairs(rng.normal(0, BOOT, (studies, blocks, m + 1)), truth)


def heavy_tails(rng, shape, truth=0.0):
    """Boots of Student's t with 3 degrees of freedom."""
    studies, blocks, m = shape
    return _pairs(rng.standard_t(3, (studies, blocks, m + 1)) * BOOT / np.sqrt(3), truth)


def slow_boots(rng, shape, truth=0.0):
    """One boot in ten of any arm is slow by 5 S: the errors of both arms lean to one side."""
    studies, blocks, m = shape
    errors = rng.normal(0, BOOT, (studies, blocks, m + 1)) - 5 * S * (rng.random((studies, blocks, m + 1)) < 0.1)
    return _pairs(errors, truth)


def one_bad_block(rng, shape, truth=0.0):
    """One block of every study in which something took 10 S from one arm, whichever."""
    studies, blocks, m = shape
    errors = rng.normal(0, BOOT, (studies, blocks, m + 1))
    errors[np.arange(studies), rng.integers(0, blocks, studies), rng.integers(0, m + 1, studies)] -= 10 * S
    return _pairs(errors, truth)


def slow_drift(rng, shape, truth=0.0):
    """The host slows down by S / 4 per boot within a block; orders are those of a Latin square, shuffled."""
    studies, blocks, m = shape
    arms = m + 1
    errors = rng.normal(0, BOOT, (studies, blocks, arms))
    start = rng.permuted(np.tile(np.arange(arms), (studies, -(-blocks // arms), 1)), axis=2)
    shifts = np.concatenate([(start[:, c, :, None] + np.arange(arms)) % arms for c in range(start.shape[1])], axis=1)
    positions = np.argsort(np.argsort(shifts[:, :blocks], axis=2), axis=2)
    return _pairs(errors - S / 4 * positions, truth)


def wandering_host(rng, shape, truth=0.0):
    """The host's own speed is a random walk of S / 4 per boot, over the whole study; arms in random order."""
    studies, blocks, m = shape
    errors = rng.normal(0, BOOT, (studies, blocks, m + 1))
    walk = np.cumsum(rng.normal(0, S / 4, (studies, blocks * (m + 1))), axis=1).reshape(studies, blocks, m + 1)
    return _pairs(errors + rng.permuted(walk, axis=2), truth)


def correlated_blocks(rng, shape, truth=0.0):
    """Boots remember the block before (0.2), as on a host that warms up and cools down."""
    studies, blocks, m = shape
    errors = rng.normal(0, BOOT, (studies, blocks, m + 1))
    for block in range(1, blocks):
        errors[:, block] = 0.2 * errors[:, block - 1] + np.sqrt(1 - 0.04) * errors[:, block]
    return _pairs(errors, truth)


def shy_candidate(rng, shape, truth=0.0, *, by=2.0):
    """One boot in ten of a candidate, and none of the baseline, is slow by `by` S; `truth` is the mean with them."""
    studies, blocks, m = shape
    errors = rng.normal(0, BOOT, (studies, blocks, m + 1))
    errors[:, :, 1:] -= by * S * ((rng.random((studies, blocks, m)) < 0.1) - 0.1)
    return _pairs(errors, truth)


def very_shy_candidate(rng, shape, truth=0.0):
    return shy_candidate(rng, shape, truth, by=5.0)


def with_cells(rng, shape, *, truth=0.0, truths=(0.0, 0.0, 0.0), own=0.5):
    """y of the whole traffic, and of each class's own window (N, n, m, C).

    `own` is the part of a window's variance that is not the boot's.
    """
    boots = normal(rng, shape) * np.sqrt(1 - own)
    window = S * np.sqrt(own)
    whole = truth + boots + rng.normal(0, window, shape)
    cells = np.array(truths) + boots[..., None] + rng.normal(0, window, (*shape, len(truths)))
    return whole, cells


WORLDS = {
    "normal boots": normal,
    "heavy-tailed boots (t, 3 degrees)": heavy_tails,
    "one boot in ten slow by 5 s": slow_boots,
    "one bad block of 10 s": one_bad_block,
    "drift of s/4 per boot within a block": slow_drift,
    "a host that wanders by s/4 per boot": wandering_host,
    "boots that remember the last block (0.2)": correlated_blocks,
    "one boot in ten of the candidate alone slow by 2 s": shy_candidate,
    "one boot in ten of the candidate alone slow by 5 s": very_shy_candidate,
}

BEYOND = {
    "boots that remember the last block (0.2)": "blocks are not independent",
    "one boot in ten of the candidate alone slow by 2 s": "few blocks miss what is rare",
    "one boot in ten of the candidate alone slow by 5 s": "few blocks miss what is rare",
}
"""Worlds that break an assumption no rule on so few blocks can do without; their rates are stated and not promised."""
