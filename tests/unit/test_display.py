"""Live progress: the same facts as a panel on a terminal and as plain lines elsewhere, harmless whatever it is told."""

from __future__ import annotations

import io
from typing import get_type_hints

import pytest
from rich.console import Console

from specdyno import display
from specdyno.display import Progress
from specdyno.load.watch import Silent, Watcher
from specdyno.records.schema import Outcome, RequestRecord, WindowKind


def row(tokens: int | None = 10, class_name: str = "code") -> RequestRecord:
    return RequestRecord(0, "p", "00", class_name, 0, 0, Outcome.FINISHED, completion_tokens=tokens)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved."""
    now = [1000.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    return now


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=200, legacy_windows=False, color_system=None)


def walk(progress: Progress, clock: list[float]) -> None:
    progress.block(0, 4, ("baseline", "eagle3-k3"))
    progress.boot("eagle3-k3", 1)
    progress.ready("eagle3-k3", 3.21)
    progress.time_left(90.0, 4)
    clock[0] += 30
    progress.window("pool", WindowKind.CLASS, "code", 12)
    for _ in range(3):
        clock[0] += 0.5
        progress.row(row())


def test_plain_lines_tell_each_step_once(clock):
    out = console(terminal=False)
    with Progress(out) as progress:
        walk(progress, clock)
        progress.boot_ended("eagle3-k3", "")
        progress.boot_ended("eagle3-k3", "it fell over")
        progress.note("a note")
    assert out.file.getvalue().splitlines() == [
        "block 1 of 4 to the next look: baseline → eagle3-k3",
        "· eagle3-k3: starting (second try)",
        "· eagle3-k3: ready after 3.2 s",
        "· eagle3-k3: measuring pool, code alone, 12 requests, about 1:00 left to the next look",
        "· eagle3-k3: failed: it fell over",
        "a note",
    ]


def test_an_estimate_that_has_run_out_promises_nothing(clock):
    out = console(terminal=False)
    progress = Progress(out)
    progress.time_left(90.0, 4)
    clock[0] += 91
    progress.window("pool", WindowKind.MIXED, None, 12)
    assert out.file.getvalue() == "· measuring pool, 12 requests, later than estimated\n"


def test_the_panel_shows_where_the_study_is_and_how_fast(clock):
    out = console(terminal=True)
    progress = Progress(out)
    walk(progress, clock)
    shown = console(terminal=False)
    shown.print(progress._panel())
    text = shown.file.getvalue()
    for word in ("block 1/4", "eagle3-k3", "measuring pool, code alone", "3/12", "20 tok/s", "0:32 so far, about 0:58"):
        assert word in text, word


def test_the_live_panel_ends_with_its_context(clock):
    with Progress(console(terminal=True)) as progress:
        assert progress._live.is_started
    assert not progress._live.is_started


def test_a_rate_needs_two_answers_and_forgets_old_ones(clock):
    progress = Progress(console(terminal=False))
    progress.row(row())
    assert progress._rate() == ""
    clock[0] += 1
    progress.row(row(30))
    assert progress._rate() == "30 tok/s"
    clock[0] += 60
    progress.row(row(5))
    assert progress._rate() == ""
    clock[0] += 2
    progress.row(row(None))
    assert progress._rate() == "0 tok/s"


def test_a_new_boot_starts_its_own_count(clock):
    progress = Progress(console(terminal=False))
    walk(progress, clock)
    progress.boot("baseline", 0)
    assert (progress._rows, progress._planned, progress._rate()) == (0, 0, "")


def test_what_an_engine_says_cannot_move_the_cursor_or_mark_up(clock):
    out = console(terminal=False)
    progress = Progress(out)
    progress.boot_ended("x\x1b[2J", "\x1b]0;owned\x07[red]bad[/red]\u202e")
    progress.note("[link=http://x]y[/link]")
    text = out.file.getvalue()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]bad[/red]" in text
    assert "[link=http://x]y[/link]" in text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (61, "1:01"), (3661, "1:01:01")])
def test_time_is_shown_as_a_clock(seconds, text):
    assert display._clock(seconds) == text


@pytest.mark.parametrize("made", [Silent, lambda: Progress(console(terminal=False))], ids=["silent", "progress"])
def test_every_watcher_takes_every_call(made, clock):
    watcher: Watcher = made()
    walk(watcher, clock)
    watcher.time_left(None, 0)
    watcher.window("one", WindowKind.WARM_UP, None, 1)
    watcher.window("one", WindowKind.MIXED, None, 1)
    watcher.boot_ended("a", "b")
    watcher.note("c")
    calls = {name for name in vars(Watcher) if not name.startswith("_")}
    assert calls == {name for name in vars(Silent) if not name.startswith("_")}
    assert all(get_type_hints(getattr(Silent, name)) == get_type_hints(getattr(Watcher, name)) for name in calls)
