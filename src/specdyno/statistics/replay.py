"""What a smaller K would have accepted, from one run at a larger K with ordered counts per step.

A step with a accepted tokens says of each next token whether the draft knew it: a ones, then a zero, unless the whole
draft was accepted. This string of labels is cut again as a smaller K would have cut it. That keeps what truncating the
survival curve loses: another K starts its steps at other tokens, so that hard stretches meet fresh steps more or less
often (renewal). It assumes that a label belongs to the token and not to its depth in the draft, which holds for greedy
draft models and nearly so for chains. Refused where a draft of K - 1 is not the start of a draft of K.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specdyno.plan.schema import Method
from specdyno.records.schema import SpecSteps
from specdyno.statistics.intervals import Estimate, Undefined
from specdyno.statistics.shares import Share, share_interval

HISTORY = frozenset({Method.NGRAM, Method.SUFFIX})
BLOCK = frozenset({Method.PARD, Method.DFLASH, Method.DSPARK, Method.MEDUSA})
DEPTH_FREE = frozenset({Method.DRAFT_MODEL})
_TREE_KEYS = ("speculative_token_tree", "speculative_eagle_topk")
_TOGETHER = 512  # answers cut at once

Counts = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Replayed:
    """One measured run cut again at `draft_tokens`.

    Every label is accepted, or skipped as the one token that a step adds itself: `steps + accepted == labels + beyond`.
    Counts are expectations over the imputed labels; at the measured K nothing is imputed and they are whole.
    """

    draft_tokens: int
    measured_draft_tokens: int
    answers: int
    steps: float
    accepted_per_position: tuple[float, ...]  # n_i, shape (K,): steps that accept at least i tokens
    tokens_per_step: Estimate  # the mean accepted length, since every step drafts
    labels: int  # tokens whose label is read or imputed
    unknown: int  # of them, bonus tokens of fully accepted drafts
    beyond: float  # tokens past the ends of answers that the last steps run into
    dropped: int  # tokens of last steps whose draft was cut by the end of the answer
    imputed_rate: float | None  # probability given to an unknown label; None: there is none
    by_depth: bool | None = None  # whether labels may depend on depth (EAGLE, MTP); None: the method is not told

    @property
    def accepted(self) -> float:
        """Accepted tokens."""
        return float(sum(self.accepted_per_position))

    @property
    def mean_accepted_length(self) -> float:
        """1 + accepted / steps."""
        return 1 + self.accepted / self.steps


def replay_answers(  # noqa: PLR0913 - reports, K, how they were drafted, and what the interval needs
    reports: Iterable[SpecSteps | None],
    draft_tokens: int,
    *,
    method: Method,
    options: Mapping[str, object] | None = None,
    boots: Sequence[int] | None = None,
    seed: int = 0,
) -> Replayed | Undefined:
    """Replay what an engine reported with its answers; Undefined for a method or a report that cannot be replayed.

    Args:
        reports: one per finished answer; None (nothing drafted for it) is left out.
        draft_tokens: the smaller K, or the measured one.
        method: how the tokens were drafted.
        options: further keys of the candidate, searched for trees and drafts made in one block.
        boots: the boot of each report; default one boot.
        seed: of the study, for the bootstrap.
    """
    refused = refusal(method, options or {})
    if refused is not None:
        return Undefined(refused)
    rows = [(spec, 0 if boots is None else boots[i]) for i, spec in enumerate(reports) if spec is not None]
    rows = [row for row in rows if row[0].num_spec_steps != 0]
    bare = sum(spec.per_step_accepted is None or spec.per_step_drafted is None for spec, _ in rows)
    if not rows or bare:
        return Undefined(f"{bare} of {len(rows)} answers have no ordered counts per step", len(rows))
    in_force = {spec.num_spec_tokens for spec, _ in rows} - {None}
    if len(in_force) > 1:
        return Undefined(f"K changed between answers: {', '.join(map(str, sorted(filter(None, in_force))))}", len(rows))
    return replay(
        [spec.per_step_accepted or () for spec, _ in rows],
        [spec.per_step_drafted or () for spec, _ in rows],
        draft_tokens=draft_tokens,
        measured=next(iter(in_force), None),
        boots=[boot for _, boot in rows],
        by_depth=method not in DEPTH_FREE,
        seed=seed,
    )


def refusal(method: Method, options: Mapping[str, object]) -> str | None:
    """Why drafts of this method cannot be cut shorter afterwards; None: they can."""
    if method in HISTORY:
        return f"{method} drafts from what was said before: another K finds other drafts; run each K"
    if method in BLOCK or options.get("parallel_drafting"):
        return f"{method} drafts a block whose every token depends on K; run each K"
    if any(options.get(key) not in (None, "", 1) for key in _TREE_KEYS):
        return "a tree of drafts has no order of labels; run each K"
    return None


def replay(  # noqa: PLR0913 - counts, K, and what the interval needs
    per_step_accepted: Counts,
    per_step_drafted: Counts,
    *,
    draft_tokens: int,
    measured: int | None = None,
    boots: Sequence[int] | None = None,
    by_depth: bool | None = None,
    seed: int = 0,
) -> Replayed | Undefined:
    """Cut the labels of each answer again, greedily, with K `draft_tokens`: count ones up to K, skip one.

    The label of a bonus token is unknown. It is imputed by the last measured conditional rate c_K, pooled over answers,
    as an expectation and not as a draw: both have the same mean, but a draw adds its own noise to every count, and the
    ratio of noisy counts is biased as well. Tokens past the end of an answer, into which a last step may run, are
    imputed likewise; to drop such a step instead would drop long ones.

    Args:
        per_step_accepted: accepted tokens of every step, in order, one sequence per answer.
        per_step_drafted: drafted tokens of the same steps.
        draft_tokens: K to cut with, at most the measured one.
        measured: K in force; None: the longest draft.
        boots: the boot of each answer, for the interval; default one boot.
        by_depth: carried to the result.
        seed: of the study.
    """
    problem = _misfit(per_step_accepted, per_step_drafted)
    if problem:
        return Undefined(problem, len(per_step_accepted))
    longest = max((max(row, default=0) for row in per_step_drafted), default=0)
    k = longest if measured is None else measured
    kept = [_whole(*rows, k=k) for rows in zip(per_step_accepted, per_step_drafted, strict=True)]
    problem = _refused(kept, per_step_drafted, draft_tokens=draft_tokens, k=k)
    if problem:
        return Undefined(problem, len(per_step_accepted))
    rate = _last_rate(np.concatenate([np.asarray(row, np.int64) for row in kept]), k)
    strings = [_labels(row, k=k, rate=rate or 0.0) for row in kept]
    steps, reached = _cut(strings, draft_tokens, rate=rate or 0.0)
    boot = np.zeros(len(kept), np.int64) if boots is None else np.asarray(boots)
    share = Share(reached.sum(axis=1), steps, boot, "requests", scale=draft_tokens, offset=1.0)
    labels = sum(map(len, strings))
    return Replayed(
        draft_tokens=draft_tokens,
        measured_draft_tokens=k,
        answers=sum(bool(row) for row in kept),
        steps=float(steps.sum()),
        accepted_per_position=tuple(reached.sum(axis=0).tolist()),
        tokens_per_step=share_interval(share, seed=seed, name=f"replay at {draft_tokens}/length"),
        labels=labels,
        unknown=sum(step == k for row in kept for step in row),
        beyond=float(steps.sum() + reached.sum() - labels),
        dropped=sum(sum(row) + len(row) for row in per_step_accepted) - labels,
        imputed_rate=rate,
        by_depth=by_depth,
    )


def _misfit(accepted: Counts, drafted: Counts) -> str | None:
    if len(accepted) != len(drafted):
        return "accepted and drafted counts are of different answers"
    for a_row, d_row in zip(accepted, drafted, strict=True):
        if len(a_row) != len(d_row) or any(not 0 <= a <= d for a, d in zip(a_row, d_row, strict=False)):
            return "steps that accepted more than they drafted, or lists of unequal length"
    return None


def _whole(accepted: Sequence[int], drafted: Sequence[int], *, k: int) -> Sequence[int]:
    """The last step of an answer may be drafted shorter because the answer ends: it says nothing about K."""
    return accepted[:-1] if len(drafted) and drafted[-1] < k else accepted


def _refused(kept: Counts, drafted: Counts, *, draft_tokens: int, k: int) -> str | None:
    if draft_tokens < 1:
        return f"K {draft_tokens} drafts nothing"
    if draft_tokens > k:
        return f"K {draft_tokens} is larger than the measured K {k}: not extrapolated"
    if not any(len(row) for row in kept):
        return "no ordered counts of whole drafts"
    lengths = {d for whole, row in zip(kept, drafted, strict=True) for d in row[: len(whole)]}
    if max(lengths) > k:
        return f"steps that drafted {max(lengths)} with K {k}: a tree, or another K than said; run each K"
    if min(lengths) < k:
        return (
            f"drafts that stop before K {k} (down to {min(lengths)}): where they stop depends on the draft; run each K"
        )
    return None


def _last_rate(accepted: np.ndarray, k: int) -> float | None:
    """c_K: fully accepted drafts of those accepted up to K - 1; None where none was."""
    at_risk = int((accepted >= k - 1).sum())
    return int((accepted >= k).sum()) / at_risk if at_risk and (accepted >= k).any() else None


def _labels(accepted: Sequence[int], *, k: int, rate: float) -> np.ndarray:
    """Probability that the draft knows each token: 1, 0, or `rate` for a bonus token."""
    steps = np.asarray(accepted, np.int64)
    string = np.ones(int(steps.sum()) + len(steps))
    string[np.cumsum(steps + 1) - 1] = np.where(steps == k, rate, 0.0)
    return string


def _cut(strings: Sequence[np.ndarray], depth: int, *, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Expected steps, shape (N,), and steps that accept at least i, shape (N, K), of each string.

    Forward over the tokens: the chance that a step starts at each, then where that step ends. Strings of like length
    are taken together, padded with `rate` past their ends, where no step starts.
    """
    steps, reached = np.zeros(len(strings)), np.zeros((len(strings), depth))
    lengths = np.array([len(string) for string in strings])
    order = np.argsort(lengths, kind="stable")
    for first in range(0, len(order), _TOGETHER):
        rows = order[first : first + _TOGETHER]
        longest = int(lengths[rows].max())
        table = np.full((longest + depth, len(rows)), rate)
        for column, row in enumerate(rows):
            table[: lengths[row], column] = strings[row]
        starts = np.zeros((longest + depth + 1, len(rows)))
        starts[0] = 1.0
        for place in range(longest):
            alive = np.where(place < lengths[rows], starts[place], 0.0)
            steps[rows] += alive
            for i in range(depth):
                knows = alive * table[place + i]
                starts[place + i + 1] += alive - knows
                reached[rows, i] += knows
                alive = knows
            starts[place + depth + 1] += alive
    return steps, reached
