"""What a step costs with K draft tokens, from a depth sweep or from verify widths.

Speed-up(K) = tokens per step(K) / r(K), where r(K) is the time of a step with K over that of a plain decode step at
the same load. Measured values stay apart from interpolated ones, and nothing is ever extrapolated: outside the
measured range the answer is `Undefined`. Between plain decoding and the smallest measured K nothing is interpolated
either, because r does not go through 1 there: turning speculation on has a price of its own.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from specdyno.statistics.intervals import Undefined

AGREEMENT = 0.02  # a given step time and a given rate may differ by this share


@dataclass(frozen=True, slots=True)
class Point:
    """One measured depth. K 0 is plain decoding, with 1 token per step.

    Give `tokens_per_s` or `step_s` (seconds) or both; the rate may be that of many requests at once, as long as
    `step_s` is not given with it.
    """

    draft_tokens: int
    tokens_per_step: float
    tokens_per_s: float | None = None
    step_s: float | None = None

    @property
    def seconds(self) -> float:
        """Time of a step; of one request's step where the rate was that of one request."""
        if self.step_s is not None:
            return self.step_s
        if self.tokens_per_s is None:
            raise ValueError(f"K {self.draft_tokens} has neither a rate nor a step time")
        return self.tokens_per_step / self.tokens_per_s

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens_per_step / self.seconds if self.tokens_per_s is None else self.tokens_per_s


@dataclass(frozen=True, slots=True)
class Modelled:
    """A value with its origin: `measured` True, or interpolated between two measured depths."""

    value: float
    measured: bool


@dataclass(frozen=True, slots=True)
class Marginal:
    """Tokens per step gained from one measured depth to the next."""

    shallower: int
    deeper: int
    gain: float


@dataclass(frozen=True, slots=True)
class DepthSweep:
    """Measured depths in rising order; see `depth_sweep`."""

    points: tuple[Point, ...]

    @property
    def marginal(self) -> tuple[Marginal, ...]:
        """Marginal accepted length between neighbouring measured depths."""
        return tuple(
            Marginal(near.draft_tokens, deep.draft_tokens, deep.tokens_per_step - near.tokens_per_step)
            for near, deep in pairwise(self.points)
        )

    @property
    def fastest(self) -> int:
        """The measured K with the highest rate; the smaller of two equal ones."""
        return max(self.points, key=lambda point: (point.rate, -point.draft_tokens)).draft_tokens

    def within(self, share: float) -> tuple[int, ...]:
        """All measured K whose rate is at most `share` below the fastest, smallest first."""
        best = max(point.rate for point in self.points)
        return tuple(point.draft_tokens for point in self.points if point.rate >= (1 - share) * best)

    def best(self, share: float = 0.03) -> int:
        """The smallest K that cannot be told from the fastest: drafting less is the cheaper bet."""
        return self.within(share)[0]

    def step_cost(self, draft_tokens: int) -> Modelled | Undefined:
        """r(K), time of a step over that of a plain step."""
        return self._over_plain(draft_tokens, "seconds")

    def speed_up(self, draft_tokens: int) -> Modelled | Undefined:
        """Rate with K over the plain rate; interpolated values follow from tokens per step and r."""
        tokens, cost = self.tokens_per_step(draft_tokens), self.step_cost(draft_tokens)
        if isinstance(tokens, Undefined):
            return tokens
        if isinstance(cost, Undefined):
            return cost
        return Modelled(tokens.value / cost.value / self.points[0].tokens_per_step, measured=cost.measured)

    def tokens_per_step(self, draft_tokens: int) -> Modelled | Undefined:
        """Tokens per step with K."""
        return self._at(draft_tokens, "tokens_per_step")

    def _over_plain(self, draft_tokens: int, name: str) -> Modelled | Undefined:
        plain = self.points[0]
        if plain.draft_tokens != 0:
            return Undefined("the sweep has no plain decoding (K 0) to compare with", len(self.points))
        found = self._at(draft_tokens, name)
        if isinstance(found, Undefined):
            return found
        return Modelled(found.value / float(getattr(plain, name)), measured=found.measured)

    def _at(self, draft_tokens: int, name: str) -> Modelled | Undefined:
        depths = [point.draft_tokens for point in self.points]
        if not depths[0] <= draft_tokens <= depths[-1]:
            return Undefined(
                f"K {draft_tokens} lies outside the measured range {depths[0]} to {depths[-1]}: not extrapolated",
                len(depths),
            )
        place = bisect_left(depths, draft_tokens)
        deep = self.points[place]
        if deep.draft_tokens == draft_tokens:
            return Modelled(float(getattr(deep, name)), measured=True)
        near = self.points[place - 1]
        if near.draft_tokens == 0:
            return Undefined(
                f"K {draft_tokens} lies between plain decoding and the smallest measured K {deep.draft_tokens}: "
                "not interpolated",
                len(depths),
            )
        weight = (draft_tokens - near.draft_tokens) / (deep.draft_tokens - near.draft_tokens)
        value = (1 - weight) * float(getattr(near, name)) + weight * float(getattr(deep, name))
        return Modelled(value, measured=False)


def depth_sweep(points: Iterable[Point]) -> DepthSweep:
    """A checked sweep, depths in any order.

    Raises ValueError for no point, a depth twice, a value that cannot be, or a rate and a step time that contradict
    each other.

    >>> sweep = depth_sweep([Point(0, 1.0, tokens_per_s=50.0), Point(2, 2.0, tokens_per_s=80.0)])
    >>> sweep.step_cost(2), sweep.fastest
    (Modelled(value=1.25, measured=True), 2)
    """
    found = tuple(sorted(points, key=lambda point: point.draft_tokens))
    if not found:
        raise ValueError("a depth sweep needs at least one measured depth")
    for near, deep in pairwise(found):
        if near.draft_tokens == deep.draft_tokens:
            raise ValueError(f"K {near.draft_tokens} stands twice in the sweep")
    for point in found:
        _check(point)
    return DepthSweep(found)


def _check(point: Point) -> None:
    k, tokens = point.draft_tokens, point.tokens_per_step
    if k < 0 or not 1 <= tokens <= k + 1:
        raise ValueError(f"{tokens:g} tokens per step with K {k} is impossible: it lies between 1 and K + 1")
    given = [value for value in (point.tokens_per_s, point.step_s) if value is not None]
    if not given or any(not math.isfinite(value) or value <= 0 for value in given):
        raise ValueError(f"K {k} needs a positive rate or step time")
    if point.tokens_per_s is not None and point.step_s is not None:
        derived = tokens / point.tokens_per_s
        if abs(derived - point.step_s) > AGREEMENT * point.step_s:
            raise ValueError(
                f"K {k}: {tokens:g} tokens per step and {point.tokens_per_s:g} tokens/s make a step of "
                f"{derived * 1000:.2f} ms, {point.step_s * 1000:.2f} ms is given"
            )


@dataclass(frozen=True, slots=True)
class WidthBound:
    """The speed-up if drafting and the host were free: only verification is paid. Times in seconds."""

    draft_tokens: int
    plain_token_s: float
    token_s: float  # verify step / tokens per step
    measured_width: bool  # False: the verify time was interpolated between two widths

    @property
    def speed_up(self) -> float:
        """No K of this acceptance can be faster than this."""
        return self.plain_token_s / self.token_s

    def cost_beside_verification(self, measured_speed_up: float) -> float:
        """Share of the time per token that is neither plain verification nor explained by its width: draft and host."""
        return 1 - measured_speed_up / self.speed_up


def width_bound(step_s: Mapping[int, float], tokens_per_step: float, *, draft_tokens: int) -> WidthBound | Undefined:
    """Upper bound of the speed-up from the time of a step that verifies w tokens at once.

    `step_s` maps a width (1 is plain decoding) to seconds; K draft tokens need width K + 1.
    """
    width = draft_tokens + 1
    if not 1 <= tokens_per_step <= width:
        return Undefined(f"{tokens_per_step:g} tokens per step with K {draft_tokens} is impossible", len(step_s))
    if any(w < 1 or not math.isfinite(seconds) or seconds <= 0 for w, seconds in step_s.items()):
        return Undefined("a width below 1 or a step time that is not positive", len(step_s))
    if 1 not in step_s:
        return Undefined("no plain step (width 1) among the widths", len(step_s))
    widths = sorted(step_s)
    if width > widths[-1]:
        return Undefined(
            f"width {width} lies outside the measured widths 1 to {widths[-1]}: not extrapolated", len(step_s)
        )
    place = bisect_left(widths, width)
    verify = step_s[widths[place]]
    if widths[place] != width:
        near, deep = widths[place - 1], widths[place]
        verify = step_s[near] + (width - near) / (deep - near) * (step_s[deep] - step_s[near])
    return WidthBound(draft_tokens, step_s[1], verify / tokens_per_step, measured_width=widths[place] == width)
