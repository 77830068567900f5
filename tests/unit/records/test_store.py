"""The store gives back what was written, and keeps what was committed."""

from __future__ import annotations

import math
import sqlite3
import threading

import numpy as np
import pytest
from tests.unit.records.small_study import HEADER, begin_boot, begin_window, request

from specdyno.records.schema import (
    BootStatus,
    CounterSample,
    Finding,
    FindingCode,
    Identity,
    Outcome,
    Series,
    Severity,
    SpecSteps,
    WindowKind,
)
from specdyno.records.store import Store

FULL_SPEC = SpecSteps(
    source="vllm per-request detailed",
    num_spec_steps=3,
    num_draft_tokens=9,
    num_accepted_draft_tokens=4,
    num_spec_tokens=3,
    acceptance_histogram=(1, 1, 0, 1),
    per_step_accepted=(3, 0, 1),
    per_step_drafted=(3, 3, 3),
    problems=("short",),
)


def test_header_is_read_back_equal(store, path):
    assert store.header == HEADER
    with Store.open(path, write=False) as reader:
        assert reader.header == HEADER


def test_sizing_is_kept_in_the_header(store):
    store.set_sizing({"pool": 96, "interactive": 12})
    assert store.header.sizing == {"pool": 96, "interactive": 12}


def test_boot_is_read_back_with_its_updates(store):
    boot_id = begin_boot(store, command=("vllm", "serve"), log_path="logs/0.log")
    started = store.read_boots()[0]
    assert (started.status, started.identity, started.ready_ns) == (BootStatus.STARTING, None, None)
    identity = Identity("vllm", "0.32.0", speculation=False, settings={"dtype": "bfloat16", "seed": None})
    store.update_boot(boot_id, status=BootStatus.COMPLETE, identity=identity, ready_ns=7, pid=4, pid_started=1.5)
    boot = store.read_boots()[0]
    assert (boot.id, boot.status, boot.identity) == (boot_id, BootStatus.COMPLETE, identity)
    assert (boot.command, boot.log_path, boot.ready_ns, boot.pid_started) == (("vllm", "serve"), "logs/0.log", 7, 1.5)
    assert boot.memory_bytes is None


def test_boot_takes_only_its_own_fields(store):
    boot_id = begin_boot(store)
    with pytest.raises(TypeError, match="colour"):
        store.update_boot(boot_id, colour="red")
    with pytest.raises(TypeError, match="colour"):
        begin_boot(store, colour="red", block=1)


def test_updating_a_boot_that_is_not_there_is_an_error(store):
    with pytest.raises(LookupError, match="boot 99"):
        store.update_boot(99, ready_ns=1)


def test_window_is_cut_off_until_it_is_ended(store):
    boot_id = begin_boot(store)
    window_id = begin_window(store, boot_id, kind=WindowKind.CLASS, class_name="code")
    assert store.read_study().windows[0].ended_ns is None
    store.end_window(window_id, ended_ns=50, client_lag_max_ns=None, host_busy=0.25)
    window = store.read_study().windows[0]
    assert (window.id, window.boot_id, window.kind, window.class_name) == (
        window_id,
        boot_id,
        WindowKind.CLASS,
        "code",
    )
    assert (window.ended_ns, window.client_lag_max_ns, window.host_busy) == (50, None, 0.25)


def test_counter_samples_join_their_window_and_keep_the_raw_text(store, window_id):
    series = (Series("drafts", (("engine", "0"), ("position", "1")), 3.0), Series("accepted", (), None))
    before = CounterSample(11, "vllm /metrics", series, process_start=1.25, problems=("NaN",))
    after = CounterSample(99, "vllm /metrics", ())
    store.add_counter_sample(window_id, "before", before, "# TYPE drafts counter\ndrafts 3\0\n")
    store.add_counter_sample(window_id, "after", after, "")
    window = store.read_study().windows[0]
    assert (window.before, window.after) == (before, after)
    assert store.read_raw_counters(window_id, "before") == "# TYPE drafts counter\ndrafts 3\0\n"
    assert store.read_raw_counters(window_id + 1, "before") is None


def test_findings_are_read_back_in_order(store):
    found = [
        Finding(FindingCode.FOREIGN_TRAFFIC, Severity.FORBIDS, "block 2, pool", "7 tokens", "eagle3-k3", "pool"),
        Finding(FindingCode.HOST_BUSY, Severity.NOTE, "block 0"),
    ]
    for finding in found:
        store.add_finding(finding)
    assert list(store.read_study().findings) == found


def test_requests_are_read_back_whole_by_their_place_in_the_list(store, window_id):
    full = request(
        1,
        outcome=Outcome.CUT_AT_LIMIT,
        first_byte_ns=1001,
        chunk_ns=(1100, 1300, 1350),
        chunk_chars=(4, 9, 1),
        status=200,
        prompt_tokens=12,
        completion_tokens=8,
        cached_tokens=0,
        finish_reason="length",
        text="déjà\0vu \ud800 \ud83d\ude00",
        reasoning="…",
        tool_calls=({"name": "find", "arguments": '{"q": "\ud83d\ude00"}', "n": 2**80, "x": [1.5, None, True]},),
        spec=FULL_SPEC,
        max_tokens=8,
    )
    refused = request(0, outcome=Outcome.REFUSED, error="no connection\ud801", last_byte_ns=None)
    store.add_request(window_id, full)
    store.add_requests(window_id, [request(2), refused])
    assert list(store.read_requests(window_id)) == [refused, full, request(2)]


def test_more_requests_than_one_page_are_all_read(store, window_id):
    records = [request(index) for index in range(700)]
    store.add_requests(window_id, records)
    assert list(store.read_requests(window_id)) == records


def test_a_batch_is_committed_whole_or_not_at_all(store, window_id):
    with pytest.raises(sqlite3.IntegrityError):
        store.add_requests(window_id, [request(0), request(1), request(0)])
    assert list(store.read_requests(window_id)) == []


def test_a_request_of_an_unknown_window_is_refused(store):
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        store.add_request(77, request(0))


def test_study_holds_requests_as_columns(store, window_id):
    store.add_request(
        window_id,
        request(
            1,
            prompt_id="shared",
            class_name="tools",
            chunk_ns=(1100, 1300, 1350),
            chunk_chars=(1, 1, 1),
            prompt_tokens=12,
            completion_tokens=8,
            spec=FULL_SPEC,
        ),
    )
    store.add_request(window_id, request(0, prompt_id="shared", outcome=Outcome.TIMED_OUT, last_byte_ns=None))
    columns = store.read_study().requests
    assert columns.index.tolist() == [0, 1]
    assert columns.class_names == ("code", "tools")
    assert (columns.class_code.tolist(), columns.class_code.dtype) == ([0, 1], np.int16)
    assert [list(Outcome)[code] for code in columns.outcome_code] == [Outcome.TIMED_OUT, Outcome.FINISHED]
    assert columns.sent_ns.tolist() == [0, 1000]
    assert columns.first_text_ns.tolist() == [-1, 1100]
    assert columns.last_text_ns.tolist() == [-1, 1350]
    assert columns.ended_ns.tolist() == [-1, 1900]
    assert columns.longest_gap_ns.tolist() == [-1, 200]
    assert columns.chunks.tolist() == [0, 3]
    assert math.isnan(columns.tokens[0])
    assert (columns.tokens[1], columns.prompt_tokens[1]) == (8.0, 12.0)
    assert (columns.spec_steps[1], columns.spec_drafted[1], columns.spec_accepted[1]) == (3.0, 9.0, 4.0)
    assert np.isnan(columns.spec_reached[0]).all()
    assert columns.spec_reached[1].tolist() == [2.0, 1.0, 1.0]
    assert columns.spec_at_risk[1].tolist() == [3.0, 2.0, 1.0]
    assert columns.spec_source == ("vllm per-request detailed",)
    assert (columns.prompt_ids, columns.prompt_code.tolist()) == (("shared",), [0, 0])


def test_positions_beyond_a_requests_own_draft_length_are_measured_zeros(store, window_id):
    def spec(k, drafted):
        return SpecSteps("summary", 2, drafted, 1, k, acceptance_histogram=(1, 1))

    store.add_request(window_id, request(0, spec=spec(1, 2)))
    store.add_request(window_id, request(1, spec=spec(3, 6)))
    store.add_request(window_id, request(2, spec=spec(3, 5)))  # drafts of varying length: at risk unknown
    columns = store.read_study().requests
    assert columns.spec_reached.tolist() == [[1, 0, 0]] * 3
    assert columns.spec_at_risk[:2].tolist() == [[2, 0, 0], [2, 1, 0]]
    assert np.isnan(columns.spec_at_risk[2]).all()


def test_study_without_requests_has_empty_columns(store):
    columns = store.read_study().requests
    assert (len(columns), columns.spec_reached.shape, columns.class_names) == (0, (0, 0), ())


def test_counts_beyond_64_bits_survive(store, window_id):
    record = request(0, completion_tokens=2**70, spec=SpecSteps("odd", 2**65, 3, None, None))
    store.add_request(window_id, record)
    assert list(store.read_requests(window_id)) == [record]
    assert store.read_study().requests.tokens.tolist() == [float(2**70)]


def test_border_chunks_are_those_in_flight_at_a_border_of_the_span(store):
    boot_id = begin_boot(store)
    # Two loops: full from 10, when request 1 is sent, to 70, the first end after the last send at 60.
    sent_and_ended = [(0, 30), (10, 55), (30, 35), (35, 70), (60, 90)]
    records = [
        request(i, sent_ns=sent, last_byte_ns=ended, chunk_ns=(sent + 2, ended), chunk_chars=(1, 3))
        for i, (sent, ended) in enumerate(sent_and_ended)
    ]
    scored = begin_window(store, boot_id)
    cut_off = begin_window(store, boot_id)
    warm_up = begin_window(store, boot_id, kind=WindowKind.WARM_UP)
    for window in (scored, cut_off, warm_up):
        store.add_requests(window, records)
    for window in (scored, warm_up):
        store.end_window(window, ended_ns=90, client_lag_max_ns=None, host_busy=None)
    chunks = store.read_study().border_chunks
    assert set(chunks) == {(scored, 0), (scored, 1), (scored, 3), (scored, 4)}
    assert [part.tolist() for part in chunks[scored, 4]] == [[62, 90], [1, 3]]


def test_another_thread_may_write_while_this_one_reads(store, window_id):
    def write():
        for index in range(300):
            store.add_request(window_id, request(index))

    writer = threading.Thread(target=write)
    writer.start()
    seen = [len(store.read_study().requests) for _ in range(20)]
    writer.join()
    assert seen == sorted(seen)
    assert len(store.read_study().requests) == 300


def test_a_second_process_reads_while_the_first_writes(store, window_id, path):
    store.add_request(window_id, request(0))
    with Store.open(path, write=False) as reader:
        assert list(reader.read_requests(window_id)) == [request(0)]
        store.add_request(window_id, request(1))
        assert len(reader.read_study().requests) == 2


def test_log_of_a_deleted_study_does_not_leak_into_a_new_one(store, window_id, path):
    store.add_request(window_id, request(0))
    log = path.with_name("study.sqlite-wal").read_bytes()
    assert log
    store.close()
    path.unlink()
    path.with_name("study.sqlite-wal").write_bytes(log)
    with Store.create(path, HEADER) as fresh:
        assert fresh.read_boots() == ()


def test_commits_survive_without_a_flush_per_request_and_foreign_keys_are_enforced(store):
    def pragma(name):
        return store._connection.execute(f"PRAGMA {name}").fetchone()[0]

    assert (pragma("journal_mode"), pragma("synchronous"), pragma("foreign_keys")) == ("wal", 1, 1)


def test_a_finished_boot_is_carried_from_the_log_into_the_file(store, path):
    boot_id = begin_boot(store)
    begin_window(store, boot_id)
    store.update_boot(boot_id, status=BootStatus.COMPLETE)
    alone = path.with_name("alone.sqlite")
    alone.write_bytes(path.read_bytes())  # without the log beside it
    with Store.open(alone, write=True) as copy:
        assert copy.read_boots()[0].status is BootStatus.COMPLETE
