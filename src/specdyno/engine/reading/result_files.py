"""Result files that hold acceptance: `vllm bench serve` JSON, the offline example's output, golden acceptance YAML."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from specdyno.engine.reading.schema import (
    ROUNDING,
    Kind,
    Reading,
    checked,
    labelled_range,
    length,
    lines,
    number,
    ratio,
)

SOURCE_BENCH = "vllm bench serve"
SOURCE_SGLANG_BENCH = "sglang bench_serving (server lifetime)"
SOURCE_OFFLINE = "vllm offline example"
SOURCE_GOLDEN = "golden acceptance file"

_PREFIX = "spec_decode_"
_BENCH_KEYS = ("completed", "total_output_tokens")
_OFFLINE_LINE = re.compile(
    r"^\W*(?P<name>[a-z_ ]+?)(?: at token (?P<position>\d+))?\s*:\s*(?P<value>[-+.\deE]+|nan)\s*$"
)
_OFFLINE_NAMES = ("num_drafts", "num_draft_tokens", "num_accepted_tokens", "mean acceptance length")
_COUNTS = re.compile(r"#.*?\bk\s*=\s*(\d+)\s*:(.*)", re.IGNORECASE)
_PAIR = re.compile(r"([A-Za-z]+)\s*=\s*([-+\d.eE]*\d)")


def is_bench(page: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a serving benchmark's result."""
    return any(key.startswith(_PREFIX) for key in page) or all(key in page for key in _BENCH_KEYS)


def read_bench(page: Mapping[str, Any], *, label: str = "") -> Reading:
    """Rate is percent in this file, positions are fractions. Keys are absent when speculation is off or not seen."""
    spec = {key.removeprefix(_PREFIX): value for key, value in page.items() if key.startswith(_PREFIX)}
    if not spec and (value := number(page.get("accept_length"))) is not None:
        return checked(Reading(Kind.BENCH_RESULT, SOURCE_SGLANG_BENCH, label, mean_accepted_length=value))
    if not spec:
        note = "no acceptance keys: speculation was off, nothing was drafted, or the counters were not read"
        return Reading(Kind.BENCH_RESULT, SOURCE_BENCH, label, notes=(note,))
    listed = spec.get("per_position_acceptance_rates")
    shares = [number(value) for value in listed] if isinstance(listed, list) else []
    accepted = number(spec.get("accepted_tokens"))
    output = number(page.get("total_output_tokens"))
    notes = []
    if accepted is not None and output is not None and accepted > output:
        notes.append(f"{accepted:g} accepted tokens for {output:g} of output: the counters hold other traffic too")
    reading = checked(
        Reading(
            Kind.BENCH_RESULT,
            SOURCE_BENCH,
            label,
            steps=number(spec.get("num_drafts")),
            draft_tokens=number(spec.get("draft_tokens")),
            accepted_tokens=accepted,
            draft_tokens_k=len(shares) or None,
            mean_accepted_length=number(spec.get("acceptance_length")),
            acceptance_rate=ratio(number(spec.get("acceptance_rate")), 100.0),
            joint={place: share for place, share in enumerate(shares) if share is not None},
            notes=tuple(notes),
        )
    )
    return _with_identity(reading)


def _with_identity(reading: Reading) -> Reading:
    """A = 1 + sum of q_i must hold where every position is there."""
    mean, k = reading.mean_accepted_length, reading.draft_tokens_k
    if mean is None or not k or len(reading.joint) != k:
        return reading
    by_position = 1 + math.fsum(reading.joint.values())
    if abs(by_position - mean) <= ROUNDING * k:
        return reading
    problem = f"the positions give a mean length of {by_position:.4g}, the counts {mean:.4g}"
    return replace(reading, problems=(*reading.problems, problem))


def is_offline(text: str) -> bool:
    """Whether a text is the output of the offline example."""
    return sum(f"{name}:" in text for name in _OFFLINE_NAMES) >= 2


def read_offline(text: str) -> Reading:
    """Adds coverage and tokens per engine step, which the file does not print."""
    values: dict[str, float | None] = {}
    joint: dict[int, float] = {}
    for line in lines(text):
        match = _OFFLINE_LINE.match(line.strip())
        value = number(match["value"]) if match else None
        if match and match["position"] is not None and value is not None:
            joint[int(match["position"])] = value
        elif match:
            values[match["name"].strip()] = value
    drafts, drafted = values.get("num_drafts"), values.get("num_draft_tokens")
    reading = checked(
        Reading(
            Kind.OFFLINE_RESULT,
            SOURCE_OFFLINE,
            steps=drafts,
            draft_tokens=drafted,
            accepted_tokens=values.get("num_accepted_tokens"),
            draft_tokens_k=_draft_length(drafts, drafted, joint),
            mean_accepted_length=values.get("mean acceptance length") if drafts != 0 else None,
            joint=joint if drafts != 0 else {},
        )
    )
    return _with_coverage(reading, values.get("total_num_output_tokens"), values.get("num_tokens_generated_without_sd"))


def _draft_length(drafts: float | None, drafted: float | None, joint: Mapping[int, float]) -> int | None:
    """K from the positions if the draft tokens fit into them, else from whole draft tokens per draft."""
    per_draft = ratio(drafted, drafts)
    positions = max(joint, default=-1) + 1
    if per_draft is None or per_draft < 0:
        return None
    if positions and per_draft <= positions and (len(joint) == positions or math.ceil(per_draft) == positions):
        return positions
    return (
        int(per_draft) if per_draft == int(per_draft) and (not joint or len(joint) < positions <= per_draft) else None
    )


def _with_coverage(reading: Reading, output: float | None, without: float | None) -> Reading:
    """Steps without a draft give one token each; where not printed they are what drafted steps do not explain."""
    notes: tuple[str, ...] = reading.notes
    if without is None and None not in (output, reading.steps, reading.accepted_tokens):
        without = (output or 0.0) - (reading.steps or 0.0) - (reading.accepted_tokens or 0.0)
        notes = (*notes, "tokens without speculation derived from the totals, short by tokens cut off at the end")
    if without is None or without < 0 or reading.steps is None:
        return reading
    steps = reading.steps + without
    return replace(reading, coverage=ratio(reading.steps, steps), tokens_per_step=ratio(output, steps), notes=notes)


@dataclass(frozen=True, slots=True)
class _Leaf:
    path: tuple[str, ...]
    k: int
    value: float | None
    row: int


def read_golden(text: str) -> Reading:
    """Parts are the entries by model, mode and K; a comment `# k=3: ...` beside an entry holds its counts."""
    text = "\n".join(lines(text))
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        problem = f"no readable YAML: {str(error).splitlines()[0]}"
        return Reading(Kind.GOLDEN_ACCEPTANCE, SOURCE_GOLDEN, problems=(problem,))
    leaves = list(_leaves(root, ()))
    comments = list(_comments(text))
    parts = tuple(_golden_part(leaf, _beside(leaf, leaves, comments)) for leaf in leaves)
    if len(parts) == 1:
        return replace(parts[0], parts=parts)
    means = (part.mean_accepted_length for part in parts if part.mean_accepted_length is not None)
    return Reading(
        Kind.GOLDEN_ACCEPTANCE,
        SOURCE_GOLDEN,
        length_range=labelled_range(means),
        notes=("entries by model, mode and draft length: kept apart",) if parts else (),
        problems=() if parts else ("no entry with a draft length as its key",),
        parts=parts,
    )


def is_golden(text: str) -> bool:
    """Whether a text is YAML whose innermost keys are draft lengths."""
    try:
        root = yaml.compose("\n".join(lines(text)), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return any(True for _ in _comments(text))
    return any(leaf.value is not None for leaf in _leaves(root, ())) if root is not None else False


def _leaves(node: yaml.Node | None, path: tuple[str, ...]) -> Iterator[_Leaf]:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        name = str(key.value)
        if isinstance(value, yaml.MappingNode):
            yield from _leaves(value, (*path, name))
        elif isinstance(value, yaml.ScalarNode) and name.isdecimal() and path:
            yield _Leaf(path, int(name), number(str(value.value)), key.start_mark.line)


def _comments(text: str) -> Iterator[tuple[int, int, dict[str, float]]]:
    """Row, K and counts of each comment that names a K."""
    for row, line in enumerate(text.split("\n")):
        if match := _COUNTS.search(line):
            pairs = {
                name.lower(): value for name, found in _PAIR.findall(match[2]) if (value := number(found)) is not None
            }
            yield row, int(match[1]), pairs


def _beside(
    leaf: _Leaf, leaves: Sequence[_Leaf], comments: Sequence[tuple[int, int, dict[str, float]]]
) -> dict[str, float]:
    """The nearest comment of the same K above the entry (or on its row) that no earlier entry of that K took."""
    earlier = max((other.row for other in leaves if other.k == leaf.k and other.row < leaf.row), default=-1)
    own = [counts for row, k, counts in comments if k == leaf.k and earlier < row <= leaf.row]
    return own[-1] if own else {}


def _golden_part(leaf: _Leaf, counts: Mapping[str, float]) -> Reading:
    reading = Reading(
        Kind.GOLDEN_ACCEPTANCE,
        SOURCE_GOLDEN,
        f"{' / '.join(leaf.path)} / K {leaf.k}",
        steps=counts.get("drafts"),
        draft_tokens=counts.get("proposed"),
        accepted_tokens=counts.get("accepted"),
        draft_tokens_k=leaf.k,
        mean_accepted_length=leaf.value,
        acceptance_rate=counts.get("ar"),
    )
    by_count = length(reading.accepted_tokens, reading.steps)
    if by_count is not None and leaf.value is not None and abs(by_count - leaf.value) > 2 * ROUNDING:
        problem = f"the comment gives a mean length of {by_count:.4g}, the entry says {leaf.value:g}: entry kept"
        bare = replace(reading, steps=None, draft_tokens=None, accepted_tokens=None, acceptance_rate=None)
        return checked(replace(bare, problems=(problem,)))
    return checked(reading)
