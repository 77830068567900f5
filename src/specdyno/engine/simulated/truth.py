"""The known truth: how often drafts are accepted, what steps cost, how long answers are.

Owns every random draw that decides speed. Acceptance, coverage and answer length are pure functions of the prompt,
the step and the boot's seed, so that a run can be repeated; answer length leaves the boot out, so that all arms answer
alike. Written as JSON with the fields of `Truth` as keys; what is left out keeps its default.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

_Value = TypeVar("_Value")

EVERY_CLASS = "*"
_MASK = (1 << 64) - 1
_COVERAGE, _LENGTH = 1_000_001, 1_000_002  # positions no draft reaches


def uniform(seed: int, step: int, position: int = 0) -> float:
    """A number in [0, 1) that depends on its arguments only (the finaliser of SplitMix64, Steele et al. 2014)."""
    mixed = (seed * 0x9E3779B97F4A7C15 + step * 0xD1342543DE82EF95 + (position + 1) * 0xDA942042E4DD58B5) & _MASK
    for _ in range(2):
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        mixed ^= mixed >> 31
    return (mixed >> 11) / (1 << 53)


@dataclass(frozen=True, slots=True)
class Truth:
    """Everything a measurement should find again. Per-class maps use `*` for the classes not named.

    The class of a request is the body's `specdyno_class`, else the header `x-specdyno-class`, else one of the named
    classes picked by the prompt's hash.
    """

    acceptance: Mapping[str, tuple[float, ...]] = field(
        default_factory=lambda: {EVERY_CLASS: (0.75, 0.65, 0.55, 0.5, 0.45)}
    )
    """Conditional acceptance c_1, c_2, ... by position; beyond the list the last value holds."""
    step_ms: float = 20.0
    """A plain decode step of one running request."""
    batch_cost: float = 0.02
    """Extra share of a step for each further running request."""
    step_cost: Mapping[int, float] = field(default_factory=lambda: {1: 1.10, 3: 1.20, 7: 1.45})
    """r(K) at one running request, as a list r(1), r(2), ... or a map; r(0) = 1; straight lines between and beyond."""
    load_cost: float = 0.0
    """Added to r(K) per draft token and further running request: speculation that pays alone and loses in company."""
    prefill_ms_per_token: float = 0.05
    output_tokens: Mapping[str, float] = field(default_factory=lambda: {EVERY_CLASS: 64.0})
    """Mean length of an answer, its end-of-text token included."""
    output_spread: float = 0.3
    """Standard deviation of the logarithm of the length over prompts."""
    boot_spread: float = 0.01
    """Standard deviation of the logarithm of the boot's speed factor."""
    coverage: float = 1.0
    """Share of decode steps that have a draft; n-gram methods find one now and then."""
    variable_drafts: bool = False
    """Drafts vary in length, every length from 1 to K alike."""
    ready_delay_s: float = 0.2
    noise: float = 0.02
    """Standard deviation of the logarithm of one step's duration."""
    tool_calls: Mapping[str, float] = field(default_factory=lambda: {EVERY_CLASS: 1.0})
    """Share of the prompts with `tools` that are answered by a tool call."""
    reasoning: Mapping[str, float] = field(default_factory=lambda: {EVERY_CLASS: 0.0})
    """Share of an answer's tokens that are reasoning."""
    reasoning_field: str = "reasoning_content"
    """Name of the delta's key for it; recent vLLM says `reasoning`."""
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Method name (`baseline` for plain decoding) -> keys of this table that differ under it."""

    def class_of(self, prompt_seed: int, named: str | None) -> str:
        """The class of a prompt: as named, else by its hash."""
        if named:
            return named
        known = sorted({*self.acceptance, *self.output_tokens, *self.tool_calls, *self.reasoning} - {EVERY_CLASS})
        return known[prompt_seed % len(known)] if known else EVERY_CLASS

    def answer_tokens(self, class_name: str, prompt_seed: int, *, factor: float = 1.0) -> int:
        """Length of the answer: log-normal over prompts with the class's mean, the same in every arm and boot."""
        mean = _of_class(self.output_tokens, class_name) * factor
        drawn = Random(prompt_seed ^ _LENGTH).gauss(0.0, 1.0)  # noqa: S311 - a simulation, no secret
        return max(1, round(mean * math.exp(self.output_spread * drawn - self.output_spread**2 / 2)))

    def draft(self, class_name: str, seed: int, *, step: int, draft_tokens: int) -> tuple[int, int]:
        """Tokens (proposed, accepted) by one decode step of a request; (0, 0) for a step without a draft."""
        if self.coverage < 1.0 and uniform(seed, step, _COVERAGE) >= self.coverage:
            return 0, 0
        proposed = draft_tokens
        if self.variable_drafts:
            proposed = 1 + int(uniform(seed, step, _LENGTH) * draft_tokens)
        chances = _of_class(self.acceptance, class_name)
        accepted = 0
        while accepted < proposed and uniform(seed, step, accepted) < chances[min(accepted, len(chances) - 1)]:
            accepted += 1
        return proposed, accepted

    def drafting_cost(self, draft_tokens: int, running: int = 1) -> float:
        """r(K): a step in which every request has a draft, over a plain step at the same number running."""
        if draft_tokens == 0:
            return 1.0
        return _interpolate(self.step_cost, draft_tokens) + self.load_cost * draft_tokens * (running - 1)

    def step_s(self, running: int, *, drafted_share: float = 0.0, draft_tokens: int = 0) -> float:
        """Seconds of one iteration over all running requests, without boot factor and noise."""
        plain_s = self.step_ms / 1000.0 * (1.0 + self.batch_cost * (running - 1))
        return plain_s * (1.0 + drafted_share * (self.drafting_cost(draft_tokens, running) - 1.0))

    def boot_factor(self, boot_seed: int) -> float:
        """Multiplies every duration of this boot."""
        return math.exp(self.boot_spread * Random(boot_seed).gauss(0.0, 1.0))  # noqa: S311 - a simulation

    def tokens_per_step(self, class_name: str, draft_tokens: int) -> float:
        """Expected tokens of a decode step, first tokens and trimming at the end of a text aside."""
        chances = _of_class(self.acceptance, class_name)
        lengths = range(1, draft_tokens + 1) if self.variable_drafts else (draft_tokens,)
        reached = [
            math.prod(chances[min(place, len(chances) - 1)] for place in range(last))
            for length in lengths
            for last in range(1, length + 1)
        ]
        return 1.0 + self.coverage * sum(reached) / max(len(lengths), 1)

    def speed_up(self, class_name: str, draft_tokens: int, *, running: int = 1) -> float:
        """Expected speed-up of decoding over the baseline at a constant number of running requests."""
        cost = 1.0 + self.coverage * (self.drafting_cost(draft_tokens, running) - 1.0)
        return self.tokens_per_step(class_name, draft_tokens) / cost

    def under(self, method: str) -> Truth:
        """This truth with the differences stated for a method."""
        return _replaced(self, self.methods[method]) if method in self.methods else self


def share_of(shares: Mapping[str, float], class_name: str) -> float:
    """The class's own value, else that of `*`, else 0."""
    return shares.get(class_name, shares.get(EVERY_CLASS, 0.0))


def read_truth(text: str, *, base: Truth | None = None) -> Truth:
    """A truth from JSON, or from the file named after `@`; keys left out keep `base`.

    Raises:
        ValueError: unreadable, an unknown key, or a value that makes no sense.
    """
    truth = _replaced(base or Truth(), _read_object(text))
    for method, keys in truth.methods.items():
        if "methods" in keys:
            raise ValueError(f"truth: methods.{method} cannot hold methods")
        truth.under(method)
    return truth


def _replaced(base: Truth, keys: Mapping[str, Any]) -> Truth:
    if unknown := sorted(keys.keys() - {part.name for part in fields(Truth)}):
        raise ValueError(f"truth: unknown key {', '.join(unknown)}")
    try:
        truth = replace(base, **{name: _typed(name, value, getattr(base, name)) for name, value in keys.items()})
        problem = _problem(truth)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"truth: {error}") from None
    if problem:
        raise ValueError(f"truth: {problem}")
    return truth


def _read_object(text: str) -> dict[str, Any]:
    try:
        keys = json.loads(Path(text[1:]).read_text("utf-8") if text.startswith("@") else text)
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"truth: cannot be read: {error}") from None
    if not isinstance(keys, dict):
        raise ValueError("truth: must be a JSON object")  # noqa: TRY004 - bad input of a user, not of a caller
    return keys


def _typed(name: str, value: Any, standing: Any) -> Any:
    """A bare number or list for a per-class key means every class; classes left out keep what they had."""
    if name == "acceptance":
        classes = value if isinstance(value, dict) else {EVERY_CLASS: value}
        return {**standing, **{key: tuple(float(chance) for chance in listed) for key, listed in classes.items()}}
    if name == "step_cost":
        pairs = value.items() if isinstance(value, dict) else enumerate(value, start=1)
        return {int(length): float(cost) for length, cost in pairs}
    if name in ("output_tokens", "tool_calls", "reasoning"):
        classes = value if isinstance(value, dict) else {EVERY_CLASS: value}
        return {**standing, **{key: float(number) for key, number in classes.items()}}
    if name == "methods":
        return {method: dict(keys) for method, keys in value.items()}
    if isinstance(standing, bool) or isinstance(value, bool):
        if type(value) is not type(standing):
            raise ValueError(f"{name}: {value!r} is no {type(standing).__name__}")
        return value
    return type(standing)(value)


def _problem(truth: Truth) -> str:
    chances = [chance for listed in truth.acceptance.values() for chance in listed]
    shares = [*chances, truth.coverage, *truth.tool_calls.values(), *truth.reasoning.values()]
    spreads = [truth.output_spread, truth.boot_spread, truth.noise, truth.batch_cost, truth.load_cost]
    checks = (
        (all(truth.acceptance.values()), "acceptance: a class has an empty list"),
        (all(0.0 <= share <= 1.0 for share in shares), "a share lies outside 0 to 1"),
        (truth.step_ms > 0, "step_ms must be above 0"),
        (all(cost > 0 for cost in truth.step_cost.values()), "step_cost must be above 0"),
        (all(length >= 0 for length in truth.step_cost), "step_cost: a draft length below 0"),
        (all(number >= 1 for number in truth.output_tokens.values()), "output_tokens must be at least 1"),
        (min(*spreads, truth.prefill_ms_per_token, truth.ready_delay_s) >= 0, "a spread, cost or delay is below 0"),
    )
    return next((message for holds, message in checks if not holds), "")


def _of_class(table: Mapping[str, _Value], class_name: str) -> _Value:
    return table[class_name] if class_name in table else table[EVERY_CLASS]


def _interpolate(points: Mapping[int, float], at: int) -> float:
    known = sorted({**points, 0: 1.0}.items())
    if len(known) == 1:
        return 1.0
    if at in points:
        return points[at]
    right = next((index for index, (length, _) in enumerate(known) if length > at), len(known) - 1)
    (x0, y0), (x1, y1) = known[right - 1], known[right]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
