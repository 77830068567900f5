"""Requests to sessions: which request goes on where an earlier one ended.

A request continues the latest session of its own id if its history holds more answers; without an id, the one whose
messages and answer its messages begin with. The last request of a session holds the whole talk, so only its place is
kept. Sessions that were silent for long are closed to keep memory bounded; what comes after is a session of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specdyno.workload.logs.scan import Facts

OPEN = 50_000
"""Sessions that are open at once; the one that was silent longest is closed first."""
_TIMES_KEPT = 1000

Place = tuple[int, int, int, int]  # file, byte offset, bytes, number within the row


@dataclass(slots=True)
class Chain:
    """A session so far. `session` is 0 without an id; `open_key` and `own_id` are where it is found.

    `times` holds (turn, start, end) in seconds of its requests that state them.
    """

    first: Place
    last: Place
    turn: int
    session: int
    open_key: int = 0
    own_id: int = 0
    requests: int = 1
    times: list[tuple[int, float, float]] = field(default_factory=list)


class Chains:
    """Links requests in the order of the log; `closed` is called with each session that ended."""

    def __init__(self, closed: Callable[[Chain], None], *, most: int = OPEN) -> None:
        self._closed = closed
        self._most = most
        self._by_key: OrderedDict[int, Chain] = OrderedDict()
        self._by_id: OrderedDict[int, Chain] = OrderedDict()

    def add(self, file: int, facts: Facts) -> None:
        """The requests of the next stretch of a file."""
        begin = 0
        names = ("place", "size", "nth", "turn", "session", "trace", "open_key", "start_s", "end_s", "prefix_end")
        rows = zip(*(facts.columns[name] for name in names), strict=True)
        for start, size, nth, turn, session, trace, open_key, start_s, end_s, end in rows:
            place = file, start, size, nth
            own_id = session or trace
            chain = self._earlier(turn, session, own_id, facts.prefixes[begin:end]) if turn > 1 else None
            begin = end
            if chain is None:
                chain = Chain(place, place, turn, session)
            else:
                self._by_key.pop(chain.open_key, None)
                self._by_id.pop(chain.own_id, None)
                chain.last, chain.turn, chain.requests = place, turn, chain.requests + 1
            if start_s and len(chain.times) < _TIMES_KEPT:
                chain.times.append((turn, start_s, end_s))
            chain.open_key, chain.own_id = open_key, own_id
            if open_key:
                self._open(self._by_key, open_key, chain)
            if own_id:
                self._open(self._by_id, own_id, chain)
            elif not open_key:
                self._closed(chain)

    def close(self) -> None:
        """The end of the log: every open session ends."""
        ended = {id(chain): chain for chain in (*self._by_key.values(), *self._by_id.values())}
        for chain in ended.values():
            self._closed(chain)
        self._by_key.clear()
        self._by_id.clear()

    def _earlier(self, turn: int, session: int, own_id: int, prefixes: Sequence[int]) -> Chain | None:
        same = self._by_id.get(own_id)
        if same is not None and same.turn < turn:
            return same
        for prefix in reversed(prefixes):
            chain = self._by_key.get(prefix)
            if chain is not None and (not session or not chain.session or session == chain.session):
                return chain
        return None

    def _open(self, places: OrderedDict[int, Chain], key: int, chain: Chain) -> None:
        """Makes a session findable by its messages or its id; who had that place before is found there no more."""
        before = places.pop(key, None)
        places[key] = chain
        if before is not None:
            self._close_if_lost(before)
        if len(places) > self._most:
            self._close_if_lost(places.popitem(last=False)[1])

    def _close_if_lost(self, chain: Chain) -> None:
        if self._by_key.get(chain.open_key) is not chain and self._by_id.get(chain.own_id) is not chain:
            self._closed(chain)
