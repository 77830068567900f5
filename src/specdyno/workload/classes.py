"""The classes of traffic that specdyno brings along, so that a plan runs without any prompt file.

Owns their names. The prompts lie as JSON lines in `workload/builtin`; their licence stands beside them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import resources

from specdyno.errors import PlanError, Problem

PREFIX = "builtin:"
BUILTIN: Mapping[str, str] = {
    "code": "writing, changing and explaining code",
    "chat": "questions and talk, without tools",
    "tools": "requests that call functions",
    "structured": "answers that must meet a JSON schema",
}


def read(name: str) -> bytes:
    """The JSON lines of a built-in class.

    Raises:
        PlanError: there is no such class.
    """
    if name not in BUILTIN:
        near = difflib.get_close_matches(name.lower(), BUILTIN, n=1)
        meant = f"Did you mean {PREFIX}{near[0]}? " if near else ""
        remedy = f"{meant}There are: {', '.join(PREFIX + known for known in BUILTIN)}"
        raise PlanError([Problem("workload.classes", f'there is no built-in class "{PREFIX}{name}"', remedy)])
    return (resources.files("specdyno.workload.builtin") / f"{name}.jsonl").read_bytes()
