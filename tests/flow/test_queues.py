"""Rates that the engine or the client cannot keep up with are found and never promoted."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flow.arriving import measured, study, windows
from tests.flow.command_line import engine, records, specdyno, verdict

from specdyno.records.queueing import Saturation, queueing
from specdyno.records.schema import FindingCode
from specdyno.records.timings import Timings

pytestmark = pytest.mark.timeout(600)  # whole studies on a slow, busy machine


def test_a_queue_that_grows_is_found_and_one_that_does_not_is_not(tmp_path: Path) -> None:
    # Two requests at a time, each of about 0.1 s: it carries about 20 per second.
    slow = engine(scale=1.0, truth={"step_ms": 4.0, "batch_cost": 0.0}, args={"max-num-seqs": 2})
    loads = [
        {"name": "within", "rate": 6, "window": "6s"},
        {"name": "beyond", "rate": 60, "window": "2s"},
    ]
    found = measured(study(tmp_path, loads, engine=slow), tmp_path)
    for load, grows in (("within", False), ("beyond", True)):
        (at,) = [at for arm, _, at in windows(found, load) if arm == "baseline"]
        seen = queueing(Timings.of_columns(found.requests, at))
        assert (seen.saturated is Saturation.YES) is grows, seen
    waits = (found.requests.first_text_ns[at] - found.requests.intended_ns[at]) / 1e9
    assert waits.max() > 0.5  # counted from the intended send, the time in the engine's queue is in it
    doubts = verdict(tmp_path / "study")["findings"]
    assert {one["load"] for one in doubts if one["code"] == FindingCode.SATURATED and one["arm"] == "baseline"} == {
        "beyond"
    }


def test_a_rate_that_the_client_cannot_reach_is_a_finding_and_no_promote(tmp_path: Path) -> None:
    path = study(
        tmp_path,
        [{"name": "flood", "rate": 20_000, "requests": 520, "window": "1s"}],
        engine=engine(truth={"output_tokens": 2}),
    )
    ended = specdyno("run", path, "--out", tmp_path / "study")
    assert ended.code == 20, ended
    found = [one for one in verdict(tmp_path / "study")["findings"] if one["code"] == FindingCode.CLIENT_AT_CEILING]
    assert any(one["severity"] == "forbids" and "requests/s" in one["detail"] for one in found), found
    (seen, *_) = [queueing(Timings.of_columns(records(tmp_path / "study").requests, at))
                  for _, _, at in windows(records(tmp_path / "study"), "flood")]  # fmt: skip
    assert seen.client_too_slow
    assert seen.sent_per_s is not None
    assert seen.offered_per_s == pytest.approx(20_000, rel=0.1)
    assert seen.sent_per_s < 0.9 * seen.offered_per_s
