"""Where a study comes from: its host, its engines as they report themselves, its boots, its plan, its command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import yaml

from specdyno.records.schema import BootRecord, StudyHeader, StudyRecords
from specdyno.report import spelling
from specdyno.report.tables import Table, table
from specdyno.report.untrusted import sanitise


def boots(records: StudyRecords) -> Table:
    """Every boot, scored or not, in the order of its start."""
    rows: list[tuple[object, ...]] = []
    for boot in sorted(records.boots, key=lambda one: one.id):
        ready = None if boot.ready_ns is None else (boot.ready_ns - boot.started_ns) / 1e9
        wait = spelling.seconds(ready)
        row = (boot.block + 1, boot.position + 1, boot.arm, boot.attempt + 1, boot.status.value, wait)
        rows.append((*row, spelling.size(boot.memory_bytes), boot.log_path, boot.failure))
    columns = ("block", "place", "arm", "attempt", "status", "ready after", "memory", "log", "failure")
    return table("Boots", columns, rows)


def origins(records: StudyRecords, fingerprint: dict[str, Any]) -> tuple[Table, ...]:
    """Where and with what it was measured: the study, the host, each arm as its engine reports it."""
    header = records.header
    rows: list[tuple[object, ...]] = [
        ("measured", spelling.moment(header.created_unix_ns)),
        ("plan, SHA-256", header.plan_sha256),
        *((f"scored requests per window, {load}", number) for load, number in sorted(header.sizing.items())),
        *flatten(header.provenance),
    ]
    first_boots: dict[str, BootRecord] = {}
    for boot in records.boots:
        if boot.identity is not None:
            first_boots.setdefault(boot.arm, boot)
    return (
        table("Study and host", ("what", "value"), rows),
        _engines(first_boots),
        _commands(first_boots),
        _resolved(first_boots),
        table(
            "Fingerprint: the verdict holds where all of this is equal", ("what", "value"), list(flatten(fingerprint))
        ),
    )


def context(records: StudyRecords) -> tuple[str, ...]:
    """The facts that belong beside the title: target, engine with its version, when."""
    identity = next((boot.identity for boot in records.boots if boot.identity is not None), None)
    facts = []
    if identity is not None:
        facts += [identity.model or "", f"{identity.engine} {identity.version or ''}"]
    facts.append(spelling.moment(records.header.created_unix_ns))
    return tuple(sanitise(fact) for fact in facts if fact)


def _engines(first_boots: dict[str, BootRecord]) -> Table:
    rows: list[tuple[object, ...]] = []
    for arm, boot in first_boots.items():
        if (one := boot.identity) is not None:
            rows.append((arm, one.engine, one.version, one.model, one.method, one.draft_tokens, one.draft, one.source))
    columns = ("arm", "engine", "version", "model", "method in force", "K in force", "draft", "read from")
    return table("Engines as they report themselves", columns, rows)


def _commands(first_boots: dict[str, BootRecord]) -> Table:
    rows: list[tuple[object, ...]] = [
        (arm, shlex.join(boot.command)) for arm, boot in first_boots.items() if boot.command
    ]
    return table("Commands that started the engines", ("arm", "command"), rows)


def _resolved(first_boots: dict[str, BootRecord]) -> Table:
    """Settings over all arms, one column each."""
    arms = tuple(first_boots)
    settings_of = {arm: boot.identity.settings for arm, boot in first_boots.items() if boot.identity is not None}
    names = sorted({name for values in settings_of.values() for name in values})
    rows: list[tuple[object, ...]] = [
        (name, *(settings_of[arm].get(name, "not reported") for arm in arms)) for name in names
    ]
    return table("Resolved settings", ("setting", *arms), rows)


def plan(header: StudyHeader) -> Table:
    """Every value in force, and whether the plan's author wrote it or it is the default."""
    try:
        written = yaml.safe_load(header.plan_yaml) if header.plan_yaml else None
    except yaml.YAMLError:
        written = None
    known = {place for place, _ in flatten(written)} if isinstance(written, dict) else None
    rows: list[tuple[object, ...]] = [
        (place, value, "" if known is None else "plan" if _is_written(place, known) else "default")
        for place, value in flatten(header.plan)
    ]
    return table("The plan in force", ("key", "value", "from"), rows)


def _is_written(place: str, known: set[str]) -> bool:
    return any(
        place == one or one.startswith((f"{place}.", f"{place}[")) or place.startswith(f"{one}[") for one in known
    )


def flatten(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Key paths and their values, as a plan names its places: `candidates[1].draft_tokens`."""
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from flatten(part, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(part, dict | list | tuple) for part in value):
        for index, part in enumerate(value):
            yield from flatten(part, f"{place}[{index}]")
    else:
        yield sanitise(place), "none" if value in ({}, [], ()) else value


def command(header: StudyHeader) -> str:
    """What measures the same again, on the same host, from the study's own plan."""
    study = sanitise(str(header.plan.get("study", "study"))).replace(" ", "-")
    return f"specdyno run plan.yaml --out {shlex.quote(study)}"
