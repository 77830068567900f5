"""What screens are made of: titles, lines and tables of text that came from anywhere."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from specdyno.report import spelling
from specdyno.report.untrusted import sanitise
from specdyno.statistics.intervals import Estimate, Interval


def title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def line(text: str, style: str = "") -> Text:
    return Text(sanitise(text), style=style)


def table_of(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_header=any(columns))
    for column in columns:
        table.add_column(Text(column))
    for row in rows:
        table.add_row(*(line(cell) for cell in row))
    return table


def estimate(value: Estimate, decimals: int) -> str:
    if isinstance(value, Interval):
        return f"{value.estimate:.{decimals}f} [{value.low:.{decimals}f}, {value.high:.{decimals}f}]"
    return f"not measured ({value.reason})"


def number(value: float | None, decimals: int = 0) -> str:
    return "" if value is None else f"{value:,.{decimals}f}"


def share(value: float | None) -> str:
    return "" if value is None else spelling.share(value, 2)
