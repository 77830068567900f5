"""A log becomes a folder that the readers of plans take: classes, sessions, a piece of a plan, an honest account."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdyno.errors import PlanError
from specdyno.plan.schema import Plan
from specdyno.workload.logs import files, importing
from specdyno.workload.logs.chains import Chain, Chains
from specdyno.workload.logs.importing import import_logs, scanned
from specdyno.workload.logs.scan import LONGEST_ROW, scan
from specdyno.workload.logs.tally import Sample, Tally, quantiles, ranks
from specdyno.workload.sessions import load_sessions
from specdyno.workload.sources import load_pools

LOGS = Path(__file__).parents[2] / "data" / "logs"
ANSWER = "It was a fine time: we swam every morning, and in the evening there was music at the harbour."


def chat(question: str = "How was your holiday?", answer: str | None = ANSWER, **keys: Any) -> dict[str, Any]:
    given_answer = {"response": {"choices": [{"message": {"role": "assistant", "content": answer}}]}} if answer else {}
    return {"messages": [{"role": "user", "content": question}], **given_answer, **keys}


def log(folder: Path, *rows: Any, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_bytes(b"".join(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows))
    return path


def account_of(folder: Path, *rows: Any, **how: Any) -> dict[str, Any]:
    return import_logs([log(folder, *rows)], folder / "out", **how).account


def refusal(folder: Path, *paths: Path) -> str:
    with pytest.raises(PlanError) as caught:
        import_logs(paths, folder / "out")
    assert not (folder / "out").exists()
    assert not list(folder.glob(".import-*"))
    return str(caught.value)


def reasons(account: dict[str, Any]) -> dict[str, tuple[int, list[int]]]:
    return {one["reason"]: (one["rows"], [at["line"] for at in one["first"]]) for one in account["refused"]}


def jsonl(path: Path) -> list[Any]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


# ---- what is written ------------------------------------------------------------------------------------------------


def test_all_kinds_of_logs_together_make_one_account(tmp_path: Path) -> None:
    found = import_logs(sorted(LOGS.iterdir()), tmp_path / "out").account
    assert found["formats"] == {
        "OpenAI batch": 4, "OpenTelemetry": 3, "Langfuse": 2, "chat": 2, "vLLM": 2, "LiteLLM": 1,
    }  # fmt: skip
    assert found["requests"] == 14
    assert found["batch_results_joined"] == 3
    assert reasons(found) == {
        "is a span that is no generation": (1, [4]),
        "asks for no text (embeddings, images, sound)": (1, [3]),
        "failed when it was logged": (1, [2]),
        "is a batch result without its request": (1, [4]),
        "is an observation that is no generation": (1, [3]),
    }
    assert sum(one["requests"] for one in found["classes"].values()) == 14
    assert sum(one["share"] for one in found["classes"].values()) == pytest.approx(1)
    assert {*found["classes"]} == {"tools", "chat", "other"}


def test_the_piece_of_a_plan_and_its_files_are_taken_by_the_readers_of_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [chat(f"How was holiday {n}?", session_id="s", temperature=0.4) for n in range(9)]
    rows += [chat(f"Is it {n}?", "Yes.", temperature=0.4, top_p=0.9) for n in range(3)]
    import_logs([log(tmp_path, *rows)], Path("traffic"))
    piece = yaml.safe_load(Path("traffic/workload.yaml").read_text())
    plan = Plan.model_validate(
        {
            "study": "own", "target": {"model": "sim/model"}, "engine": {"kind": "simulated"},
            "candidates": [{"method": "ngram", "draft_tokens": [3]}],
            "loads": [{"name": "one", "concurrency": 1, "window": "10s"}],
            "objectives": [{"name": "one", "load": "one", "measure": "time_per_job"}],
            **piece,
        }
    )  # fmt: skip
    assert plan.workload.sampling.temperature == 0.4
    assert [(one.name, one.share) for one in plan.workload.classes] == [("acknowledgement", 0.25), ("chat", 0.75)]
    pools = load_pools(plan, tmp_path)
    assert {name: (len(pool.prompts), pool.skipped) for name, pool in pools.items()} == {
        "chat": (9, ()),
        "acknowledgement": (3, ()),
    }


def test_the_limit_covers_99_percent_of_the_answers(tmp_path: Path) -> None:
    rows = [
        chat(f"question {n}?", usage={"completion_tokens": 40 if n else 900, "prompt_tokens": 3}) for n in range(200)
    ]
    found = account_of(tmp_path, *rows)["classes"]["chat"]
    assert (found["max_tokens"], found["max_tokens_from"]) == (48, "output tokens")
    assert found["output_tokens"]["p100"] == 900
    assert found["prompt_tokens"]["p50"] == 3


def test_what_the_log_does_not_state_is_not_zero(tmp_path: Path) -> None:
    found = account_of(tmp_path, chat(answer=None), chat("Another question?", answer=None))
    assert found["classes"]["chat"]["output_tokens"] is None
    assert found["classes"]["chat"]["answer_characters"] is None
    assert found["classes"]["chat"]["max_tokens_from"] == "nothing: the log states no length"
    assert found["first_unix_s"] is None
    assert found["models"] == {"not stated": 2}
    assert found["sampling"] == [{"share": 1.0}]
    assert "states no temperature" in (tmp_path / "out" / "workload.yaml").read_text().replace(
        "Most requests state", "states"
    )


def test_a_class_keeps_a_fair_draw_of_distinct_prompts_and_counts_all(tmp_path: Path) -> None:
    rows = [chat(f"question {n % 200}?") for n in range(400)]
    found = account_of(tmp_path, *rows, kept=50)
    assert found["requests"] == 400
    assert found["duplicates"] == 200
    kept = [row["messages"][0]["content"] for row in jsonl(tmp_path / "out" / "chat.jsonl")]
    assert len(kept) == len(set(kept)) == 50
    assert any(int(text.split()[1].strip("?")) > 150 for text in kept)
    assert found["classes"]["chat"]["kept"] == 50


def test_redaction_reaches_every_file_and_is_counted(tmp_path: Path) -> None:
    mail = "jane.doe@acme.example"
    first = [{"role": "user", "content": f"Write to {mail} about the bridge, please."}]
    second = [
        *first,
        {"role": "assistant", "content": f"I wrote to {mail}, who will answer tomorrow, I am sure of it."},
    ]
    rows = [
        {"messages": second, "session_id": "s"},
        {"messages": [*second, {"role": "user", "content": "Thank you so much for that!"}], "session_id": "s"},
    ]
    found = account_of(tmp_path, *rows, redact=True)
    assert found["redacted"]["e-mails"] >= 4
    written = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir())
    assert mail.encode() not in written
    (session,) = load_sessions("sessions.jsonl", tmp_path / "out").sessions
    question, answer = session.turns[0].messages[0]["content"], session.turns[0].recorded
    assert answer is not None
    placeholder = question.split()[2]
    assert len(placeholder) == len(mail)
    assert placeholder in answer["content"]
    assert account_of_again(tmp_path)["redacted"] is None


def account_of_again(folder: Path) -> dict[str, Any]:
    shutil.rmtree(folder / "out")
    return import_logs([folder / "log.jsonl"], folder / "out").account


# ---- sessions -------------------------------------------------------------------------------------------------------


def talk(turns: int, *, topic: str) -> list[Any]:
    """The requests of one conversation, each with the whole history."""
    history: list[Any] = []
    rows = []
    for n in range(turns):
        history = [*history, {"role": "user", "content": f"Question {n} about {topic}?"}]
        said = {
            "role": "assistant",
            "content": f"Answer {n} about {topic}, long enough to be no acknowledgement at all.",
        }
        times = {"start_time": 1000.0 + 60 * n, "end_time": 1010.0 + 60 * n}
        rows.append({"messages": history, "response": {"choices": [{"message": said}]}, **times})
        history = [*history, said]
    return rows


def test_sessions_are_rebuilt_from_shared_beginnings_though_interleaved(tmp_path: Path) -> None:
    pairs = zip(talk(3, topic="bridges"), talk(3, topic="ferries"), strict=True)
    found = account_of(tmp_path, *[row for pair in pairs for row in pair], chat())
    assert (found["sessions"]["count"], found["sessions"]["requests"], found["sessions"]["kept"]) == (2, 6, 2)
    first, second = load_sessions("sessions.jsonl", tmp_path / "out").sessions
    assert [turn.messages[0]["content"] for turn in first.turns] == [f"Question {n} about bridges?" for n in range(3)]
    assert [turn.pause_s for turn in first.turns] == [0.0, 50.0, 50.0]
    assert second.turns[2].recorded is not None
    assert "ferries" in second.turns[2].recorded["content"]


def test_an_id_links_requests_whose_history_was_changed_and_parts_those_that_look_alike(tmp_path: Path) -> None:
    rows = [dict(row, session_id="a") for row in talk(2, topic="bridges")]
    rows[1]["messages"][1]["content"] += " (shortened)"
    other = dict(talk(2, topic="bridges")[1], session_id="b")
    found = account_of(tmp_path, rows[0], other, rows[1])
    assert (found["sessions"]["count"], found["sessions"]["requests"]) == (1, 2)


def test_a_talk_that_cannot_be_replayed_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = talk(2, topic="bridges")
    rows[1]["messages"].insert(2, {"role": "system", "content": "Be brief."})
    found = account_of(tmp_path, *[dict(row, session_id="a") for row in rows])
    assert found["sessions"]["kept"] == 0
    assert found["sessions"]["left_out"] == {"has messages in an order or a shape that cannot be replayed": 1}
    assert not (tmp_path / "out" / "sessions.jsonl").exists()


def test_a_session_is_ended_once_though_each_of_its_requests_has_an_id_of_its_own() -> None:
    closed: list[Chain] = []
    chains = Chains(closed.append, most=4)
    talks = [talk(5, topic=f"bridge {n}") for n in range(6)]
    rows = [
        {"traceId": f"{n}-{m}", "type": "GENERATION", "input": row["messages"], "output": row["response"]}
        for n, rows in enumerate(talks)
        for m, row in enumerate(rows)
    ]
    chains.add(0, scan(b"\n".join(map(orjson.dumps, rows)), start=0))
    chains.close()
    assert [chain.requests for chain in closed] == [5] * 6


def test_a_million_requests_of_one_user_need_no_more_room_than_open_sessions(tmp_path: Path) -> None:
    closed: list[Chain] = []
    chains = Chains(closed.append, most=10)
    rows = [orjson.dumps(chat(f"question {n}?", user="one", session_id="u")) for n in range(300)]
    rows += [orjson.dumps(row) for row in talk(2, topic="bridges")]
    chains.add(0, scan(b"\n".join(rows), start=0))
    assert len(closed) >= 280
    chains.close()
    assert sorted(chain.requests for chain in closed)[-2:] == [1, 2]
    assert sum(chain.requests for chain in closed) == 302
    assert len({id(chain) for chain in closed}) == len(closed)


# ---- bad input ------------------------------------------------------------------------------------------------------


def test_every_bad_row_is_counted_with_its_line_and_the_others_go_on(tmp_path: Path) -> None:
    image = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}
    stray = {"messages": [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "c", "content": "y"}]}
    found = account_of(
        tmp_path, chat("one?"), b'{"messages": \xff\xfe}\n', b"\n", b"not json\n", image, b"\0\0\0\n", stray,
        chat("two?"), {"messages": 5}, {"messages": [{"role": "user", "content": "deep"}], "tools": 7, "usage": [1]},
        orjson.dumps(chat("three?"))[:-9],
    )  # fmt: skip
    assert reasons(found) == {
        "is not UTF-8 text": (1, [2]),
        "is no JSON": (1, [4]),
        "holds images": (1, [5]),
        "holds binary data": (1, [6]),
        "holds the result of a tool without its call": (1, [7]),
        "has messages that are no list with at least one entry": (1, [9]),
        "is cut off": (1, [11]),
    }
    assert (found["requests"], found["rows"]) == (3, 10)


def test_line_numbers_run_on_from_stretch_to_stretch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "_STRETCH", 300)
    rows = [chat(f"question {n}?") if n % 10 else b"broken\n" for n in range(60)]
    found = account_of(tmp_path, *rows)
    assert reasons(found) == {"is no JSON": (6, [1, 11, 21, 31, 41])}
    assert found["requests"] == 54


def test_a_row_of_ten_megabytes_is_taken_and_one_beyond_the_limit_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = chat("word " * 2_000_000)
    assert account_of(tmp_path, big, chat())["requests"] == 2
    monkeypatch.setattr(files, "LONGEST_ROW", 1_000_000)
    monkeypatch.setattr(importing, "_STRETCH", 1000)
    shutil.rmtree(tmp_path / "out")
    found = account_of(tmp_path, chat("before?"), big, chat("after?"))
    assert reasons(found) == {f"is longer than {LONGEST_ROW // 1024**2} MiB": (1, [2])}
    assert found["requests"] == 2


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"", "is empty"),
        (b"  \n\n", "is empty"),
        (b"\x7fELF\0\0\0", "holds binary data"),
        (b"PK\x03\x04rest", "is a ZIP archive"),
        ("[{}]".encode("utf-16"), "is UTF-16 text"),
        (b"time,prompt\n1,hello\n", "holds no JSON"),
        (b'{"x": 1}\n{"x": 2}\n', "no usable request: 2 rows, first line 1, has the shape of no known log"),
        (b"[1, 2]", "no usable request"),
        (b'{"messages": [', "no usable request: 1 rows, first line 1, is cut off"),
    ],
)
def test_a_file_of_no_use_is_one_message_and_leaves_nothing(tmp_path: Path, content: bytes, seen: str) -> None:
    assert seen in refusal(tmp_path, log(tmp_path, content))


def test_a_gzip_file_that_is_cut_off_says_so(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(orjson.dumps(chat(f"{n}?")) + b"\n" for n in range(999)))
    (tmp_path / "log.gz").write_bytes(packed[: len(packed) // 2])
    assert "is a gzip file that is cut off" in refusal(tmp_path, tmp_path / "log.gz")


def test_all_files_that_cannot_be_read_are_named_at_once(tmp_path: Path) -> None:
    told = refusal(tmp_path, tmp_path / "missing.jsonl", tmp_path, log(tmp_path, b"", name="empty.jsonl"))
    assert all(words in told for words in ("missing.jsonl: there is no such file", "is a directory", "is empty"))


def test_a_folder_that_holds_something_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(PlanError, match="holds something already"):
        import_logs([log(tmp_path, chat())], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_gzip_lists_and_wrapped_lists_are_read_like_lines(tmp_path: Path) -> None:
    rows = [chat(f'say "{n}" \\ {{[ ?') for n in range(30)]
    wanted = account_of(tmp_path, *rows)["classes"]
    contents = {
        "packed.jsonl.gz": gzip.compress((tmp_path / "log.jsonl").read_bytes()),
        "list.json": json.dumps(rows, indent=1).encode(),
        "wrapped.json": json.dumps({"meta": 1, "data": rows}, indent=2).encode(),
        "packed.json.gz": gzip.compress(json.dumps(rows).encode()),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        assert import_logs([tmp_path / name], tmp_path / f"out-{name}").account["classes"] == wanted, name


@pytest.mark.parametrize("block", [1, 7, 64])
def test_a_list_is_spread_the_same_whatever_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(files, "_BLOCK", block)
    rows = [{"a": 'x"]}\\', "b": [1, {"c": "{"}]}, {"d": []}, "text", {"e": "ü"}]
    (tmp_path / "list.json").write_bytes(json.dumps(rows, indent=1, ensure_ascii=False).encode())
    (found,) = files.logs([tmp_path / "list.json"], tmp_path)
    assert jsonl(found.path) == rows


def test_a_list_that_is_cut_off_gives_its_whole_entries(tmp_path: Path) -> None:
    content = json.dumps([chat("one?"), chat("two?"), chat("three?")]).encode()[:-40]
    found = account_of(tmp_path, content)
    assert found["requests"] == 2
    assert reasons(found) == {"is cut off": (1, [3])}


KEYS = [
    *(
        "messages",
        "prompt",
        "tools",
        "body",
        "custom_id",
        "response",
        "attributes",
        "events",
        "input",
        "traceId",
        "type",
    ),
    *("model_parameters", "metadata", "usage", "resourceSpans", "output", "stop"),
]
INNER_KEYS = [
    *("role", "content", "choices", "message", "key", "value", "parts", "name", "tool_calls", "scopeSpans", "spans"),
    "gen_ai.input.messages",
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(
        st.dictionaries(
            st.sampled_from(KEYS),
            st.recursive(
                st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["x", "GENERATION", "", "[1]", "{}"]),
                lambda inner: st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(INNER_KEYS), inner, max_size=3),
                max_leaves=8,
            ),
            max_size=5,
        ),
        min_size=1, max_size=20,
    )
)  # fmt: skip
def test_no_shape_of_a_row_breaks_the_reading_and_every_row_is_used_or_counted(rows: list[Any]) -> None:
    facts = scan(b"\n".join(orjson.dumps(row) for row in rows), start=0)
    assert facts.rows == len(rows)
    assert facts.requests + sum(count for count, _ in facts.refused.values()) >= len(rows)


# ---- large logs -----------------------------------------------------------------------------------------------------


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
