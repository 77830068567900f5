"""An expected memory is kept with its study, and held against what the engine reports."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulation.generator import make_study
from tests.unit.records.small_study import HEADER

from specdyno.plan.schema import Plan
from specdyno.records.audit import audit_records
from specdyno.records.memory import ArmMemory, deviation, read_memory
from specdyno.records.schema import FindingCode, Severity
from specdyno.records.store import Store

HEALTHY = make_study(blocks=2)
EXPECTED = ArmMemory(
    arm="eagle3-k3", device="given by the plan", weights_bytes=2**34, draft_bytes=2**28, kv_bytes_per_token=135_168,
    state_bytes=0, budget_bytes=2**35, kv_tokens=100_000, concurrency=12.2, max_model_len=8192, lookahead_tokens=3,
    headroom_bytes=2**34, wanted_bytes=2**36, free_bytes=None, fits=True, notes=("at most: so much",),
)  # fmt: skip


def study(reported, *, expected=EXPECTED):
    boots = tuple(
        replace(boot, identity=replace(boot.identity, kv_cache_tokens=reported)) if boot.arm == expected.arm else boot
        for boot in HEALTHY.boots
    )
    return replace(HEALTHY, boots=boots, header=replace(HEALTHY.header, memory=(expected,)))


def differing(records):
    found = audit_records(records, Plan.model_validate(records.header.plan)).findings
    return [finding for finding in found if finding.code is FindingCode.MEMORY_DIFFERS]


def test_an_estimate_is_read_back_as_it_was_written(path):
    unknown = ArmMemory("baseline", "not known", notes=("its cache is compressed layer by layer",))
    with Store.create(path, replace(HEADER, memory=(EXPECTED, unknown))):
        pass
    with Store.open(path, write=False) as store:
        assert store.header.memory == (EXPECTED, unknown)


def test_a_study_without_estimates_has_none(path):
    with Store.create(path, HEADER) as store:
        assert store.header.memory == ()


def test_a_field_that_is_not_known_is_no_estimate():
    with pytest.raises(TypeError):
        read_memory({"arm": "baseline", "device": "x", "colour": "red"})


@pytest.mark.parametrize("reported", [100_000, 95_000, 105_000, None])
def test_within_five_percent_nothing_is_said(reported):
    assert differing(study(reported)) == []


def test_less_room_than_expected_is_a_doubt_with_both_figures():
    (found,) = differing(study(94_999))
    assert (found.severity, found.arm) == (Severity.DOUBT, "eagle3-k3")
    assert "94,999 tokens, 100,000 were expected (-5.0%)" in found.detail
    assert "at most: so much" in found.detail
    assert found.place == "blocks 1, 2, eagle3-k3"


def test_more_room_than_expected_is_a_note():
    (found,) = differing(study(105_001))
    assert found.severity is Severity.NOTE


def test_an_estimate_that_is_not_known_raises_no_doubt():
    assert differing(study(10, expected=replace(EXPECTED, kv_tokens=None))) == []
    assert deviation(replace(EXPECTED, kv_tokens=0), 10) is None


def test_an_arm_without_an_estimate_raises_no_doubt():
    assert differing(study(10, expected=replace(EXPECTED, arm="elsewhere"))) == []
