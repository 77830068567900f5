"""Randomness that is the same on every machine, process and Python version: order by SHA-256 of a label.

Owns the only source of chance in the plan and in the draw. `random` promises its stream of floats across versions,
but not what `shuffle` makes of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def shuffled(items: Sequence[Item], label: str) -> list[Item]:
    """The items in an order that depends on their number and the label only.

    >>> shuffled("abcd", "1/order/0") == shuffled("abcd", "1/order/0")
    True
    """
    # The label's length keeps "1/2" + "3" apart from "1/" + "23".
    prefix = hashlib.sha256(f"{len(label)}:{label}".encode())

    def rank(index: int) -> bytes:
        place = prefix.copy()
        place.update(f"/{index}".encode())
        return place.digest()

    return [items[index] for index in sorted(range(len(items)), key=rank)]
