"""Ladders of concurrencies and searches for the largest rate, through the command line."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flow.arriving import measured, objective, study, windows
from tests.flow.command_line import engine, specdyno, verdict

from specdyno.records.schema import FindingCode, StudyRecords, WindowKind

pytestmark = pytest.mark.timeout(600)  # whole studies on a slow, busy machine

LEVEL = {"ttft": "5s", "e2el": "20s"}


def test_a_ladder_measures_each_rung_with_its_own_prompts(tmp_path: Path) -> None:
    path = study(
        tmp_path,
        [{"name": "pool", "ladder": [1, 2, 4], "window": "1s", "requests": 8}],
        objectives=[objective("pool@4", "jobs_per_s")],
    )
    found = measured(path, tmp_path)
    asked: dict[str, list[int]] = defaultdict(list)
    assert found.requests.prompt_code is not None
    for rung in (1, 2, 4):
        for arm, window, at in windows(found, f"pool@{rung}"):
            assert (window.concurrency, window.arrival, len(at)) == (rung, None, 8)
            asked[arm] += found.requests.prompt_code[at].tolist()
    assert all(len(set(codes)) == 24 for codes in asked.values())


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> StudyRecords:
    """A server that carries about 20 requests per second without speculation."""
    folder = tmp_path_factory.mktemp("searched")
    path = study(
        folder,
        [{"name": "most", "rates": [5, 80], "steps": 4, "window": "1500ms"}],
        objectives=[objective("most", "largest_rate", service_level={"e2el": "400ms"})],
        engine=engine(scale=1.0, truth={"step_ms": 4.0, "batch_cost": 0.0}, args={"max-num-seqs": 2}),
    )
    return measured(path, folder)


def test_a_search_halves_the_range_of_rates_within_each_boot(searched: StudyRecords) -> None:
    by_arm: dict[str, list[float]] = defaultdict(list)
    for arm, window, at in windows(searched, "most"):
        assert window.kind is WindowKind.PROBE
        assert window.arrival is not None
        assert window.arrival.rate is not None
        assert len(at) == window.planned == round(window.arrival.rate * 1.5)
        by_arm[arm].append(window.arrival.rate)
    assert set(by_arm) == {"baseline", "eagle3-k3"}
    for rates in by_arm.values():
        assert len(rates) == 4
        assert rates[0] == pytest.approx(20.0)
        steps = [abs(np.log(later / earlier)) for earlier, later in pairwise(rates)]
        assert steps[:2] == pytest.approx([np.log(16) / 4, np.log(16) / 8])
    assert max(by_arm["baseline"]) < 80


def test_the_steps_of_a_search_ask_their_own_prompts_alike_in_every_arm(searched: StudyRecords) -> None:
    assert searched.requests.prompt_code is not None
    firsts = {}
    for arm, window, at in windows(searched, "most"):
        codes = searched.requests.prompt_code[at].tolist()
        firsts.setdefault((arm), []).append(codes)
        assert window.class_name is None
    for codes in firsts.values():
        flat = [code for step in codes for code in step]
        assert len(set(flat)) == len(flat)
    for mine, theirs in zip(*firsts.values(), strict=True):
        shared = min(len(mine), len(theirs))
        assert mine[:shared] == theirs[:shared]


@pytest.mark.parametrize(
    ("load", "objectives"),
    [
        ({"rate": 100, "window": "60s"}, [objective("big")]),
        ({"rates": [1, 100], "steps": 3, "window": "60s"}, [objective("big", "largest_rate", service_level=LEVEL)]),
    ],
)
def test_too_few_prompts_for_a_rate_or_a_search_are_refused_with_the_number_needed(
    tmp_path: Path, load: dict[str, Any], objectives: list[dict]
) -> None:
    ended = specdyno("check", study(tmp_path, [{"name": "big", **load}], objectives=objectives))
    assert ended.code == 2
    assert "prompts of its own and one boot needs" in ended.text


def test_a_search_without_an_edge_is_told_with_wider_rates_and_holds(tmp_path: Path) -> None:
    path = study(
        tmp_path,
        [{"name": "most", "rates": [20, 60], "steps": 2, "window": "2s"}],
        objectives=[objective("most", "largest_rate", service_level={"e2el": "20s"})],
    )
    ended = specdyno("run", path, "--out", tmp_path / "study")
    assert ended.code == 20, ended
    found = [one for one in verdict(tmp_path / "study")["findings"] if one["code"] == FindingCode.EDGE_NOT_FOUND]
    assert {one["arm"] for one in found} == {"baseline", "eagle3-k3"}
    assert all("every rate up to 60/s" in one["detail"] for one in found), found
    assert "search `rates: [20, 120]`" in ended.text
    levels = json.loads((tmp_path / "study" / "report.json").read_bytes())["analysis"]["levels"]
    (value, *_) = [one["value"] for one in levels if one["measure"] == "largest_rate"]
    assert "no edge among the rates searched" in value["undefined"]
