"""Agent sessions, open loops, a ladder and a search on a real llama.cpp: from a plan to the report.

What is claimed holds of any correct measurement, however fast the machine is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine.live import why_not

from specdyno.demo import checkpoints
from specdyno.load.search import next_rate
from specdyno.plan.schema import Plan
from specdyno.records.queueing import Saturation, queueing
from specdyno.records.schema import ArrivalKind, BootStatus, FindingCode, StudyRecords, WindowKind, WindowRecord
from specdyno.records.service import rate_carried
from specdyno.records.store import Store
from specdyno.records.timings import Timings

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

ARMS = ("baseline", "ngram-k3")
IN_FLIGHT = 2  # also the slots of the engine
PAUSE_S = 0.05
PLAN = """
study: live-loads
target: {model: "@target@"}
engine: {kind: llamacpp, args: {ctx-size: 4096, parallel: 2, threads: 1}}
candidates:
  - {method: ngram, draft_tokens: [3], options: {spec-ngram-simple-size-n: 3}}
workload:
  sampling: {temperature: 0.0}
  classes:
    - {name: short, prompts: short.jsonl, share: 1, max_tokens: 6}
    - {name: agent, sessions: agents.jsonl, share: 1, max_tokens: 8}
loads:
  - {name: pool, ladder: [1, 2], window: 2s, requests: 3}
  - {name: agents, sessions: 2, window: 5s, requests: 3}
  - {name: within, rate: 1.5, burstiness: 0.5, window: 2s, requests: 4}
  - {name: beyond, rate: 60, window: 1s, requests: 24}
  - {name: most, rates: [0.25, 64], steps: 3, window: 1s, requests: 5}
objectives:
  - {name: interactive, load: "pool@1", measure: time_per_job}
  - {name: background, load: agents, measure: sessions_per_h}
  - {name: good, load: within, measure: goodput, service_level: {ttft: 30s, e2el: 60s}}
  - {name: over, load: beyond, measure: goodput, service_level: {ttft: 1ms}}
  - {name: shared, load: most, measure: largest_rate, service_level: {e2el: 4s}}
experiment: {looks: [2]}
"""
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]


def _asked(number: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"Count on from {7 * number}."}]}


def _session(number: int) -> dict[str, Any]:
    """Three turns; the first one's recorded call is answered in the second."""
    call = {"id": "r0", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    return {
        "id": f"s{number}",
        "system": f"You repair program number {number}. Read a file before you change it, and keep changes small. " * 3,
        "tools": TOOLS,
        "turns": [
            {
                "phase": "planning",
                "messages": [{"role": "user", "content": f"Find the fault in part {number}."}],
                "recorded": {"role": "assistant", "content": None, "tool_calls": [call]},
            },
            {
                "phase": "reading",
                "messages": [{"role": "tool", "tool_call_id": "r0", "content": f"line {number}: x = y + {number}"}],
                "pause_s": PAUSE_S,
                "recorded": {"role": "assistant", "content": "It is in line one."},
            },
            {"phase": "closing", "messages": [{"role": "user", "content": "Thank you."}], "pause_s": PAUSE_S},
        ],
    }


@dataclass(frozen=True)
class Study:
    folder: Path
    records: StudyRecords

    def windows(self, load: str, kind: WindowKind | None = None) -> list[tuple[str, int, WindowRecord, np.ndarray]]:
        """(arm, block, window, its rows) of the windows of a load, scored ones unless `kind` says which."""
        boots = {boot.id: boot for boot in self.records.boots}
        found = []
        for window in self.records.windows:
            if window.load == load and (window.kind is kind if kind else window.kind is not WindowKind.WARM_UP):
                boot = boots[window.boot_id]
                rows = np.flatnonzero(self.records.requests.window_id == window.id)
                found.append((boot.arm, boot.block, window, rows))
        assert found
        return found

    def timings(self, rows: np.ndarray) -> Timings:
        return Timings.of_columns(self.records.requests, rows)

    def read(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def levels(self, load: str) -> dict[tuple[str, str], dict[int, float]]:
        """Measures of a load's whole traffic by (arm, measure) and block, as the report has them."""
        found = self.read("report.json")["analysis"]["levels"]
        mine = [one for one in found if one["load"] == load and one["class_name"] is None]
        return {(one["arm"], one["measure"]): dict(one["by_block"]) for one in mine}

    def objective(self, name: str) -> dict[str, Any]:
        return next(one for one in self.read("verdict.json")["objectives"] if one["objective"] == name)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    if reason := why_not("llamacpp"):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("loads")
    plan = folder / "plan.yaml"
    plan.write_text(PLAN.replace("@target@", str(checkpoints.target_gguf())), encoding="utf-8")
    (folder / "short.jsonl").write_text("".join(json.dumps(_asked(n)) + "\n" for n in range(100)), encoding="utf-8")
    (folder / "agents.jsonl").write_text("".join(json.dumps(_session(n)) + "\n" for n in range(8)), encoding="utf-8")
    command = [sys.executable, "-m", "specdyno", "run", str(plan), "--out", str(folder / "study")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (10, 20), done.stdout + done.stderr  # two blocks never promote
    with Store.open(folder / "study" / "study.sqlite", write=False) as store:
        return Study(folder / "study", store.read_study())


def _most_at_once(starts: np.ndarray, ends: np.ndarray) -> int:
    moments = sorted([(int(at), 1) for at in starts] + [(int(at), -1) for at in ends])
    held = np.cumsum([step for _, step in moments])  # at the same stamp an end goes first
    return int(held.max())


# ---- the study -------------------------------------------------------------------------------------------------------


def test_every_boot_is_complete_and_every_request_answered(study: Study):
    assert [boot.status for boot in study.records.boots] == [BootStatus.COMPLETE] * 4
    assert Timings.of_columns(study.records.requests, np.arange(len(study.records.requests))).done.all()
    assert np.isfinite(study.records.requests.tokens).all()
    assert FindingCode.REQUESTS_FAILED not in {finding["code"] for finding in study.read("verdict.json")["findings"]}


def test_each_objective_is_judged_on_its_own_and_the_page_is_written(study: Study):
    verdicts = study.read("verdict.json")["objectives"]
    assert [one["objective"] for one in verdicts] == ["interactive", "background", "good", "over", "shared"]
    for one in verdicts:
        (part,) = one["candidates"]
        assert part["decision"] in ("hold", "reject")
    page = (study.folder / "report.html").read_text(encoding="utf-8")
    for word in ("Agent sessions by phase", "Agent sessions by turn", "Where speculation stops paying"):
        assert word in page


def test_nothing_is_sent_twice_within_a_boot_and_all_arms_are_asked_alike(study: Study):
    requests = study.records.requests
    boot_of = {window.id: window.boot_id for window in study.records.windows}
    codes = requests.prompt_code
    assert codes is not None
    owners = np.array([boot_of[window] for window in requests.window_id.tolist()])
    for boot in study.records.boots:
        mine = codes[owners == boot.id].tolist()
        assert len(set(mine)) == len(mine)
    for load in ("pool@1", "pool@2", "within", "beyond"):
        asked: dict[int, set[tuple[int, ...]]] = {}
        for _, block, _, rows in study.windows(load):
            asked.setdefault(block, set()).add(tuple(codes[rows].tolist()))
        assert {block: len(lists) for block, lists in asked.items()} == {0: 1, 1: 1}
        assert len(set.union(*asked.values())) == 2


# ---- sessions --------------------------------------------------------------------------------------------------------


def test_sessions_go_turn_by_turn_with_their_pauses_and_so_many_in_flight(study: Study):
    requests = study.records.requests
    assert requests.session_code is not None
    assert requests.turn is not None
    for _, _, window, rows in study.windows("agents"):
        assert window.arrival is not None
        assert (window.arrival.kind, window.concurrency, window.planned) == (ArrivalKind.SESSIONS, IN_FLIGHT, 9)
        mine = requests.session_code[rows]
        starts, ends = [], []
        for code in np.unique(mine):
            turns = rows[mine == code]
            turns = turns[np.argsort(requests.sent_ns[turns])]
            assert requests.turn[turns].tolist() == [0, 1, 2]
            waits = requests.sent_ns[turns][1:] - requests.ended_ns[turns][:-1]
            assert (waits >= PAUSE_S * 1e9).all()
            starts.append(requests.sent_ns[turns[0]])
            ends.append(requests.ended_ns[turns[-1]])
        assert _most_at_once(np.array(starts), np.array(ends)) == IN_FLIGHT


def test_a_later_turn_holds_the_talk_so_far_and_finds_it_in_the_prefix_cache(study: Study):
    requests = study.records.requests
    assert requests.turn is not None
    by_turn = np.zeros((3, 2))
    for _, _, _, rows in study.windows("agents"):
        asked, cached, turn = requests.prompt_tokens[rows], requests.cached_tokens[rows], requests.turn[rows]
        assert np.isfinite(cached).all()
        assert ((cached >= 0) & (cached <= asked)).all()
        for place in range(3):
            by_turn[place] += cached[turn == place].sum(), asked[turn == place].sum()
    assert (np.diff(by_turn[:, 1]) > 0).all()
    shares = by_turn[:, 0] / by_turn[:, 1]
    assert shares[1:].min() > shares[0]
    shown = [one for one in study.read("report.json")["analysis"]["phases"] if one["turn"] is not None]
    assert {one["turn"] for one in shown} == {0, 1, 2}
    for turn, share in enumerate(shares):
        mine = {one["arm"]: one["cached_share"] for one in shown if one["turn"] == turn}
        assert set(mine) == set(ARMS)
        assert min(mine.values()) <= share <= max(mine.values())


def test_a_call_that_the_model_did_not_make_is_taken_from_the_script_and_said(study: Study):
    requests = study.records.requests
    assert requests.supplied is not None
    assert requests.turn is not None
    for _, _, _, rows in study.windows("agents"):
        assert (requests.supplied[rows][requests.turn[rows] == 0] == -1).all()
        assert (requests.supplied[rows][requests.turn[rows] == 1] == 1).all()  # its template shows no tools
    found = study.read("verdict.json")["findings"]
    assert any(one["code"] == FindingCode.HISTORY_SUPPLIED and one["severity"] == "note" for one in found)


def test_sessions_per_hour_are_as_many_as_are_in_flight_over_how_long_one_takes(study: Study):
    requests = study.records.requests
    assert requests.session_code is not None
    shown = study.levels("agents")
    for arm, block, _, rows in study.windows("agents"):
        mine = requests.session_code[rows]
        sessions = [rows[mine == code] for code in np.unique(mine)]
        hours = [(requests.ended_ns[one].max() - requests.sent_ns[one].min()) / 3.6e12 for one in sessions]
        # Between the end of one and the start of the next a moment passes.
        assert 0.9 * IN_FLIGHT / max(hours) <= shown[arm, "sessions_per_h"][block] <= IN_FLIGHT / min(hours)


# ---- open loops ------------------------------------------------------------------------------------------------------


def test_open_loads_arrive_alike_in_every_arm_and_never_early(study: Study):
    requests = study.records.requests
    for load, rate, burstiness, count in (("within", 1.5, 0.5, 4), ("beyond", 60.0, 1.0, 24)):
        offsets: dict[int, set[tuple[int, ...]]] = {}
        for _, block, window, rows in study.windows(load):
            assert window.arrival is not None
            meant = (window.arrival.kind, window.arrival.rate, window.arrival.burstiness, window.concurrency)
            assert meant == (ArrivalKind.OPEN, rate, burstiness, None)
            assert len(rows) == window.planned == count
            intended = requests.intended_ns[rows]
            assert (requests.sent_ns[rows] >= intended).all()
            offsets.setdefault(block, set()).add(tuple((intended - intended.min()).tolist()))
        assert {block: len(times) for block, times in offsets.items()} == {0: 1, 1: 1}


def test_a_rate_that_no_engine_with_two_slots_carries_is_found_by_its_queue(study: Study):
    for _, _, window, rows in study.windows("beyond"):
        timings = study.timings(rows)
        seen = queueing(timings, window.arrival)
        assert seen.saturated is Saturation.YES or seen.client_too_slow
        assert seen.achieved_per_s is not None
        assert seen.offered_per_s is not None
        assert seen.achieved_per_s < seen.offered_per_s
        assert _most_at_once(timings.sent_ns, timings.ended_ns) > IN_FLIGHT  # nobody waited for an answer
        waits = timings.first_text_ns - timings.intended_ns  # the engine's queue is in it
        assert waits.max() > np.median(timings.last_text_ns - timings.first_text_ns)
    found = study.read("verdict.json")["findings"]
    codes = (FindingCode.SATURATED, FindingCode.CLIENT_AT_CEILING)
    assert {one["arm"] for one in found if one["code"] in codes and one["load"] == "beyond"} == set(ARMS)
    assert study.objective("over")["candidates"][0]["decision"] == "hold"


def test_goodput_is_the_rate_done_where_all_requests_meet_the_level(study: Study):
    within, beyond = study.levels("within"), study.levels("beyond")
    for arm in ARMS:
        assert within[arm, "goodput"] == within[arm, "jobs_per_s"]
        assert set(beyond[arm, "goodput"].values()) == {0.0}  # no first token within a millisecond


# ---- ladder and search -----------------------------------------------------------------------------------------------


def test_a_rung_keeps_as_many_in_flight_as_it_says(study: Study):
    for rung in (1, 2):
        for _, _, window, rows in study.windows(f"pool@{rung}"):
            timings = study.timings(rows)
            assert (window.concurrency, window.arrival, len(rows)) == (rung, None, 3)
            assert _most_at_once(timings.sent_ns, timings.ended_ns) == rung
            assert (timings.intended_ns == timings.sent_ns).all()
    (ladder,) = [one for one in study.read("report.json")["analysis"]["ladders"] if one["class_name"] is None]
    assert [rung["concurrency"] for rung in ladder["rungs"]] == [1, 2]
    assert ladder["trend"] != "undecided"  # two blocks are enough to say something


def test_each_step_of_a_search_follows_from_what_the_steps_before_it_carried(study: Study):
    plan = Plan.model_validate(study.records.header.plan)
    load, level = plan.load("most"), plan.service_level("most")
    assert load.rates is not None
    probes: dict[tuple[str, int], list[tuple[float, bool]]] = {}
    for arm, block, window, rows in study.windows("most"):
        assert window.kind is WindowKind.PROBE
        assert window.arrival is not None
        tried = probes.setdefault((arm, block), [])
        expected = next_rate((load.rates[0], load.rates[1]), tried, left=load.steps - len(tried))
        assert window.arrival.rate == pytest.approx(expected)
        tried.append((expected, bool(rate_carried(study.timings(rows), level, load.attainment))))
    assert len(probes) == 4
    assert {len(tried) for tried in probes.values()} == {3}
