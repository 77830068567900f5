"""Checks before anything is booted: can this host run the plan at all?

Looks at files, variables and space; starts nothing. Pair and memory checks have their own modules.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import psutil

from specdyno.errors import EngineError, PlanError, Problem, RecordError
from specdyno.plan.schema import EngineKind, Plan

_NEEDED_BYTES = 200 * 1024 * 1024
_BUSY_SHARE = 0.5
# What these call a model need be no file of this host.
_PATHS_ELSEWHERE = (EngineKind.SIMULATED, EngineKind.EXTERNAL)
_SECRET_NAME = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE)


def check(plan: Plan, *, study: Path, argv0: str | None) -> list[str]:
    """Raise for what makes the plan impossible here; return what is merely worth knowing, one sentence each.

    `argv0` is the program that starts the engine; None where none of this host's does.
    """
    problems = [*_local_paths(plan), *_credentials(plan)]
    if problems:
        raise PlanError(problems)
    if argv0 is not None:
        _startable(argv0)
    _space(study)
    return _remarks()


def _local_paths(plan: Plan) -> list[Problem]:
    """A path that looks local and is not there. Hub ids (`org/name`) are left to the engine."""
    named = [("target.model", plan.target.model)]
    named += [(f"candidates[{index}].draft", part.draft) for index, part in enumerate(plan.candidates) if part.draft]
    problems = []
    for place, value in named:
        path = Path(value)
        if plan.engine.kind in _PATHS_ELSEWHERE:
            continue
        looks_local = path.is_absolute() or value.startswith((".", "~")) or value.endswith(".gguf")
        if looks_local and not path.expanduser().exists():
            problems.append(Problem(place, f'"{value}" does not exist', "Check the path (relative to the plan file)"))
    return problems


def _credentials(plan: Plan) -> list[Problem]:
    name = plan.engine.api_key_env
    problems = []
    if name and not os.environ.get(name, "").strip():
        problems.append(Problem("engine.api_key_env", f"the variable {name} is not set", f"Set it: export {name}=…"))
    for stated in plan.engine.env:
        if _SECRET_NAME.search(stated):
            seen = "a secret in a plan is copied into every study and report"
            remedy = f"Remove it and export {stated}: the engine inherits the environment"
            problems.append(Problem(f"engine.env.{stated}", seen, remedy))
    return problems


def _startable(argv0: str) -> None:
    if shutil.which(argv0) is None:
        raise EngineError(
            f'cannot start "{argv0}": no such program on PATH',
            remedy="Check engine.command in the plan, or install the engine",
        )


def _space(study: Path) -> None:
    existing = next(parent for parent in [study.absolute(), *study.absolute().parents] if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < _NEEDED_BYTES:
        raise RecordError(
            f"{existing}: {free / 1e6:.0f} MB free, a study needs about {_NEEDED_BYTES / 1e6:.0f} MB. "
            "Free some space or put the study elsewhere with --out."
        )


def _remarks() -> list[str]:
    share = psutil.cpu_percent(interval=0.3) / 100.0
    if share > _BUSY_SHARE:
        return [f"This host is already {share:.0%} busy; other work disturbs the measurement."]
    return []
