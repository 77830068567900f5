"""A whole study in which one candidate loses at the first look and the other stays open."""

from collections import Counter
from pathlib import Path

from tests.flow.command_line import engine, plan, records, specdyno, verdict, write_plan

from specdyno.statistics.analyse import plan_of
from specdyno.statistics.blocks import sort_blocks

LOSER = {"step_cost": [3.0], "boot_spread": 0.002}
OPEN = {"step_cost": [1.0], "boot_spread": 0.25}


def test_a_loser_is_booted_no_more_and_the_open_one_is_until_the_last_look(tmp_path: Path) -> None:
    content = plan(
        engine=engine(truth={"methods": {"ngram": LOSER, "eagle3": OPEN}}),
        candidates=[
            {"method": "eagle3", "draft": "sim/draft", "draft_tokens": [1]},
            {"method": "ngram", "draft_tokens": [1]},
        ],
        objectives=[{"name": "pool", "load": "pool", "measure": "jobs_per_s", "minimum_gain": 0.8}],
        guards={"tpot": None, "output_length": None},
        experiment={"looks": [4, 5]},
    )
    study = tmp_path / "study"
    ended = specdyno("run", write_plan(tmp_path / "plan.yaml", content), "--out", study)
    assert ended.code == 20, ended
    assert "settled at this look, not booted again: ngram-k1" in ended.text
    kept = records(study)
    assert Counter(boot.arm for boot in kept.boots) == {"baseline": 5, "eagle3-k1": 5, "ngram-k1": 4}
    blocks = sort_blocks(kept, plan_of(kept))
    assert (len(blocks.scored), blocks.incomplete, blocks.retired) == (5, 0, {"ngram-k1": 4})
    decided = {one["candidate"]: one for one in verdict(study)["objectives"][0]["candidates"]}
    assert (decided["ngram-k1"]["decision"], decided["ngram-k1"]["look"]) == ("reject", 4)
    assert decided["eagle3-k1"]["decision"] == "hold"
    judged = specdyno("judge", study)
    assert judged.code == 20
    assert {one["candidate"]: one for one in verdict(study)["objectives"][0]["candidates"]} == decided
