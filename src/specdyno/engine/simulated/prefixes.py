"""The prefix cache: which leading blocks of a prompt were seen before.

Owns block hashes only. Never evicts below its limit and forgets everything beyond it; the last token of a prompt is
always computed anew, so a block is a hit only if the prompt goes on after it.
"""

from __future__ import annotations

import hashlib

from specdyno.engine.simulated.wire import CHARACTERS_PER_TOKEN

_BLOCK_TOKENS = 16
_MOST_BLOCKS = 1_000_000


class PrefixCache:
    """Blocks of 16 tokens, each known by the hash of the prompt up to its end."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def hits(self, prompt: str) -> int:
        """Leading tokens of the prompt that were cached; remembers the prompt."""
        width = _BLOCK_TOKENS * CHARACTERS_PER_TOKEN
        if len(self._seen) > _MOST_BLOCKS:
            self._seen.clear()
        digest = hashlib.blake2b(digest_size=16)
        cached_blocks, unbroken = 0, True
        for end in range(width, len(prompt), width):
            digest.update(prompt[end - width : end].encode())
            key = digest.digest()
            unbroken = unbroken and key in self._seen
            cached_blocks += unbroken
            self._seen.add(key)
        return cached_blocks * _BLOCK_TOKENS
