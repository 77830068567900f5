"""A rule: a name, where it applies, a judgement, and where the rule comes from.

A new rule is a function and one entry in `rules.RULES`; its name is what `preflight.accept` of a plan may hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specdyno.plan.engine import Engine
from specdyno.plan.methods import Method
from specdyno.preflight.checkpoints.schema import Checkpoint
from specdyno.preflight.pair.installed import Installed
from specdyno.preflight.pair.support import NAMES
from specdyno.preflight.pair.traits import Traits, traits
from specdyno.preflight.schema import Grade

ELSEWHERE = "*"  # in `Rule.sources`: every engine that has no source of its own


@dataclass(frozen=True, slots=True)
class Judged:
    grade: Grade
    seen: str
    remedy: str = ""


def passed(seen: str) -> Judged:
    return Judged(Grade.PASS, seen)


def failed(seen: str, remedy: str) -> Judged:
    return Judged(Grade.FAIL, seen, remedy)


def warned(seen: str, remedy: str = "") -> Judged:
    return Judged(Grade.WARN, seen, remedy)


def unknown(seen: str) -> Judged:
    return Judged(Grade.UNKNOWN, seen)


@dataclass(frozen=True, slots=True)
class Pair:
    """One candidate of a plan beside its target, with what their files say."""

    engine: Engine
    method: Method
    target_name: str
    draft_name: str | None
    target: Checkpoint
    draft: Checkpoint  # the target itself where it drafts for itself, or where nothing drafts
    lengths: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    installed: Installed = field(default_factory=lambda: Installed({}))
    of_target: Traits = field(init=False)
    of_draft: Traits = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "of_target", traits(self.target))
        object.__setattr__(self, "of_draft", traits(self.draft))

    @property
    def kind(self) -> str:
        return str(self.engine.kind)

    @property
    def engine_name(self) -> str:
        return NAMES[self.kind]

    @property
    def k(self) -> int:
        """The draft length under judgement, for rules that are asked once per length."""
        return self.lengths[0]

    @property
    def draft_vocabulary(self) -> int | None:
        """Tokens that the draft can propose: its own, smaller vocabulary where it has one."""
        return self.of_draft.draft_vocabulary or self.of_draft.vocabulary

    def at_length(self, k: int) -> Pair:
        return replace(self, lengths=(k,))

    def option(self, name: str) -> Any:
        """An option of the method, dashes and underscores alike."""
        return next((value for key, value in self.options.items() if key.replace("-", "_") == name), None)

    def arg(self, *names: str) -> Any:
        """A flag of the engine by any of its spellings with underscores."""
        given = {key.replace("-", "_"): value for key, value in self.engine.args.items()}
        return next((given[name] for name in names if name in given), None)


@dataclass(frozen=True, slots=True)
class Rule:
    """`judge` answers None where a rule has nothing to say of a pair."""

    name: str
    judge: Callable[[Pair], Judged | None]
    sources: Mapping[str, str]  # engine kind, or ELSEWHERE -> where the rule was read; others are not judged
    methods: frozenset[Method] = frozenset(Method)
    reads: frozenset[str] = frozenset({"target", "draft"})  # whose files it needs
    of_version: bool = False  # true of the version in the source: elsewhere a failure is a warning
    per_length: bool = False
    about: str = "draft"  # the key of the candidate that the author would change

    def source(self, kind: str) -> str | None:
        return self.sources.get(kind, self.sources.get(ELSEWHERE))
