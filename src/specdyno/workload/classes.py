"""The traffic that specdyno brings along, so that a plan runs without any file: classes of prompts, agent sessions.

Owns their names. They lie as JSON lines in `workload/builtin`; their licence stands beside them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import resources

from specdyno.errors import PlanError, Problem

PREFIX = "builtin:"
BUILTIN: Mapping[str, str] = {
    "code": "writing, changing and explaining code",
    "chat": "questions and talk, without tools, in several languages",
    "tools": "requests that call functions",
    "structured": "answers that must meet a JSON schema",
    "planning": "breaking work down: plans, roadmaps, itineraries, experiments",
    "summary": "long input, a short or middling account of it",
    "acknowledgement": "very short answers: confirmations, yes or no, one label",
    "reasoning": "mathematics and logic, step by step",
}
SESSIONS: Mapping[str, str] = {"agent": "agents at work with tools, turn by turn"}
PHASES: Mapping[str, str] = {
    "planning": "says what it is going to do",
    "tool_call": "calls tools with short arguments",
    "structured": "writes long or nested arguments, or JSON",
    "tool_result_reading": "says what the results of tools mean, or goes on from them",
    "code": "writes or changes code, as text or as an argument",
    "summary": "gives a long account of what was done or found",
    "acknowledgement": "confirms in a few words",
}  # what an agent does in a turn of the built-in sessions; other files may use words of their own


def read(name: str) -> bytes:
    """The JSON lines of a built-in class of prompts.

    Raises:
        PlanError: there is no such class.
    """
    return _read(name, BUILTIN, "class")


def read_sessions(name: str) -> bytes:
    """The JSON lines of a built-in collection of sessions.

    Raises:
        PlanError: there is no such collection.
    """
    return _read(name, SESSIONS, "collection of sessions")


def _read(name: str, known: Mapping[str, str], kind: str) -> bytes:
    if name not in known:
        near = difflib.get_close_matches(name.lower(), known, n=1)
        meant = f"Did you mean {PREFIX}{near[0]}? " if near else ""
        remedy = f"{meant}There are: {', '.join(PREFIX + one for one in known)}"
        if name in SESSIONS or name in BUILTIN:
            remedy += f". {PREFIX}{name} goes under `{'sessions' if name in SESSIONS else 'prompts'}`"
        raise PlanError([Problem("workload.classes", f'there is no built-in {kind} "{PREFIX}{name}"', remedy)])
    return (resources.files("specdyno.workload.builtin") / f"{name}.jsonl").read_bytes()
