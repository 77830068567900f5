"""What a run spends further blocks on: boots that are played, decisions that are told."""

import asyncio
import dataclasses

import pytest
from tests.simulation.generator import DEFAULT_PLAN, make_study

from specdyno.engine import server
from specdyno.load import runner
from specdyno.load.boot import Rig
from specdyno.load.runner import Campaign, walk
from specdyno.load.watch import Silent
from specdyno.plan.schema import Plan
from specdyno.records.schema import BootStatus, StudyHeader
from specdyno.records.store import Store
from specdyno.statistics.analyse import plan_of
from specdyno.statistics.blocks import sort_blocks
from specdyno.verdict.decide import judge, pursued
from specdyno.verdict.schema import Decision
from specdyno.workload.sources import load_pools

PLAN = Plan.model_validate({**DEFAULT_PLAN, "experiment": {"looks": [2, 4, 6], "a_a": True}})
ARMS = {arm.name for arm in PLAN.arms()}


class Notes(Silent):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Walks with the pursued candidates told by block; returns block -> arms booted, and the notes."""

    def walked(told, boots=()):
        header = StudyHeader(plan={}, plan_yaml="", plan_sha256="", created_unix_ns=0, provenance={})
        booted = {}
        with Store.create(tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite", header) as store:
            for block, arm in boots:
                _add(store, block, arm)
            watcher = Notes()

            async def measure(rig, task, **_):
                booted.setdefault(task.block, []).append(task.arm.name)
                _add(store, task.block, task.arm.name)

            monkeypatch.setattr(runner, "measure", measure)
            rig = Rig(PLAN, server.adapter(PLAN.engine, PLAN.target), store, watcher)
            asked = iter(told)
            state = Campaign(rig, tmp_path, load_pools(PLAN, tmp_path), lambda: False, pursued=lambda: next(asked))
            asyncio.run(walk(state))
        return booted, watcher.notes

    return walked


def _add(store, block, arm):
    boot = store.begin_boot(block=block, arm=arm, attempt=0, position=0, started_ns=1, started_unix_ns=2**62)
    store.update_boot(boot, status=BootStatus.COMPLETE, ended_ns=2)


ALL = frozenset(ARMS - {"baseline", "baseline-again"})
ONE = frozenset({"ngram-k3"})


def test_who_is_settled_at_a_look_is_booted_no_more_and_the_baselines_are(run):
    booted, notes = run([ALL, ALL, ONE, ONE, ONE, ONE])
    assert [set(booted[block]) for block in range(6)] == [ARMS] * 2 + [{"baseline", "baseline-again", "ngram-k3"}] * 4
    assert notes == ["settled at this look, not booted again: eagle3-k1, eagle3-k3"]


def test_with_no_open_decision_the_walk_ends(run):
    assert sorted(run([ALL, ALL, frozenset()])[0]) == [0, 1]


def test_who_was_left_out_stays_out_whatever_is_told_later(run):
    booted, _ = run([ALL, ALL, ONE, ALL, ALL, ALL])
    assert "eagle3-k1" not in booted[3]


# --- the same from the records alone ----------------------------------------------------------------------------------


def without(records, arm, *, from_block):
    gone = {boot.id for boot in records.boots if boot.arm == arm and boot.block >= from_block}
    kept = tuple(boot for boot in records.boots if boot.id not in gone)
    return type(records)(
        records.header, kept, tuple(w for w in records.windows if w.boot_id not in gone), records.requests,
        border_chunks=records.border_chunks,
    )  # fmt: skip


STUDY = {**DEFAULT_PLAN, "experiment": {"looks": [4, 6]}}


def test_an_arm_that_left_at_a_look_takes_no_block_down_and_keeps_its_decision():
    records = make_study(STUDY, blocks=6)
    short = without(records, "ngram-k3", from_block=4)
    blocks = sort_blocks(short, plan_of(short))
    assert (len(blocks.scored), blocks.incomplete, blocks.retired) == (6, 0, {"ngram-k3": 4})
    before, after = judge(records)[1], judge(short)[1]
    for full, cut in zip(before.objectives, after.objectives, strict=True):
        for one, other in zip(full.candidates, cut.candidates, strict=True):
            assert (one.candidate, one.decision, one.look) == (other.candidate, other.decision, other.look)


def test_an_arm_that_is_missing_between_looks_makes_its_blocks_incomplete():
    short = without(make_study(STUDY, blocks=6), "ngram-k3", from_block=5)
    blocks = sort_blocks(short, plan_of(short))
    assert (len(blocks.scored), blocks.retired) == (5, {})


def test_a_block_that_was_cut_off_after_its_baseline_is_incomplete():
    records = make_study({**STUDY, "candidates": STUDY["candidates"][1:]}, blocks=5)
    short = without(records, "ngram-k3", from_block=4)
    blocks = sort_blocks(short, plan_of(short))
    assert (len(blocks.scored), blocks.incomplete, blocks.retired) == (4, 1, {})


def test_the_baseline_is_never_left_out():
    short = without(make_study(STUDY, blocks=6), "baseline", from_block=4)
    blocks = sort_blocks(short, plan_of(short))
    assert (len(blocks.scored), blocks.retired) == (4, {})


def test_clear_losers_and_winners_are_pursued_no_more():
    records = make_study(STUDY, blocks=4)
    verdict = judge(records)[1]
    decided = {c.candidate for o in verdict.objectives for c in o.candidates if c.decision is not Decision.HOLD}
    assert "ngram-k3" not in pursued(records, verdict)
    assert {c.candidate for c in verdict.objectives[0].candidates} - pursued(records, verdict) <= decided


def test_who_missed_a_whole_block_stays_out_and_who_missed_the_newest_only_may_come_back():
    open_ = make_study(STUDY, blocks=6, speedups={"eagle3-k1": 1.05, "eagle3-k3": 1.05, "ngram-k3": 1.05})
    for blocks, still in ((5, True), (6, False)):
        short = without(open_, "ngram-k3", from_block=4)
        short = dataclasses.replace(short, boots=tuple(boot for boot in short.boots if boot.block < blocks))
        verdict = judge(short)[1]
        held = {c.candidate for o in verdict.objectives for c in o.candidates if c.pursued}
        assert "ngram-k3" in held
        assert ("ngram-k3" in pursued(short, verdict)) == still
