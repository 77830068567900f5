"""What `inspect` says of prompts: lengths and shares where they are known, and a prediction that is called one."""

from __future__ import annotations

import io
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console

from specdyno.errors import PlanError
from specdyno.report import workload_page
from specdyno.screens import workload as workload_screens
from specdyno.workload import classes
from specdyno.workload.logs.importing import import_logs
from specdyno.workload.logs.survey import Lengths, Surveyed, covered, survey

LOGS = Path(__file__).parents[2] / "data" / "logs"
SONG = "the old grey mare she ain't what she used to be many long years ago"


def prompts(folder: Path, *rows: Any, name: str = "mine.jsonl") -> str:
    (folder / name).write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return str(folder / name)


def only(source: str) -> Surveyed:
    (found,) = survey(source).classes
    return found


def shown(*sources: str, width: int = 240) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(workload_screens.inspected([survey(source) for source in sources]))
    return console.file.getvalue()


def test_words_that_repeat_the_prompt_are_counted_in_runs_of_four(tmp_path: Path) -> None:
    row = {
        "messages": [{"role": "user", "content": f"Sing: {SONG}"}],
        "answer": {"role": "assistant", "content": f"{SONG} and now four new words"},
    }
    found = only(prompts(tmp_path, row))
    # ain't is three words: 17 of 22 come from the prompt.
    assert found.from_prompt == pytest.approx(17 / 22)
    assert (found.from_answers, found.answers) == (None, 1)


def test_an_earlier_answer_counts_and_the_own_one_does_not(tmp_path: Path) -> None:
    rows = [{"prompt": f"question {n}", "answer": SONG} for n in range(4)]
    found = only(prompts(tmp_path, *rows))
    assert found.from_answers == pytest.approx(3 / 4)
    assert found.from_prompt == 0


@pytest.mark.parametrize(
    ("runs", "known", "words"),
    [
        ([1, 2, 3], set(), 0),
        ([1, 2, 3], {1, 2, 3}, 6),
        ([1, 2, 3, 4, 5, 6], {1, 6}, 8),
        ([1, 2, 3, 4, 5], {1, 5}, 8),
        ([], {1}, 0),
    ],
)
def test_overlapping_runs_count_each_word_once(runs: list[int], known: set[int], words: int) -> None:
    assert covered(runs, known) == words


def test_what_is_not_known_is_no_number(tmp_path: Path) -> None:
    found = only(prompts(tmp_path, {"prompt": "Once upon a time"}))
    assert (found.share, found.answer, found.from_prompt, found.from_answers) == (None, None, None, None)
    assert workload_screens.traffic(found)[2] == ""
    assert workload_screens.texts(found)[2:] == ("", "", "")
    assert " 0 %" not in shown(str(tmp_path / "mine.jsonl")).split("Lengths")[0]


def test_the_length_of_answers_is_taken_from_tokens_where_they_are_stated(tmp_path: Path) -> None:
    found = only(str(LOGS / "vllm.jsonl"))
    assert found.answer == Lengths(64, 64, 100, 2, "tokens")


@pytest.mark.parametrize("name", classes.BUILTIN)
def test_every_built_in_class_can_be_looked_at(name: str) -> None:
    if not Path(classes.__file__).with_name("builtin").joinpath(f"{name}.jsonl").exists():
        pytest.fail(f"{name} has no file")
    found = only(f"builtin:{name}")
    assert found.requests >= 80
    assert found.prompt is not None
    assert found.languages[0][0] == "en"


def test_an_import_is_shown_with_the_shares_of_the_whole_log(tmp_path: Path) -> None:
    rows = [
        {
            "messages": [{"role": "user", "content": f"How was day {n}?"}],
            "response": f"{SONG} {n}, which was a fine day.",
        }
        for n in range(30)
    ]
    rows += [{"messages": [{"role": "user", "content": f"Is it {n}?"}], "response": "Yes."} for n in range(10)]
    import_logs([Path(prompts(tmp_path, *rows, "broken"))], tmp_path / "out", kept=5)
    short, talk = survey(str(tmp_path / "out")).classes
    assert (talk.name, talk.requests, talk.kept, talk.share) == ("chat", 30, 5, 0.75)
    assert talk.answers == 5
    assert short.share == 0.25
    text = shown(str(tmp_path / "out"))
    assert "75.0 %" in text
    assert "is no JSON object" in text
    assert "prediction from text, not a measurement" in text


def test_sessions_are_looked_at_request_by_request(tmp_path: Path) -> None:
    turns = [
        {"messages": [{"role": "user", "content": SONG}], "recorded": {"role": "assistant", "content": SONG}},
        {
            "messages": [{"role": "user", "content": "and the same again"}],
            "recorded": {"role": "assistant", "content": SONG},
        },
    ]
    found = only(prompts(tmp_path, {"id": "a", "turns": turns}))
    assert (found.requests, found.kept) == (2, 1)
    assert found.from_prompt == 1
    assert found.turns == Lengths(2, 2, 2, 1, "turns")


def test_every_row_that_cannot_be_used_is_named_in_screen_and_page_and_the_others_go_on(tmp_path: Path) -> None:
    source = prompts(
        tmp_path, {"prompt": "a"}, {"prompt": ""}, {"foo": 1}, {"prompt": "b"}, {"prompt": ""}, {"prompt": "a"}
    )
    found = survey(source)
    assert found.classes[0].requests == 2
    assert found.skipped == (
        ("`prompt` is empty", (2, 5)),
        ("has none of: prompt, messages, turns, conversations, body", (3,)),
    )
    text = " ".join(shown(source).split())
    assert "2 `prompt` is empty lines 2, 5" in text
    assert "1 exact duplicate, each asked once only" in text
    assert "lines 2, 5" in workload_page.render([found])


@pytest.mark.parametrize("source", [*(f"builtin:{name}" for name in classes.BUILTIN), "builtin:agent"])
def test_nothing_is_cut_on_a_screen_of_80_columns(source: str) -> None:
    assert "…" not in shown(source, width=80)


@pytest.mark.parametrize("source", ["missing.jsonl", ".", "builtin:nothing"])
def test_what_cannot_be_looked_at_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlanError):
        survey(source)


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not any(name in ("src", "onclick", "onload") for name, _ in attrs)
        if tag not in ("meta", "link", "rect", "line", "circle", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "line", "circle", "path"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_is_whole_self_contained_and_holds_the_numbers(tmp_path: Path) -> None:
    rows = [{"prompt": f"question {n}", "answer": SONG, "output_tokens": 20 + n} for n in range(4)]
    page = workload_page.render([survey(prompts(tmp_path, *rows, name="<b>&x.jsonl")), survey("builtin:chat")])
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert "script" not in reader.seen
    assert "http" not in page.replace("http-equiv", "")
    text = " ".join(" ".join(reader.words).split())
    assert "20 / 21 / 23 tokens" in text
    assert "75 % in earlier answers" in text
    assert "<b>&" not in page
