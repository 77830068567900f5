"""Large logs: in parts, by several processes, and with what is known cut out, the account is the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.workload.log_rows import chat, log, talk

from specdyno.workload.logs import files, importing
from specdyno.workload.logs.importing import import_logs, scanned
from specdyno.workload.logs.tally import Sample, Tally, quantiles, ranks


def test_worker_processes_give_the_same_folder_as_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "_STRETCH", 4000)
    monkeypatch.setattr(importing, "_SMALL", 1)
    talks = [row for n in range(20) for row in talk(4, topic=f"bridge {n}")]
    path = log(tmp_path, *talks, *[chat(f"question {n % 30}?") for n in range(90)], b"broken\n")
    for processes in (1, 2):
        import_logs([path], tmp_path / f"out-{processes}", processes=processes)
    one, two = (
        {file.name: file.read_text().replace(f"out-{n}", "out") for file in (tmp_path / f"out-{n}").iterdir()}
        for n in (1, 2)
    )
    assert orjson.loads(one["import.json"])["sessions"]["count"] == 20
    assert one == two


def test_stretches_cover_a_file_without_gap_at_the_ends_of_lines(tmp_path: Path) -> None:
    path = log(tmp_path, *[b"x" * (n % 17) + b"\n" for n in range(500)], b"end without a break")
    data = path.read_bytes()
    place = 0
    for stretch in files.stretches(path, 64):
        assert stretch.start == place
        assert place == 0 or data[place - 1 : place] == b"\n"
        place += stretch.size
    assert place == len(data)


def test_the_tally_of_parts_is_the_tally_of_the_whole(tmp_path: Path) -> None:
    path = log(tmp_path, *[chat(f"q {n}?", "word " * n, usage={"completion_tokens": n * 37}) for n in range(200)])
    whole, parts = Tally(), Tally()
    for tally, size in ((whole, 10**9), (parts, 700)):
        for stretch in files.stretches(path, size):
            tally.add(0, importing.read(path, stretch, None))
        tally.finish()
    assert (whole.counts, whole.lengths, whole.duplicates) == (parts.counts, parts.lengths, parts.duplicates)
    assert {n: s.places() for n, s in whole.samples.items()} == {n: s.places() for n, s in parts.samples.items()}
    assert next(scanned([files.Log("x", path)], None))[1].requests == 200


def test_a_sample_is_drawn_evenly() -> None:
    import numpy as np  # noqa: PLC0415 - this test alone draws

    sample = Sample(500)
    places = np.arange(10_000) * 4096
    for rank, place in zip(ranks(0, places, np.zeros(10_000, int)).tolist(), places.tolist(), strict=True):
        sample.offer(rank, place, (0, place, 1, 0))
    tenths = np.bincount([place // (1000 * 4096) for _, place, _, _ in sample.places()], minlength=10)
    assert tenths.sum() == 500
    assert tenths.min() > 20  # 50 expected, standard deviation under 7
    assert tenths.max() < 80


def ordered(values: Sequence[int]) -> bool:
    return list(values) == sorted(values)


@given(st.dictionaries(st.integers(0, 10**6), st.integers(1, 50), min_size=1))
def test_quantiles_are_entries_and_rise(counts: dict[int, int]) -> None:
    found = quantiles(counts, (0.0, 0.1, 0.5, 0.9, 1.0))
    assert ordered(found)
    assert set(found) <= set(counts)
    assert found[-1] == max(counts)
