"""What a check before the first boot found: passed, failed with its fix, or not to be known.

Owns the typed results of pair, memory and draft-length checks. A failed check ends the run before its first boot,
unless the plan accepts it by name (`preflight.accept`); an unknown one is shown and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    PASS = "pass"  # noqa: S105 (a grade, no password)
    WARN = "warn"  # legal, yet beyond what the draft was made for, or known to mislead
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Check:
    """One rule applied to one arm (or to the target alone: `arm` None)."""

    rule: str  # stable name, e.g. "vocabulary_equal"; what `preflight.accept` names
    grade: Grade
    seen: str  # what stands in the files, with the values
    remedy: str = ""  # the fix, where it failed or warned
    arm: str | None = None
    source: str = ""  # where the rule comes from, with the engine's version
    place: str = ""  # key path in the plan, e.g. candidates[1].draft
