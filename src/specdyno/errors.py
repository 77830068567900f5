"""The exception tree, by who must act.

Owns every exception that may end a command. A message says what was seen, where, and what to do. Anything that is
not a `SpecdynoError` is a bug and shows its traceback. Findings (doubt about data) are not exceptions: see
`records.schema.Finding`.
"""

from __future__ import annotations

from dataclasses import dataclass


class SpecdynoError(Exception):
    """Base of everything specdyno raises on purpose; `exit_code` is what the command line ends with."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a plan: where it stands, what was seen, what to do."""

    place: str
    """Key path as written in the file, e.g. `candidates[1].draft_tokens`; empty for the file as a whole."""
    seen: str
    remedy: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        place = f"{self.place}: " if self.place else ""
        return f"{where}{place}{self.seen}. {self.remedy}".rstrip()


class PlanError(SpecdynoError):
    """The author of the plan (or of the command line) must act. Carries every problem at once."""

    exit_code = 2

    def __init__(self, problems: list[Problem] | str, source: str = "") -> None:
        self.problems = [Problem("", problems, "")] if isinstance(problems, str) else problems
        self.source = source
        super().__init__("\n".join(str(problem) for problem in self.problems))


class EngineError(SpecdynoError):
    """The operator of the engine must act. `log_tail` holds the engine's own last lines (untrusted text)."""

    exit_code = 3

    def __init__(self, message: str, *, remedy: str = "", log_tail: str = "", log_path: str = "") -> None:
        self.remedy = remedy
        self.log_tail = log_tail
        self.log_path = log_path
        super().__init__(message)


class BlockedEngineError(EngineError):
    """Something must be done by hand before any engine is started again: no further boot is tried."""


class RecordError(SpecdynoError):
    """The files must be looked at: foreign, locked, full disk, newer schema, another plan."""

    exit_code = 4
