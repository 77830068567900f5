import csv
import errno
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.simulation.generator import make_study
from tests.unit.report.hand_made_study import hostile, study

from specdyno.errors import PlanError, RecordError
from specdyno.report import atomic, export, files, rows, serve
from specdyno.statistics.analysis import PhaseSummary
from specdyno.statistics.intervals import AT_LEAST, Interval, Undefined
from specdyno.verdict.decide import judge


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def judged():
    records = make_study(blocks=4)
    return (records, *judge(records))


def test_the_serve_keys_keep_their_units():
    records, analysis, _ = study()
    entry = next(e for e in serve.entries(records.header, analysis) if (e["arm"], e["load"]) == ("eagle3-k3", "pool"))
    curve = next(c for c in analysis.curves if (c.arm, c.load, c.class_name) == ("eagle3-k3", "pool", None))
    assert entry["spec_decode_acceptance_rate"] == pytest.approx(100 * curve.accepted_tokens / curve.drafted_tokens)
    assert entry["spec_decode_acceptance_length"] == pytest.approx(1 + sum(v.estimate for v in curve.joint))
    assert entry["spec_decode_per_position_acceptance_rates"] == [v.estimate for v in curve.joint]
    assert entry["spec_decode_num_drafts"] == 12_000
    assert entry["max_concurrency"] == 16
    assert entry["mean_ttft_ms"] == 24.1
    assert entry["output_throughput"] == pytest.approx(8890 / 145.2)
    assert entry["request_throughput"] == pytest.approx(95 / 145.2)
    assert (entry["completed"], entry["failed"], entry["duration"]) == (95, 1, 145.2)


def test_a_serve_key_is_absent_where_nothing_was_measured():
    records, analysis, _ = study()
    bare = replace(
        analysis,
        summaries=tuple(replace(s, output_tokens=None, latency_ms=()) for s in analysis.summaries),
        curves=tuple(replace(c, rate=Undefined("no counters")) for c in analysis.curves),
    )
    entries = serve.entries(records.header, bare)
    assert not any(
        key in entry for entry in entries for key in ("output_throughput", "total_output_tokens", "mean_ttft_ms")
    )
    assert not any("spec_decode_acceptance_rate" in entry for entry in entries)
    baseline = entries[0]
    assert not any(key.startswith("spec_decode") for key in baseline)
    assert "p99_ttft_ms" not in serve.entries(records.header, analysis)[0]


def test_report_json_holds_verdict_analysis_and_serve_keys(judged):
    found = json.loads(export.report_json(*judged))
    assert found["verdict"]["outcome"] == judged[2].outcome.value
    gate = found["verdict"]["objectives"][0]["candidates"][0]["gates"][0]
    assert gate["ratio"]["estimate"] == judged[2].objectives[0].candidates[0].gates[0].ratio.estimate
    assert len(found["serve"]) == len(judged[1].arms) * len(judged[1].loads)


@pytest.mark.parametrize("of", [study, hostile], ids=["plain", "hostile"])
def test_report_json_is_strict_json(of):
    json.loads(export.report_json(*of()), parse_constant=pytest.fail)


def test_requests_are_streamed_whole_with_empty_cells_for_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "BATCH", 7)
    records, _, _ = study()
    found = read(export.write_csv(tmp_path / "requests.csv", rows.requests(records)))
    assert len(found) == len(records.requests)
    assert [row["completion_tokens"] for row in found[:2]] == ["50.0", ""]
    assert [row["first_text_ns"] for row in found[:2]] == ["0", ""]
    assert [row["outcome"] for row in found[:2]] == ["finished", "timed_out"]
    assert found[0]["arm"] == "baseline"
    assert found[1]["prompt_id"] == "'=HYPERLINK(1)"


def test_csv_and_parquet_hold_the_same(judged, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export.export(*judged, tmp_path, ["csv", "parquet"])
    for name in ("requests", "windows", "acceptance", "contrasts"):
        table = parquet.read_table(tmp_path / f"{name}.parquet").to_pylist()
        texts = read(tmp_path / f"{name}.csv")
        assert len(table) == len(texts) > 0
        for left, right in zip(table[:50], texts, strict=False):
            assert {key: "" if value is None else str(value) for key, value in left.items()} == right


def test_contrasts_say_why_a_number_is_missing(tmp_path):
    found = read(export.write_csv(tmp_path / "contrasts.csv", rows.contrasts(study()[1])))
    missing = [row for row in found if row["ratio"] == ""]
    assert {row["reason"] for row in missing} == {"fewer than two blocks with this class"}
    assert all(row["reason"] == "" for row in found if row["ratio"])


def test_parquet_without_its_library_names_the_extra(judged, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(PlanError, match=r"specdyno\[parquet\]"):
        export.export(*judged, tmp_path, ["csv", "parquet"])
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_format_names_those_there_are(judged, tmp_path):
    with pytest.raises(PlanError, match="csv, parquet, serve"):
        export.export(*judged, tmp_path, ["xlsx"])


def test_a_full_disk_is_a_record_error_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fill():
        with atomic.replacing(path) as file:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RecordError, match="No space left on device"):
        fill()
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_that_cannot_be_made_is_a_record_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="could not be written"):
        atomic.write(tmp_path / "file" / "report.html", "x")


def test_a_study_gets_its_four_files_with_the_same_bytes_each_time(judged, tmp_path):
    paths = files.write(tmp_path, *judged)
    assert [path.name for path in paths] == ["verdict.json", "report.html", "report.md", "report.json"]
    first = {path.name: path.read_bytes() for path in paths}
    assert {path.name: path.read_bytes() for path in files.write(tmp_path, *judged)} == first
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(first)


def test_no_file_names_this_machine(judged, tmp_path):
    for path in files.write(tmp_path, *judged):
        assert str(tmp_path) not in path.read_text(encoding="utf-8")


def test_stamps_of_minus_one_and_nan_are_empty():
    assert rows._integers(np.array([-1, 0, 5])) == [None, 0, 5]
    assert rows._floats(np.array([np.nan, np.inf, 0.5])) == [None, None, 0.5]


def test_phases_of_sessions_carry_their_interval_or_the_reason(tmp_path):
    length, rate = Interval(2.5, 2.25, 2.75, 0.95, "t", 4), Interval(0.5, 0.4, 0.6, 0.95, "t", 4)
    nothing = Undefined("nothing was drafted")
    found = (
        PhaseSummary("c", "agents", "plan", None, 10, 9, 200.0, 0.5, 0.02, 1.5, None, length, rate, (rate,), 80.0, 4),
        PhaseSummary("baseline", "agents", None, 2, 10, 10, None, 0.5, 0.02, 1.5, 0.25, nothing, nothing, (), None, 4),
    )
    rest = replace(study()[1], phases=found)
    drafted, plain = read(export.write_csv(tmp_path / "phases.csv", rows.phases(rest)))
    assert (drafted["phase"], drafted["turn"], drafted["completed"]) == ("plan", "", "9")
    assert [drafted[f"mean_accepted_length{end}"] for end in ("", "_low", "_high")] == ["2.5", "2.25", "2.75"]
    assert (drafted["acceptance_rate_high"], drafted["method"], drafted["cached_share"]) == ("0.6", "t", "")
    assert (plain["turn"], plain["mean_accepted_length"], plain["reason"]) == ("2", "", "nothing was drafted")


def test_a_contrast_of_which_one_side_is_known_has_that_side_alone(tmp_path):
    one = replace(study()[1].contrasts[0], ratio=Interval(1.3, 1.1, 1.5, 0.95, "t", 4, AT_LEAST))
    (found,) = read(export.write_csv(tmp_path / "contrasts.csv", rows.contrasts(replace(study()[1], contrasts=(one,)))))
    assert (found["ratio"], found["ratio_low"], found["ratio_high"]) == ("", "1.1", "")
