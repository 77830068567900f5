"""All pair checks of a plan: each checkpoint is read once, each rule is asked of each candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from specdyno.errors import PlanError
from specdyno.plan.arms import Role
from specdyno.plan.engine import EngineKind
from specdyno.plan.schema import Plan
from specdyno.preflight.checkpoints.hub import Unreachable
from specdyno.preflight.checkpoints.read import read as read_checkpoint
from specdyno.preflight.checkpoints.schema import Checkpoint, Format
from specdyno.preflight.pair.installed import Installed, installed
from specdyno.preflight.pair.rule import Pair, Rule
from specdyno.preflight.pair.rules import READABLE, RULES, SUPPORTED
from specdyno.preflight.pair.support import TABLE, VLLM_VERSION
from specdyno.preflight.schema import Check, Grade

_NOT_READ = Checkpoint(source="", format=Format.HUGGING_FACE, config={})  # stands where a rule reads nothing of it


@dataclass(frozen=True, slots=True)
class _Read:
    """A checkpoint as the plan names it, or why there is none."""

    found: Checkpoint | None
    checks: tuple[Check, ...] = ()


Read = Callable[[str, str | None], Checkpoint]


def check_pairs(plan: Plan, *, read: Read | None = None) -> tuple[Check, ...]:
    """Every rule on every candidate of the plan, in the plan's order; the simulated engine loads nothing and has none.

    `read(source, revision)` gives a checkpoint; the usual one reads files and the hub. Raises nothing for a bad pair:
    failures, and files that cannot be read, are checks.
    """
    if plan.engine.kind is EngineKind.SIMULATED:
        return ()
    engine = installed(plan.engine)
    names = _arm_names(plan)
    reader = _Reader(read or _usual, foreign=plan.engine.kind is EngineKind.EXTERNAL)
    target = reader.opened(plan.target.model, plan.target.revision, place="target.model")
    drafts = {name: reader.opened(name, None, place=place) for name, place in _drafts(plan).items()}
    checks = [*target.checks]
    for index, candidate in enumerate(plan.candidates):
        draft = drafts.get(candidate.draft or "", target)
        if draft is not target:
            place = f"candidates[{index}].draft"
            checks += [replace(check, arm=", ".join(names[index]), place=place) for check in draft.checks]
        checks += _checks(plan, index, target=target.found, draft=draft.found, engine=engine, names=names[index])
    return tuple(checks)


def _drafts(plan: Plan) -> dict[str, str]:
    """Each draft that is named, with the first place where it stands."""
    places: dict[str, str] = {}
    for index, candidate in enumerate(plan.candidates):
        if candidate.draft:
            places.setdefault(candidate.draft, f"candidates[{index}].draft")
    return places


def _arm_names(plan: Plan) -> list[list[str]]:
    """The names of each candidate's arms, in the order of its draft lengths."""
    names = iter(arm.name for arm in plan.arms() if arm.role is Role.CANDIDATE)
    return [[next(names) for _ in candidate.draft_tokens] for candidate in plan.candidates]


def _usual(source: str, revision: str | None) -> Checkpoint:
    return read_checkpoint(source, revision=revision)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads checkpoints; `foreign`: what an external engine calls a model need be no file and no hub id."""

    read: Read
    foreign: bool

    def opened(self, name: str, revision: str | None, *, place: str) -> _Read:
        try:
            return _Read(self.read(name, revision))
        except PlanError as error:
            grade = Grade.UNKNOWN if self.foreign else Grade.FAIL
            problems = error.problems
            return _Read(None, tuple(Check(READABLE, grade, one.seen, one.remedy, place=place) for one in problems))
        except Unreachable as error:
            seen = f'"{name}" cannot be read: {error}; what depends on it was not checked'
            return _Read(None, (Check(READABLE, Grade.UNKNOWN, seen, place=place),))


def _checks(  # noqa: PLR0913 (one candidate with all that it is judged by)
    plan: Plan,
    index: int,
    *,
    target: Checkpoint | None,
    draft: Checkpoint | None,
    engine: Installed,
    names: list[str],
) -> Iterator[Check]:
    candidate = plan.candidates[index]
    there = {name for name, found in (("target", target), ("draft", draft)) if found is not None}
    pair = Pair(
        engine=plan.engine,
        method=candidate.method,
        target_name=plan.target.model,
        draft_name=candidate.draft,
        target=target or _NOT_READ,
        draft=draft or _NOT_READ,
        lengths=candidate.draft_tokens,
        options=candidate.options,
        installed=engine,
    )
    lacking = TABLE[pair.kind][pair.method].supported is False
    for rule in RULES:
        if not _applies(rule, pair) or not rule.reads <= there or (lacking and rule.name != SUPPORTED):
            continue
        asked = [pair.at_length(k) for k in candidate.draft_tokens] if rule.per_length else [pair]
        arms = names if rule.per_length else [", ".join(names)]
        for one, arm in zip(asked, arms, strict=True):
            if check := _judged(rule, one, arm=arm, place=f"candidates[{index}].{rule.about}"):
                yield check


def _applies(rule: Rule, pair: Pair) -> bool:
    return pair.method in rule.methods and rule.source(pair.kind) is not None


def _judged(rule: Rule, pair: Pair, *, arm: str, place: str) -> Check | None:
    judged = rule.judge(pair)
    if judged is None:
        return None
    check = Check(
        rule=rule.name,
        grade=judged.grade,
        seen=judged.seen,
        remedy=judged.remedy,
        arm=arm,
        source=rule.source(pair.kind) or TABLE[pair.kind][pair.method].source,
        place=place,
    )
    return _for_version(check, rule, pair)


def _for_version(check: Check, rule: Rule, pair: Pair) -> Check:
    """What fails by the engine's version is a warning where another version is known to be installed."""
    version = pair.installed.vllm_version
    if check.grade is not Grade.FAIL or not rule.of_version or version in (None, VLLM_VERSION):
        return check
    seen = f"{check.seen} (checked against vLLM {VLLM_VERSION}, here is {version})"
    return replace(check, grade=Grade.WARN, seen=seen)
