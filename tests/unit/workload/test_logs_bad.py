"""What is wrong with a row or a file is counted or said, with its place, and the others go on."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.workload.log_rows import account_of, chat, jsonl, log, reasons, refusal

from specdyno.errors import PlanError
from specdyno.workload.logs import files, importing
from specdyno.workload.logs.importing import import_logs
from specdyno.workload.logs.scan import LONGEST_ROW, scan


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
