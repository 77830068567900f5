"""Live progress of a running study in the terminal: block, arm, class, rate, time left.

Two forms of one thing: a redrawn panel on a terminal, plain lines elsewhere (logs, CI).
"""

from __future__ import annotations

import time
from collections import deque
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from specdyno.records.schema import RequestRecord, WindowKind
from specdyno.report.untrusted import sanitise

_RATE_OVER_S = 10.0


class Progress:
    """A `load.watch.Watcher` that shows what is going on. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._block, self._blocks = 0, 0
        self._order: tuple[str, ...] = ()
        self._arm, self._phase, self._class = "", "", ""
        self._rows, self._planned = 0, 0
        self._recent: deque[tuple[float, int]] = deque()
        self._left: float | None = None
        self._left_at = self._began
        self._live = Live(console=console, get_renderable=self._panel, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._live.is_started:
            self._live.stop()

    def block(self, index: int, blocks: int, order: tuple[str, ...]) -> None:
        self._block, self._blocks, self._order = index + 1, blocks, order
        self._line(f"block {index + 1} of {blocks} to the next look: {' → '.join(order)}")

    def boot(self, arm: str, attempt: int) -> None:
        self._arm, self._phase, self._class = arm, "starting the engine", ""
        self._rows = self._planned = 0
        self._recent.clear()
        again = " (second try)" if attempt else ""
        self._plain(f"· {arm}: starting{again}")

    def ready(self, arm: str, seconds: float) -> None:
        self._plain(f"· {arm}: ready after {seconds:.1f} s")

    def window(self, load: str, kind: WindowKind, class_name: str | None, planned: int) -> None:
        self._phase = f"{'warming up' if kind is WindowKind.WARM_UP else 'measuring'} {load}" + (
            f", {class_name} alone" if class_name else ""
        )
        self._rows, self._planned = 0, planned
        whose = f"{self._arm}: " if self._arm else ""
        self._plain(f"· {whose}{self._phase}, {planned} requests{self._left_words()}")

    def row(self, row: RequestRecord) -> None:
        self._rows += 1
        self._class = row.class_name
        now = time.monotonic()
        self._recent.append((now, row.completion_tokens or 0))
        while self._recent and now - self._recent[0][0] > _RATE_OVER_S:
            self._recent.popleft()

    def boot_ended(self, arm: str, failure: str) -> None:
        if failure:
            self._line(f"· {arm}: failed: {failure}", style="yellow")

    def time_left(self, seconds: float | None, blocks_to_look: int) -> None:
        del blocks_to_look
        self._left, self._left_at = seconds, time.monotonic()

    def note(self, text: str) -> None:
        self._line(text, style="yellow")

    def _plain(self, text: str) -> None:
        if not self._console.is_terminal:
            self._line(text)

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Text(sanitise(text), style=style))

    def _left_words(self) -> str:
        if self._left is None:
            return ""
        left = self._left - (time.monotonic() - self._left_at)
        return f", about {_clock(left)} left to the next look" if left > 0 else ", later than estimated"

    def _rate(self) -> str:
        if len(self._recent) < 2:
            return ""
        span = self._recent[-1][0] - self._recent[0][0]
        tokens = sum(count for _, count in list(self._recent)[1:])
        return f"{tokens / span:.0f} tok/s" if span > 0 else ""

    def _panel(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            Text(f"block {self._block}/{self._blocks}"),
            Text(sanitise(self._arm), style="bold"),
            Text(sanitise(self._phase)),
            ProgressBar(total=max(1, self._planned), completed=self._rows, width=20),
            Text(f"{self._rows}/{self._planned}"),
            Text(sanitise(self._class), style="dim"),
            Text(self._rate()),
            Text(f"{_clock(time.monotonic() - self._began)} so far{self._left_words()}", style="dim"),
        )
        return grid


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
