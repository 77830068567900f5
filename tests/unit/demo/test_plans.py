"""The demo's plans: complete, true to this machine, and accepted by everything that reads a plan before a boot."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdyno.demo import checkpoints, plans
from specdyno.engine import server
from specdyno.plan import parse
from specdyno.plan.schema import EngineKind
from specdyno.workload import draw
from specdyno.workload.sources import load_pools

# Long, spaced, quoted and foreign: whatever a home folder may be called.
AWKWARD = "/home/" + "a rather long name, " * 6 + "'it\\'s \"Ünder\" #1: [x]'"
KINDS = [EngineKind.VLLM, EngineKind.LLAMACPP]


@pytest.fixture(params=["/models", AWKWARD], ids=["plain", "awkward"])
def folder(request, monkeypatch):
    place = Path(request.param)
    monkeypatch.setattr(checkpoints, "target_gguf", lambda: place / "model.gguf")
    monkeypatch.setattr(checkpoints, "target_folder", lambda: place / "target")
    monkeypatch.setattr(checkpoints, "draft_folder", lambda: place / "draft")
    monkeypatch.setattr(plans, "openmp_library", lambda: place / "libiomp5.so")
    return place


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_demos_plans_parse_with_the_paths_of_this_machine(folder, kind, quick):
    text = plans.render(kind, quick=quick)
    assert "@" not in text
    plan = parse.parse(text)
    assert plan.engine.kind is kind
    assert plan.experiment.looks == ((1,) if quick else (4,))
    if kind is EngineKind.VLLM:
        assert plan.target.model == str(folder / "target")
        assert plan.candidates[0].draft == str(folder / "draft")
        assert plan.engine.env["LD_PRELOAD"] == str(folder / "libiomp5.so")
    else:
        assert plan.target.model == str(folder / "model.gguf")


@pytest.mark.parametrize("kind", KINDS)
def test_every_arm_of_the_demo_can_be_started_and_asked(folder, kind, tmp_path):
    plan = parse.parse(plans.render(kind, quick=False))
    adapter = server.adapter(plan.engine, plan.target)
    lines = [tuple(adapter.flags(arm, 8000, boot_seed=0)) for arm in plan.arms()]
    assert len(set(lines)) == len(lines)
    pools = load_pools(plan, tmp_path)
    wanted = {load.name: 3 * load.concurrency for load in plan.loads}
    assert draw.largest_sizing(plan, pools, wanted).requests == wanted


def test_without_intels_library_nothing_is_preloaded(folder, monkeypatch):
    monkeypatch.setattr(plans, "openmp_library", lambda: None)
    assert "LD_PRELOAD" not in parse.parse(plans.render(EngineKind.VLLM, quick=True)).engine.env


def test_the_library_is_looked_for_beside_this_interpreter(tmp_path, monkeypatch):
    monkeypatch.setattr(plans.sys, "prefix", str(tmp_path))
    assert plans.openmp_library() is None
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    assert plans.openmp_library() == tmp_path / "lib" / "libiomp5.so"
