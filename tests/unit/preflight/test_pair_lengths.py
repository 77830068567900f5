"""How many draft tokens a draft was trained for, by method."""

from __future__ import annotations

import pytest

from specdyno.plan.methods import Method
from specdyno.preflight.pair.lengths import trained_limit

_CASES = [
    # method, block, anchor sampled, speculators' proposal -> limit
    (Method.DFLASH, 8, None, None, 7),
    (Method.DFLASH, 16, False, 7, 15),
    (Method.DSPARK, 7, None, None, 7),
    (Method.DSPARK, 7, True, None, 7),
    (Method.DSPARK, 8, False, None, 7),  # speculators' files: the anchor is a bonus token
    (Method.DFLASH, None, None, 5, 5),
    (Method.DFLASH, None, None, None, None),
    (Method.EAGLE3, None, None, 3, 3),
    (Method.EAGLE3, 8, None, None, None),  # a block says nothing of an autoregressive draft
    (Method.MTP, None, None, None, None),
]


@pytest.mark.parametrize(("method", "block", "anchor", "proposed", "limit"), _CASES)
def test_the_limit_follows_from_the_block_and_the_anchor(
    method: Method, block: int | None, anchor: bool | None, proposed: int | None, limit: int | None
) -> None:
    found = trained_limit(method, block_size=block, anchor_sampled=anchor, speculative_tokens=proposed)
    assert found == limit
