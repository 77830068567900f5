"""Local paths of a plan made absolute: they are written relative to the plan's own folder."""

from __future__ import annotations

import os
from pathlib import Path

from specdyno.plan.schema import Engine, Plan


def with_absolute_paths(plan: Plan, base: Path) -> Plan:
    """The plan with every path that exists under `base` made absolute; hub ids and programs on PATH stay."""

    def absolute(value: str | None) -> str | None:
        path = base / Path(value).expanduser() if value else None
        # A link stays a link: engines read meaning into the words of a path.
        return os.path.abspath(path) if path is not None and path.exists() else value  # noqa: PTH100

    return plan.model_copy(
        update={
            "target": plan.target.model_copy(update={"model": absolute(plan.target.model)}),
            "engine": _engine(plan.engine, base),
            "loads": tuple(load.model_copy(update={"trace": absolute(load.trace)}) for load in plan.loads),
            "candidates": tuple(part.model_copy(update={"draft": absolute(part.draft)}) for part in plan.candidates),
        }
    )


def _engine(engine: Engine, base: Path) -> Engine:
    """The certificate file, and external programs that are named by a path such as `./start.sh`."""

    def absolute(command: tuple[str, ...]) -> tuple[str, ...]:
        program = base / command[0] if command and "/" in command[0] else None
        return (str(program.absolute()), *command[1:]) if program is not None and program.is_file() else command

    outside = engine.external
    commands = {name: absolute(getattr(outside, name)) for name in ("start", "stop", "ready")}
    ca_file = str((base / Path(engine.ca_file).expanduser()).absolute()) if engine.ca_file else None
    return engine.model_copy(update={"ca_file": ca_file, "external": outside.model_copy(update=commands)})
