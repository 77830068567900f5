"""What a whole log adds up to: counts, lengths, languages, duplicates, and which rows are kept.

Memory: eight bytes a request for duplicates; all else is bounded. Lengths from 1,000 on are kept to three digits.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from specdyno.workload.logs import DEFAULT_KEPT
from specdyno.workload.logs.chains import Chain, Chains, Place
from specdyno.workload.logs.classify import CLASSES
from specdyno.workload.logs.scan import COLUMNS, SHOWN_LINES, UNKNOWN, Facts

KEPT_SESSIONS = 500
MEASURES = ("prompt_tokens", "output_tokens", "prompt_characters", "answer_characters", "turn")
_MEASURED_AT_ONCE = 50_000
_WORD = 2**64 - 1
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(slots=True)
class Sample:
    """The `most` entries with the lowest ranks: a fair draw, whatever the order they come in; no key comes twice."""

    most: int
    _heap: list[tuple[int, int, Place]] = field(default_factory=list)  # of negative ranks
    _keys: set[int] = field(default_factory=set)

    @property
    def limit(self) -> int:
        """An entry of a higher rank has no chance."""
        return -self._heap[0][0] if len(self._heap) >= self.most else 2**64

    def offer(self, rank: int, key: int, place: Place) -> None:
        if rank >= self.limit or key in self._keys:
            return
        self._keys.add(key)
        heapq.heappush(self._heap, (-rank, key, place))
        if len(self._heap) > self.most:
            self._keys.discard(heapq.heappop(self._heap)[1])

    def places(self) -> list[Place]:
        """In the order of the log."""
        return sorted(place for _, _, place in self._heap)


@dataclass(slots=True)
class SessionSample:
    """Counts every session of two requests or more; keeps a fair draw of them."""

    most: int
    count: int = 0
    requests: int = 0
    turns: Counter[int] = field(default_factory=Counter)
    _kept: list[tuple[int, int, Chain]] = field(default_factory=list)

    def closed(self, chain: Chain) -> None:
        if chain.requests < 2:
            return
        self.count += 1
        self.requests += chain.requests
        self.turns[chain.turn] += 1
        rank = _rank(chain.first[0], chain.first[1], chain.first[3])
        heapq.heappush(self._kept, (-rank, self.count, chain))
        if len(self._kept) > self.most:
            heapq.heappop(self._kept)

    def chains(self) -> list[Chain]:
        """In the order of the log."""
        return sorted((chain for _, _, chain in self._kept), key=lambda chain: chain.first)


class Tally:
    """Adds up the stretches of all files, in order."""

    def __init__(self, *, kept: int = DEFAULT_KEPT, kept_sessions: int = KEPT_SESSIONS) -> None:
        self.requests = self.rows = self.joined = 0
        self.counts: Counter[str] = Counter()
        self.formats: Counter[str] = Counter()
        self.models: Counter[str] = Counter()
        self.languages: Counter[str] = Counter()
        self.sampling: Counter[bytes] = Counter()
        self.limits: Counter[tuple[int, int]] = Counter()
        self.lengths: dict[tuple[str, str], Counter[int]] = {}
        self.refused: dict[str, tuple[int, list[tuple[int, int]]]] = {}  # reason: (rows, (file, line) of the first)
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.samples = {name: Sample(kept) for name in CLASSES}
        self.sessions = SessionSample(kept_sessions)
        self._chains = Chains(self.sessions.closed)
        self._keys: array[int] = array("q")
        self._lines: Counter[int] = Counter()
        self._waiting = _empty()

    def add(self, file: int, facts: Facts) -> None:
        """The next stretch of a file."""
        for reason, (count, lines) in facts.refused.items():
            before, shown = self.refused.get(reason, (0, []))
            numbered = [(file, self._lines[file] + line) for line in lines]
            self.refused[reason] = (before + count, (shown + numbered)[:SHOWN_LINES])
        self._lines[file] += facts.lines
        self.rows += facts.rows
        self.joined += facts.joined
        if not facts.requests:
            return
        self.requests += facts.requests
        _bounded(self.languages, facts.languages)
        for (form, model, temperature, top_p, stop, limit, kind), count in facts.stated.items():
            sampling = {"temperature": temperature, "top_p": top_p, "stop": list(stop) or None}
            stated = orjson.dumps({key: value for key, value in sampling.items() if value is not None})
            self.formats[form] += count
            _bounded(self.models, {(model or "")[:120]: count})
            _bounded(self.sampling, {stated: count})
            if limit is not None:
                _bounded(self.limits, {(kind, limit): count})
        self._keys.extend(facts.columns["key"])
        kinds = np.frombuffer(facts.columns["kind"], np.int8)
        for name in ("kind", *MEASURES):
            self._waiting[name].extend(facts.columns[name])
        if len(self._waiting["kind"]) >= _MEASURED_AT_ONCE:
            self._measure()
        self._sample(file, kinds, facts)
        self._times(facts)
        self._chains.add(file, facts)

    def finish(self) -> None:
        """The end of the last file."""
        self._measure()
        self._chains.close()

    @property
    def duplicates(self) -> int:
        """Requests that ask exactly what an earlier one asked."""
        return len(self._keys) - len(np.unique(np.frombuffer(self._keys, np.int64))) if self._keys else 0

    def shares(self) -> dict[str, float]:
        """Share of the requests by class, of the classes that have any."""
        return {name: self.counts[name] / self.requests for name in CLASSES if self.counts[name]}

    def _measure(self) -> None:
        """Adds the lengths of many requests to the counts: for few at a time it would take most of the time."""
        kinds = np.array(self._waiting["kind"]).astype(np.int64)
        for code, count in zip(*np.unique(kinds, return_counts=True), strict=True):
            self.counts[CLASSES[code]] += int(count)
        for name in MEASURES:
            values = np.array(self._waiting[name]).astype(np.int64)
            known = values != UNKNOWN
            combined = (kinds[known] << 48) | _rounded(values[known])
            for entry, count in zip(*(part.tolist() for part in np.unique(combined, return_counts=True)), strict=True):
                held = self.lengths.setdefault((CLASSES[entry >> 48], name), Counter())
                held[entry & 0xFFFFFFFFFFFF] += count
        self._waiting = _empty()

    def _sample(self, file: int, kinds: np.ndarray, facts: Facts) -> None:
        columns = facts.columns
        drawn = ranks(file, np.frombuffer(columns["place"], np.int64), np.array(columns["nth"]))
        limits = np.array([min(self.samples[name].limit, 2**64 - 1) for name in CLASSES], np.uint64)
        chosen = np.flatnonzero(drawn <= limits[kinds])
        for i, rank in zip(chosen.tolist(), drawn[chosen].tolist(), strict=True):
            place = file, columns["place"][i], columns["size"][i], columns["nth"][i]
            self.samples[CLASSES[columns["kind"][i]]].offer(rank, columns["key"][i], place)

    def _times(self, facts: Facts) -> None:
        times = np.frombuffer(facts.columns["start_s"], np.float64)
        times = times[times > 0]
        if len(times):
            first, last = float(times.min()), float(times.max())
            self.first_s = first if self.first_s is None else min(self.first_s, first)
            self.last_s = last if self.last_s is None else max(self.last_s, last)


def ranks(file: int, places: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """A number below 2^64 for each row, as good as drawn by chance, and the same in every run (SplitMix64)."""
    with np.errstate(over="ignore"):
        state = places.astype(np.uint64) * _MIX[0] + numbers.astype(np.uint64) * _MIX[1] + np.uint64(file + 1) * _MIX[2]
        state = (state ^ (state >> np.uint64(30))) * _MIX[1]
        state = (state ^ (state >> np.uint64(27))) * _MIX[2]
        mixed: np.ndarray = state ^ (state >> np.uint64(31))
    return mixed


def _rank(file: int, place: int, number: int) -> int:
    """One of `ranks`: an array of one takes ten times as long."""
    one, two, three = map(int, _MIX)
    state = place * one + number * two + (file + 1) * three & _WORD
    state = (state ^ state >> 30) * two & _WORD
    state = (state ^ state >> 27) * three & _WORD
    return state ^ state >> 31


def quantiles(counts: Mapping[int, int], parts: Iterable[float]) -> list[int]:
    """The smallest value that at least this part of all entries does not exceed, for each of `parts`.

    >>> quantiles({1: 5, 10: 4, 100: 1}, (0.5, 0.9, 1.0))
    [1, 10, 100]
    """
    values = sorted(counts)
    reached = np.cumsum([counts[value] for value in values])
    return [values[min(int(np.searchsorted(reached, part * reached[-1] - 1e-9)), len(values) - 1)] for part in parts]


def _empty() -> dict[str, array[int]]:
    return {name: array(COLUMNS[name]) for name in ("kind", *MEASURES)}


def _rounded(values: np.ndarray) -> np.ndarray:
    """Numbers from 1,000 on with three digits."""
    powers = np.maximum(np.floor(np.log10(np.maximum(values, 1))).astype(np.int64) - 2, 0)
    scale = np.where(values < 1000, 1, 10**powers)
    rounded: np.ndarray = values // scale * scale
    return rounded


def _bounded(into: Counter[Any], more: Mapping[Any, int], *, most: int = 2000) -> None:
    """Adds counts; what is new and beyond `most` different entries is left out."""
    for key, count in more.items():
        if key in into or len(into) < most:
            into[key] += count
