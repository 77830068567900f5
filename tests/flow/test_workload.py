"""`workload import` and `inspect` as a user runs them: exit codes, one clear message, folders whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import yaml
from tests.flow.command_line import plan, specdyno, write_plan

SAID = "It was a fine day: we swam in the morning, and in the evening there was music at the harbour."
LOGS = Path(__file__).parents[1] / "data" / "logs"


def test_logs_of_all_kinds_are_told_with_what_was_not_used(tmp_path: Path) -> None:
    ended = specdyno("workload", "import", *sorted(LOGS.iterdir()), "--out", "traffic", "--redact", cwd=tmp_path)
    assert ended.code == 0
    assert "14 requests in 22 rows" in ended.text
    assert "failed when it was logged" in ended.text
    assert "litellm.jsonl:2" in ended.text


def test_a_piece_of_a_plan_out_of_a_log_passes_check(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": f"How was day {n}?"}], "response": SAID} for n in range(60)]
    rows += [{"messages": [{"role": "user", "content": f"Is it day {n}?"}], "response": "Yes."} for n in range(60)]
    (tmp_path / "log.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    specdyno("workload", "import", "log.jsonl", "--out", "traffic", cwd=tmp_path)
    piece = yaml.safe_load((tmp_path / "traffic" / "workload.yaml").read_text())
    checked = specdyno("check", write_plan(tmp_path / "plan.yaml", {**plan(), **piece}), cwd=tmp_path)
    assert checked.code == 0
    assert "traffic/chat.jsonl" in checked.text
    assert "traffic/acknowledgement.jsonl" in checked.text


def test_inspect_shows_and_draws_an_import_and_a_built_in_class(tmp_path: Path) -> None:
    specdyno("workload", "import", LOGS / "chat.jsonl", "--out", tmp_path / "traffic")
    ended = specdyno("workload", "inspect", tmp_path / "traffic", "builtin:chat", "--out", tmp_path / "page.html")
    assert ended.code == 0
    assert "builtin:chat" in ended.text
    assert "not a measurement" in ended.text
    assert "<svg" in (tmp_path / "page.html").read_text()


def test_a_log_of_no_use_ends_with_2_and_one_message(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "strange.jsonl").write_bytes(b'{"a": 1}\n')
    for name, seen in (("empty.jsonl", "is empty"), ("strange.jsonl", "line 1, has the shape of no known log")):
        ended = specdyno("workload", "import", tmp_path / name, "--out", tmp_path / "traffic")
        assert ended.code == 2
        assert name in ended.text
        assert seen in ended.text
    assert not (tmp_path / "traffic").exists()


def test_a_folder_in_use_and_one_that_is_no_import_end_with_2(tmp_path: Path) -> None:
    shutil.copy(LOGS / "chat.jsonl", tmp_path / "mine.jsonl")
    ended = specdyno("workload", "import", LOGS / "chat.jsonl", "--out", tmp_path)
    assert (ended.code, "holds something already" in ended.text) == (2, True)
    ended = specdyno("workload", "inspect", tmp_path)
    assert (ended.code, "import.json" in ended.text) == (2, True)
    assert orjson.loads((tmp_path / "mine.jsonl").read_bytes().splitlines()[1])
