"""The memory of each arm in the report: estimates labelled, a draft's cost beside them, unknown kept unknown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.unit.report import hand_made_study

from specdyno.records.memory import ArmMemory
from specdyno.report import export, html, markdown, memory, view
from specdyno.report.spelling import MINUS

GIB = 2**30
BASELINE = ArmMemory(
    arm="baseline", device="NVIDIA H100", weights_bytes=16 * GIB, draft_bytes=0, kv_bytes_per_token=131_072,
    state_bytes=0, budget_bytes=57 * GIB, kv_tokens=466_944, concurrency=57.0, max_model_len=8192,
    headroom_bytes=56 * GIB, fits=True, notes=("at most: activations are not known",),
)  # fmt: skip
DRAFTED = replace(
    BASELINE, arm="eagle3-k3", draft_bytes=GIB, kv_bytes_per_token=135_168, budget_bytes=56 * GIB, kv_tokens=444_800,
    concurrency=54.3, lookahead_tokens=3,
)  # fmt: skip
UNKNOWN = ArmMemory("ngram-k3", "not known", notes=("its <b>cache</b> is compressed layer by layer",))


@pytest.fixture(scope="module")
def study():
    records, analysis, verdict = hand_made_study.study()
    boots = tuple(
        replace(boot, identity=replace(boot.identity, kv_cache_tokens=400_000)) if boot.arm == "eagle3-k3" else boot
        for boot in records.boots
    )
    header = replace(records.header, memory=(BASELINE, DRAFTED, UNKNOWN))
    return replace(records, header=header, boots=boots), analysis, verdict


def cells(table, arm):
    row = next(row for row in table.rows if row[0].text == arm)
    return dict(zip(table.columns, row, strict=True))


def test_a_draft_s_cost_stands_beside_its_figures(study):
    found = cells(memory.of_study(study[0]), "eagle3-k3")
    assert found["draft"].text == "1.00 GiB"
    assert found["KV per token"] == ("135,168 B", "+4,096 B for the draft")
    assert found["KV tokens"] == ("444,800", f"{MINUS}4.7 % for the draft")
    assert found["requests at once"] == ("54.3", "of 8,192 tokens, baseline 57.0")
    assert found["slots for drafts"].text == "3"
    assert found["fits"].text == "yes"


def test_the_engine_s_own_figure_stands_apart(study):
    assert cells(memory.of_study(study[0]), "eagle3-k3")["engine reports"] == (
        "400,000",
        f"{MINUS}10.1 % against the estimate",
    )
    assert cells(memory.of_study(study[0]), "baseline")["engine reports"].text == "not measured"


def test_what_is_not_known_is_said_so(study):
    found = cells(memory.of_study(study[0]), "ngram-k3")
    for column in ("weights", "draft", "KV per token", "KV tokens", "requests at once", "headroom", "fits"):
        assert found[column].text == "not known"


def test_page_and_markdown_carry_the_table_escaped(study):
    shown = view.build(*study)
    page, text = html.render(shown), markdown.render(shown)
    for medium in (page, text):
        assert memory.TITLE in medium
        assert "444,800" in medium
        assert "<b>cache</b>" not in medium


def test_json_holds_whole_figures(study):
    found = json.loads(export.report_json(*study))["memory"]
    assert [one["arm"] for one in found] == ["baseline", "eagle3-k3", "ngram-k3"]
    assert found[1]["kv_tokens"] == 444_800
    assert found[1]["reported_kv_tokens"] == 400_000
    assert found[2]["kv_tokens"] is None


def test_a_study_without_estimates_shows_no_table():
    shown = view.build(*hand_made_study.study())
    assert memory.TITLE not in html.render(shown)
    assert memory.TITLE not in markdown.render(shown)
