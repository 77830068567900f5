"""What is written is what is read, for any record; and a kill at any moment loses nothing that was committed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from specdyno.records.schema import Outcome, RequestRecord, SpecSteps, StudyHeader, WindowKind
from specdyno.records.store import Store

HEADER = StudyHeader(plan={}, plan_yaml="", plan_sha256="", created_unix_ns=0, provenance={})

texts = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)  # surrogates and NUL included
stamps = st.integers(-(2**63), 2**63 - 1)
sizes = st.integers(-(2**60), 2**60)
counts = st.none() | st.integers() | st.integers(2**62, 2**70)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def lists_of(numbers):
    return st.none() | st.lists(numbers, max_size=8).map(tuple)


def any_of(record, **values):
    """Any record of this type; a field added later must be given values here too."""
    assert set(values) == {field.name for field in fields(record)}
    return st.builds(record, **values)


specs = any_of(
    SpecSteps,
    source=texts,
    num_spec_steps=counts,
    num_draft_tokens=counts,
    num_accepted_draft_tokens=counts,
    num_spec_tokens=counts,
    acceptance_histogram=lists_of(st.integers(0, 50) | st.integers()),
    per_step_accepted=lists_of(st.integers(0, 9) | st.integers()),
    per_step_drafted=lists_of(st.integers(0, 9) | st.integers()),
    estimated=st.booleans(),
    problems=st.lists(texts, max_size=2).map(tuple),
)
records = any_of(
    RequestRecord,
    index=st.integers(-(2**63) + 1, 2**63 - 1),
    prompt_id=texts,
    prompt_sha256=texts,
    class_name=texts,
    intended_ns=stamps,
    sent_ns=stamps,
    outcome=st.sampled_from(Outcome),
    first_byte_ns=st.none() | stamps,
    last_byte_ns=st.none() | stamps,
    chunk_ns=st.lists(st.integers(0, 2**62), max_size=6).map(sorted).map(tuple),
    chunk_chars=st.lists(sizes, max_size=6).map(tuple),
    status=counts,
    error=texts,
    prompt_tokens=counts,
    completion_tokens=counts,
    cached_tokens=counts,
    reasoning_tokens=counts,
    finish_reason=st.none() | texts,
    text=texts,
    reasoning=texts,
    tool_calls=st.lists(st.dictionaries(texts, json_values, max_size=3), max_size=2).map(tuple),
    spec=st.none() | specs,
    max_tokens=counts,
    session=st.none() | texts,
    turn=st.none() | st.integers(0, 2**31),
    phase=st.none() | texts,
    supplied=st.none() | st.integers(0, 2**31),
)


@settings(deadline=None, max_examples=60)
@given(written=st.lists(records, max_size=4, unique_by=lambda record: record.index))
def test_write_then_read_is_identity(written):
    with tempfile.TemporaryDirectory() as folder, Store.create(Path(folder) / "study.sqlite", HEADER) as store:
        boot_id = store.begin_boot(block=0, arm="a", attempt=0, position=0, started_ns=0, started_unix_ns=0)
        window_id = store.begin_window(
            boot_id, load="l", kind=WindowKind.MIXED, class_name=None, concurrency=1, planned=4, started_ns=0
        )
        for record in written:
            store.add_request(window_id, record)
        store.end_window(window_id, ended_ns=1, client_lag_max_ns=None, host_busy=None)
        expected = sorted(written, key=lambda record: record.index)
        assert list(store.read_requests(window_id)) == expected
        columns = store.read_study().requests
        assert columns.index.tolist() == [record.index for record in expected]
        assert [columns.class_names[code] for code in columns.class_code] == [r.class_name for r in expected]
        assert [columns.prompt_ids[code] for code in columns.prompt_code] == [r.prompt_id for r in expected]
        for names, codes, field in (("sessions", "session_code", "session"), ("phases", "phase_code", "phase")):
            known = [*getattr(columns, names), None]  # -1 is the last
            assert [known[code] for code in getattr(columns, codes)] == [getattr(r, field) for r in expected]
        assert columns.supplied.tolist() == [-1 if r.supplied is None else r.supplied for r in expected]
        assert columns.chunks.tolist() == [len(record.chunk_ns) for record in expected]


WRITER = """
import sys
from pathlib import Path
from specdyno.records.schema import Outcome, RequestRecord, WindowKind
from specdyno.records.store import Store

with Store.open(Path(sys.argv[1]), write=True) as store:
    boot_id = store.begin_boot(block=0, arm="a", attempt=0, position=0, started_ns=0, started_unix_ns=0)
    window_id = store.begin_window(
        boot_id, load="l", kind=WindowKind.MIXED, class_name=None, concurrency=1, planned=10**6, started_ns=0)
    for index in range(10**6):
        store.add_request(window_id, RequestRecord(
            index, f"p{index}", "", "code", index, index, Outcome.FINISHED, text="word " * (index % 2000)))
        print(index, flush=True)
"""


@settings(deadline=None, max_examples=6)
@given(kill_after=st.integers(0, 1500))
def test_every_request_reported_as_committed_outlives_a_kill(kill_after):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.sqlite"
        Store.create(path, HEADER).close()
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
            reported = [writer.stdout.readline() for _ in range(kill_after + 1)]
            writer.kill()
            reported += writer.stdout.readlines()
        committed = sum(line.endswith("\n") for line in reported)
        assert committed > kill_after
        with Store.open(path, write=True) as store:
            records = list(store.read_requests(1))
            # One more may have been committed whose report was cut off.
            assert [record.index for record in records] == list(range(len(records)))
            assert len(records) in (committed, committed + 1)
            assert all(record.text == "word " * (record.index % 2000) for record in records)
            assert store.read_study().windows[0].ended_ns is None
