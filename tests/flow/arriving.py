"""Plans of every way to arrive, on the simulated engine, and what was kept of their windows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.flow.command_line import plan, records, specdyno, write_plan

from specdyno.records.schema import StudyRecords, WindowKind, WindowRecord

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:{40 + n * 0.1:09.6f}0,{100 + n},{20 + n}\n" for n in range(60)
)


def objective(load: str, measure: str = "time_per_job", **keys: Any) -> dict[str, Any]:
    return {"name": f"{measure} of {load}", "load": load, "measure": measure, **keys}


def study(folder: Path, loads: list[dict], *, name: str = "plan.yaml", blocks: int = 1, **changes: Any) -> Path:
    """A plan whose one class has 600 prompts."""
    asked = "".join(json.dumps({"prompt": f"write about subject number {n}"}) + "\n" for n in range(600))
    (folder / "prompts.jsonl").write_text(asked)
    content = plan(
        **{
            "loads": loads,
            "objectives": [objective(loads[0]["name"])],
            "experiment": {"looks": [blocks]},
            "workload": workload([{"name": "code", "prompts": "./prompts.jsonl", "share": 1, "max_tokens": 64}]),
            **changes,
        }
    )
    return write_plan(folder / name, content)


def workload(classes: list[dict]) -> dict[str, Any]:
    return {"sampling": {"temperature": 0.0}, "classes": classes}


def measured(path: Path, folder: Path) -> StudyRecords:
    ended = specdyno("run", path, "--out", folder / "study")
    assert ended.code in (0, 10, 20), ended
    return records(folder / "study")


def windows(found: StudyRecords, load: str) -> list[tuple[str, WindowRecord, np.ndarray]]:
    """(arm, window, rows of its requests) of the scored windows of a load."""
    arms = {boot.id: boot.arm for boot in found.boots}
    return [
        (arms[window.boot_id], window, np.flatnonzero(found.requests.window_id == window.id))
        for window in found.windows
        if window.load == load and window.kind is not WindowKind.WARM_UP
    ]


def intended_s(found: StudyRecords, at: np.ndarray) -> np.ndarray:
    times = np.sort(found.requests.intended_ns[at])
    return (times - times[0]) / 1e9
