"""A log becomes a folder that the readers of plans take: classes, a piece of a plan, an honest account."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.workload.log_rows import LOGS, account_of, chat, jsonl, log, reasons

from specdyno.plan.schema import Plan
from specdyno.workload.logs.importing import import_logs
from specdyno.workload.sessions import load_sessions
from specdyno.workload.sources import load_pools


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
