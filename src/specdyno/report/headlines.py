"""A verdict in sentences with its numbers: what was decided, why, and what would settle it.

Pure functions of the verdict. The fixed wording stands in `report.sentences`, the spelling of numbers in
`report.spelling`.
"""

from __future__ import annotations

from specdyno.records.schema import FindingCode, Severity
from specdyno.report import sentences, spelling
from specdyno.report.untrusted import sanitise
from specdyno.statistics.blocks import PROMOTION_BLOCKS
from specdyno.statistics.intervals import Interval, Undefined
from specdyno.statistics.measures import LARGEST_RATE
from specdyno.verdict.schema import ORDER, CandidateVerdict, Decision, Gate, ObjectiveVerdict, Reason, Verdict

MOST_BLOCKS = 100
"""The largest look that a plan may name."""
MORE_STEPS = (
    "Each boot's largest rate lies between two that were tried, and the interval takes the worse of them: more `steps` "
    "of the search narrow it in a new study; more blocks narrow only the rest."
)
VERBS = {Decision.PROMOTE: "Promote", Decision.HOLD: "Hold", Decision.REJECT: "Reject"}


def summary(verdict: Verdict) -> str:
    """All objectives in one sentence, with where they disagree said first: in what they decide, or in what to run."""
    groups: dict[tuple[Decision, str], list[str]] = {}
    for decision in reversed(ORDER):
        for part in verdict.objectives:
            if part.decision is decision:
                groups.setdefault((decision, _to_run(part)), []).append(sanitise(part.objective))
    parts = [f"{VERBS[decision].lower()}{what} for {_enumerate(names)}" for (decision, what), names in groups.items()]
    text = "; ".join(parts)
    if len(parts) > 1:
        return f"The objectives disagree: {text}."
    return f"{text[:1].upper()}{text[1:]}." if text else "The plan has no objective, so nothing was decided."


def _to_run(objective: ObjectiveVerdict) -> str:
    """The recommended arm and its classes where the promote is for some only; empty without a promote."""
    if objective.decision is not Decision.PROMOTE or objective.recommended is None:
        return ""
    subject = spokesman(objective)
    scope = f" ({_scope_words(subject)} only)" if _scoped(subject) else ""
    return f" {sanitise(objective.recommended)}{scope}"


def headline(objective: ObjectiveVerdict, verdict: Verdict) -> str:
    """The one sentence per objective that people will quote."""
    name, subject = sanitise(objective.objective), spokesman(objective)
    if objective.decision is Decision.PROMOTE and objective.recommended is not None:
        blocks = spelling.plural(_blocks(subject, verdict), "block")
        where = f"{name}, only {_scope_words(subject)}" if _scoped(subject) else name
        what = sanitise(objective.recommended)
        return f"Promote {what} for {where} ({sentences.answers(verdict.quality)}): {_shown_gain(subject)}, {blocks}."
    if subject is None:
        return f"{VERBS[objective.decision]} for {name}: there is no candidate to judge."
    why = _because(subject, objective, verdict)
    best = f"{sanitise(subject.candidate)} shows {gain(subject)} after "
    best += spelling.plural(_blocks(subject, verdict), "complete block")
    return f"{VERBS[objective.decision]} for {name}: {why}. {best}."


def details(objective: ObjectiveVerdict, verdict: Verdict) -> tuple[str, ...]:
    """What else to know: what this much data could show, how many blocks would settle it, what the others do."""
    lines = []
    subject = spokesman(objective)
    if objective.decision is Decision.HOLD:
        if objective.detectable_gain is not None:
            lines.append(_could_have_seen(objective.detectable_gain, objective.minimum_gain))
        if subject is not None:
            lines += _shortest_way(subject, verdict)
    if objective.decision is Decision.PROMOTE and objective.best not in (None, objective.recommended):
        best = _candidate(objective, objective.best)
        if best is not None:
            lines.append(
                f"{sanitise(best.candidate)} has the largest estimate, {gain(best)}; the recommendation is "
                f"{_why_not_best(objective)}."
            )
    if subject is not None and subject.scope is not None and subject.scope.to_confirm:
        names = _enumerate([sanitise(name) for name in subject.scope.to_confirm])
        lines.append(
            f"A scope to confirm: {names} each show the gain, but were not measured together without the rest. "
            "A new study with these classes as its whole traffic settles it."
        )
    if len(objective.indifference) > 1:
        names = _enumerate([sanitise(name) for name in objective.indifference])
        lines.append(f"Shown to lie within 3 % of the best, smallest K first: {names}.")
    return tuple(lines)


def _why_not_best(objective: ObjectiveVerdict) -> str:
    if objective.best in objective.indifference:
        return "the smallest K that is shown to lie within 3 % of it"
    return "the best of those that are promoted"


def candidate_sentence(candidate: CandidateVerdict, objective: ObjectiveVerdict, verdict: Verdict) -> str:
    """One candidate's decision and its reason."""
    return f"{VERBS[candidate.decision]}: {_because(candidate, objective, verdict)}."


def _scoped(candidate: CandidateVerdict | None) -> bool:
    return candidate is not None and candidate.reason is Reason.SCOPED_GAIN_SHOWN and candidate.scope is not None


def _scope_words(candidate: CandidateVerdict | None) -> str:
    names = [] if candidate is None or candidate.scope is None else [sanitise(name) for name in candidate.scope.classes]
    return f"{'class' if len(names) == 1 else 'classes'} {_enumerate(names)}" if names else "some classes"


def _shown_gain(candidate: CandidateVerdict | None) -> str:
    """The gain that a promote rests on: of the whole traffic, or of each class of its scope."""
    if candidate is None or not _scoped(candidate) or candidate.scope is None:
        return gain(candidate)
    cells = [cell for cell in candidate.scope.cells if cell.class_name in candidate.scope.classes]
    shown = (f"{sanitise(c.class_name)} {spelling.with_interval(c.ratio, spelling.change)}" for c in cells)
    return "; ".join(shown)


def _shortest_way(candidate: CandidateVerdict, verdict: Verdict) -> list[str]:
    """What settles a hold with the least further measuring."""
    match candidate.reason:
        case Reason.FINDING_FORBIDS:
            forbids = (finding for finding in candidate.findings if finding.severity is Severity.FORBIDS)
            todo = " ".join(dict.fromkeys(sentences.FINDINGS[finding.code].do for finding in forbids))
            return [f"The shortest way to settle it: more blocks cannot. {todo}"] if todo else []
        case Reason.TOO_FEW_BLOCKS if verdict.looks:
            return [f"The shortest way to settle it: specdyno run --resume, up to {min(verdict.looks)} blocks."]
        case Reason.NOT_MEASURED | Reason.PRIMARY_UNDECIDED if edges := _without_edge(candidate):
            return [f"The shortest way to settle it: a new study whose search reaches the edge. {edges}."]
        case Reason.PRIMARY_UNDECIDED if (gate := primary(candidate)) and gate.measure == LARGEST_RATE:
            return [MORE_STEPS]
    return [_blocks_needed(candidate.blocks_needed, verdict)] if candidate.blocks_needed is not None else []


def _without_edge(candidate: CandidateVerdict) -> str:
    """Which searches for the largest rate found no edge, and the rates that each would need; empty where all did."""
    found = [finding for finding in candidate.findings if finding.code is FindingCode.EDGE_NOT_FOUND]
    return ". ".join(f"{sanitise(one.arm or '')}: {sanitise(one.detail)}" for one in found)


def gain(candidate: CandidateVerdict | None) -> str:
    """The primary gate's estimate as a gain, with level and bounds."""
    gate = primary(candidate)
    return "no measured gain" if gate is None else spelling.with_interval(gate.ratio, spelling.change)


def primary(candidate: CandidateVerdict | None) -> Gate | None:
    gates = candidate.gates if candidate is not None else ()
    return next((gate for gate in gates if gate.name == "primary"), None)


def spokesman(objective: ObjectiveVerdict) -> CandidateVerdict | None:
    """The candidate that stands for the objective's decision: recommended, else best, else first of that decision."""
    deciding = [part for part in objective.candidates if part.decision is objective.decision]
    for name in (objective.recommended, objective.best):
        for part in deciding:
            if part.candidate == name:
                return part
    return deciding[0] if deciding else next(iter(objective.candidates), None)


def gate_value(gate: Gate) -> str:
    """What the gate saw, better above 0 % except for failed requests."""
    return spelling.with_interval(gate.ratio, spelling.points if gate.name == "failed_requests" else spelling.change)


def gate_threshold(gate: Gate) -> str:
    """What the gate asks for, as a phrase."""
    if gate.name == "failed_requests":
        return f"at most {spelling.points(gate.threshold)}"
    if gate.name == "primary":
        return f"at least {spelling.change(gate.threshold)}"
    if gate.name == "output_length":
        margin = spelling.exact_share(abs(1 - gate.threshold))
        return f"within {margin} either way"
    return f"not below {spelling.change(gate.threshold)}"


def _because(candidate: CandidateVerdict, objective: ObjectiveVerdict, verdict: Verdict) -> str:
    text = sentences.REASONS[candidate.reason]
    minimum = f"a gain of at least {spelling.exact_share(objective.minimum_gain)}"
    match candidate.reason:
        case Reason.GAIN_EXCLUDED:
            text = f"{minimum} is excluded"
        case Reason.PRIMARY_UNDECIDED:
            text = f"{minimum} is neither shown nor excluded"
        case Reason.SCOPED_GAIN_SHOWN if candidate.scope is not None:
            text = f"{minimum} is shown for {_scope_words(candidate)} alone: {_shown_gain(candidate)}"
        case Reason.GUARD_BROKEN | Reason.GUARD_UNDECIDED:
            text = f"{text}: {_gate_phrase(candidate)}"
        case Reason.TOO_FEW_BLOCKS if verdict.looks:
            text = f"{text}: {_too_few(verdict)}"
        case Reason.FINDING_FORBIDS:
            forbids = (finding for finding in candidate.findings if finding.severity is Severity.FORBIDS)
            says = dict.fromkeys(sentences.FINDINGS[finding.code].says.rstrip(".") for finding in forbids)
            text = f"{text} ({'; '.join(says)})" if says else text
        case Reason.NOT_MEASURED:
            text = f"{sentences.measure(objective.measure)} was not measured{_why_absent(candidate)}"
    return text


def _too_few(verdict: Verdict) -> str:
    first = min(verdict.looks)
    if verdict.blocks_complete < first:
        return f"{verdict.blocks_complete}, and the first look is at {first}"
    return f"{verdict.blocks_complete}, and no promote rests on fewer than {PROMOTION_BLOCKS}"


def _why_absent(candidate: CandidateVerdict) -> str:
    gate = primary(candidate)
    return f" ({sanitise(gate.ratio.reason)})" if gate is not None and isinstance(gate.ratio, Undefined) else ""


def _gate_phrase(candidate: CandidateVerdict) -> str:
    gate = next((gate for gate in candidate.gates if gate.name == candidate.deciding_gate), None)
    if gate is None:
        return sentences.gate(candidate.deciding_gate or "unnamed guard").lower()
    return f"{sentences.gate(gate.name).lower()} at {gate_value(gate)}, allowed {gate_threshold(gate)}"


def _could_have_seen(half_width: float, minimum_gain: float) -> str:
    """The least estimate whose interval would have cleared the minimum gain."""
    least = (1 + minimum_gain) * (1 + half_width)
    return (
        f"The best candidate's interval reaches about {spelling.share(half_width)} either way: with this much data "
        f"a gain of {spelling.change(least)} or more would have been shown."
    )


def _blocks_needed(needed: tuple[int, int], verdict: Verdict) -> str:
    low, high = sorted(needed)
    there = f"there are {verdict.blocks_complete}"
    if low > MOST_BLOCKS:
        return f"More than {MOST_BLOCKS} complete blocks would be needed ({there}): too close to the limit to settle."
    most = f"{high:,}" if high <= MOST_BLOCKS else f"more than {MOST_BLOCKS}"
    span = f"{low:,}" if low == high else f"{low:,} to {most}"
    last = max(verdict.looks, default=0)
    text = f"About {span} complete blocks in total would settle it; {there}."
    if high > last:
        reach = min(high, MOST_BLOCKS)
        text += f" That is past the last look of this plan ({last}): start a new study with looks up to {reach}."
    return text


def _blocks(candidate: CandidateVerdict | None, verdict: Verdict) -> int:
    gate = primary(candidate)
    if candidate is not None and candidate.look is not None:
        return candidate.look
    return gate.ratio.count if gate is not None and isinstance(gate.ratio, Interval) else verdict.blocks_complete


def _candidate(objective: ObjectiveVerdict, name: str | None) -> CandidateVerdict | None:
    return next((part for part in objective.candidates if part.candidate == name), None)


def _enumerate(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
