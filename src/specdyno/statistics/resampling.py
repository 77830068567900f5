"""Bootstrap of ratios of sums over requests, for data too small to have boots as replicates.

Requests of one boot are no independent evidence of a speed-up; their acceptance is still worth an interval, which
describes these boots only and is labelled so. Deterministic: the generator is seeded from the study and the cell.
"""

from __future__ import annotations

import zlib

import numpy as np

RESAMPLES = 1000
_CELLS = 4_000_000  # weights held at once
_GROUPS = 2_000
"""More rows are summed into so many groups first: resampling sums of many has the same spread, at a fixed cost."""


def generator_for(seed: int, name: str) -> np.random.Generator:
    """One stream per cell of the study: the same records give the same intervals, whatever else is computed."""
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(name.encode())]))


def resampled_sums(columns: np.ndarray, generator: np.random.Generator, *, resamples: int = RESAMPLES) -> np.ndarray:
    """Sums of the columns over requests drawn with replacement.

    Args:
        columns: shape (N, C), one row per request; a column with a NaN gives NaN sums.
        generator: see `generator_for`.
        resamples: R.

    Returns:
        Shape (R, C). Multinomial weights (Efron 1979), formed in parts so that memory stays bounded.
    """
    if len(columns) > _GROUPS:
        padded = np.zeros((-(-len(columns) // _GROUPS) * _GROUPS, columns.shape[1]))
        padded[: len(columns)] = columns
        columns = padded.reshape(-1, _GROUPS, columns.shape[1]).sum(axis=0)
    count = len(columns)
    part = max(1, min(resamples, _CELLS // max(1, count)))
    sums = []
    for start in range(0, resamples, part):
        weights = generator.multinomial(count, np.full(count, 1.0 / count), size=min(part, resamples - start))
        sums.append(weights.astype(np.float64) @ columns)
    return np.concatenate(sums)
