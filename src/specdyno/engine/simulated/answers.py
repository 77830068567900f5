"""What the simulated engine says: ordinary words that depend on the prompt alone.

Owns the text of answers as a list of tokens. Speculation, boot and load never reach this module, so that every arm
answers alike. One word with its leading space is one token; an answer that ends by itself closes with an end-of-text
token that counts and shows nothing, as vLLM counts it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdyno.engine.simulated.faults import Fault, Faults
from specdyno.engine.simulated.truth import Truth, share_of, uniform

_TEXT = (
    "the a one this that each every some more less time day year way part place case point hand work week "
    "number group problem fact right old new small large long short early late open plain quiet clear "
    "light heavy green blue river stone house garden table window letter story paper market station "
    "engine wheel track signal measure weight length speed morning evening winter summer reads writes "
    "keeps holds turns moves starts ends finds gives takes shows brings carries follows under over near "
    "between before after with without and or but because while when where then still often rarely always "
    "slowly quickly well"
)
_WORDS = tuple(_TEXT.split())
_MARKUP = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror=alert(1)>',
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "</textarea>{{ 7*7 }}",
    "\u202eright-to-left",
)
_LOOP = ("round", "and", "round", "it", "goes")
_END_OF_TEXT = ""
_CALL_SALT = -1  # no word has this place


@dataclass(frozen=True, slots=True)
class Limits:
    """What the request allows: `max_tokens` counts the end-of-text token, `stop` ends the text before itself."""

    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Tokens in order (`pieces`, one each), of which the first `reasoning` are reasoning."""

    pieces: tuple[str, ...]
    finish_reason: str
    reasoning: int = 0
    tool: str | None = None
    """Name of the called tool; the pieces are then its arguments as JSON."""

    def __len__(self) -> int:
        return len(self.pieces)


class Author:
    """Writes the answers of one process; only its truth and faults can make it differ from another."""

    def __init__(self, truth: Truth, faults: Faults) -> None:
        self._truth = truth
        self._faults = faults

    def compose(
        self, prompt_seed: int, class_name: str, *, limits: Limits, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Answer:
        """The answer to one prompt, cut to the request's limits."""
        factor = self._faults.get(Fault.SHORT_ANSWERS, 1.0)
        length = max(self._truth.answer_tokens(class_name, prompt_seed, factor=factor), limits.min_tokens)
        if tools and uniform(prompt_seed, _CALL_SALT) < share_of(self._truth.tool_calls, class_name):
            return _cut(_tool_call(prompt_seed, length, tools[0]), limits)
        if limits.ignore_eos:
            length = max(length, limits.max_tokens + 1)
        words = _words(prompt_seed, length - 1, self._faults)
        reasoning = round(len(words) * share_of(self._truth.reasoning, class_name))
        return _cut(Answer((*words, _END_OF_TEXT), "stop", reasoning), limits)


def _words(seed: int, number: int, faults: Faults) -> tuple[str, ...]:
    words = _LOOP if Fault.LOOP_TEXT in faults else _WORDS
    chosen = [
        words[place % len(words)] if words is _LOOP else words[int(uniform(seed, place) * len(words))]
        for place in range(number)
    ]
    if Fault.MARKUP_TEXT in faults:
        chosen[::3] = [_MARKUP[place % len(_MARKUP)] for place in range(len(chosen[::3]))]
    return tuple(word if place == 0 else f" {word}" for place, word in enumerate(chosen))


def _tool_call(seed: int, length: int, tool: Mapping[str, Any]) -> Answer:
    function = tool.get("function", {})
    properties = function.get("parameters", {}).get("properties", {}) or {"query": {"type": "string"}}
    words = max(1, length - 2 * len(properties) - 1)
    arguments = {name: _argument(seed + place, words, shape) for place, (name, shape) in enumerate(properties.items())}
    pieces = re.findall(r"\s*\S+", json.dumps(arguments))
    return Answer((*pieces, _END_OF_TEXT), "tool_calls", tool=str(function.get("name", "tool")))


def _argument(seed: int, words: int, shape: Mapping[str, Any]) -> Any:
    if choices := shape.get("enum"):
        return choices[seed % len(choices)]
    kind = shape.get("type", "string")
    plain = {"integer": seed % 100, "number": (seed % 1000) / 10, "boolean": seed % 2 == 0, "array": [], "object": {}}
    return plain[kind] if kind in plain else "".join(_words(seed, words, {}))


def _cut(answer: Answer, limits: Limits) -> Answer:
    pieces, reason = _before_stop(answer.pieces, limits.stop), answer.finish_reason
    if pieces != answer.pieces:
        reason = "stop"
    if len(pieces) > limits.max_tokens:
        pieces, reason = pieces[: limits.max_tokens], "length"
    return replace(answer, pieces=pieces, finish_reason=reason, reasoning=min(answer.reasoning, len(pieces)))


def _before_stop(pieces: tuple[str, ...], stops: tuple[str, ...]) -> tuple[str, ...]:
    text = "".join(pieces)
    found = [(at + len(stop), at) for stop in stops if stop and (at := text.find(stop)) >= 0]
    if not found:
        return pieces
    end, start = min(found)
    kept: list[str] = []
    place = 0
    for piece in pieces:
        if place >= end:
            break
        kept.append(piece[: max(0, start - place)])
        place += len(piece)
    return tuple(kept)
