"""Studies that several tests look at: measured once, copied by whoever changes them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.flow.command_line import CANDIDATE, Ended, engine, plan, specdyno, write_plan

KEY = "sk-flow-4f9d2c71aa"
# The server asks for the key of the variable and writes it into its own log.
_GUARDED = ["sh", "-c", 'exec "$0" -m specdyno.engine.simulated --api-key "$FLOW_KEY" "$@"', "{python}"]


@dataclass(frozen=True)
class Study:
    plan: Path
    folder: Path
    ended: Ended

    def copied(self, to: Path) -> Path:
        return shutil.copytree(self.folder, to / "study")


@pytest.fixture(scope="session")
def promoted(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Two candidates that are both much faster, two loads, class windows, an API key."""
    folder = tmp_path_factory.mktemp("promoted")
    content = plan(
        engine=engine(command=_GUARDED, api_key_env="FLOW_KEY", fault="log_secrets"),
        candidates=[{**CANDIDATE, "draft_tokens": [1, 3]}],
        loads=[
            {"name": "interactive", "concurrency": 1, "window": "1s", "requests": 4},
            {"name": "pool", "concurrency": 2, "window": "200ms", "class_windows": True},
        ],
        objectives=[
            {"name": "interactive", "load": "interactive", "measure": "time_per_job"},
            {"name": "pool", "load": "pool", "measure": "jobs_per_s"},
        ],
    )
    path = write_plan(folder / "plan.yaml", content)
    ended = specdyno("run", path, "--out", folder / "study", env={"FLOW_KEY": KEY})
    return Study(path, folder / "study", ended)
