"""Rows are stored in order, together where they ended together, and each for itself where one stands in the way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

from specdyno.load import writer as writers
from specdyno.load.writer import Writer
from specdyno.records.schema import Outcome, RequestRecord


def row(index: int) -> RequestRecord:
    return RequestRecord(index, f"p{index}", "", "code", 1, 1, Outcome.FINISHED)


class Kept:
    """What was kept, call by call; refuses every call that holds the row `refused`."""

    def __init__(self, refused: int | None = None) -> None:
        self.calls: list[list[int]] = []
        self.refused = refused

    def __call__(self, rows) -> None:
        indexes = [one.index for one in rows]
        if self.refused in indexes:
            raise OSError(28, "No space left on device")
        self.calls.append(indexes)

    @property
    def rows(self) -> list[int]:
        return [index for call in self.calls for index in call]


@asynccontextmanager
async def writing(kept: Kept, told: list[int] | None = None) -> AsyncIterator[Writer]:
    heard = told if told is not None else []
    with ThreadPoolExecutor(max_workers=1) as thread:
        writer = Writer(thread, keep=kept, told=lambda one: heard.append(one.index))
        yield writer
        await writer.drain()


async def test_rows_that_end_together_are_kept_together_and_in_order():
    kept, told = Kept(), []
    async with writing(kept, told) as writer:
        rows = [writer.write(partial(row, index)) for index in range(5)]
        assert [(await one).index for one in rows] == list(range(5))
    assert kept.calls == [[0, 1, 2, 3, 4]]
    assert told == list(range(5))


async def test_a_row_that_somebody_waits_for_is_kept_at_once_with_those_before_it(monkeypatch):
    monkeypatch.setattr("specdyno.load.writer._GATHER_S", 60.0)
    kept = Kept()
    async with writing(kept) as writer:
        writer.write(partial(row, 0))
        await asyncio.wait_for(writer.write(partial(row, 1), at_once=True), 5)
        assert kept.rows == [0, 1]


async def test_a_great_many_rows_are_kept_in_several_transactions():
    kept = Kept()
    async with writing(kept) as writer:
        for index in range(150):
            writer.write(partial(row, index))
    assert kept.rows == list(range(150))
    assert max(map(len, kept.calls)) <= 64


async def test_a_row_that_cannot_be_kept_takes_no_other_with_it():
    kept, told = Kept(refused=1), []
    async with writing(kept, told) as writer:
        rows = [writer.write(partial(row, index)) for index in range(3)]
        await asyncio.wait(rows)
    assert kept.rows == told == [0, 2]
    assert isinstance(writer.error, OSError)
    assert [one.exception() for one in rows] == [None, writer.error, None]


async def test_a_row_that_cannot_be_made_takes_no_other_with_it():
    def broken() -> RequestRecord:
        raise ValueError("a bug")

    kept = Kept()
    async with writing(kept) as writer:
        for make in (partial(row, 0), broken, partial(row, 2)):
            writer.write(make)
    assert kept.rows == [0, 2]
    assert str(writer.error) == "a bug"


async def test_rows_wait_while_the_loop_is_busy_but_not_for_ever(monkeypatch):
    monkeypatch.setattr("specdyno.load.writer._CALM_S", 0.0)
    kept = Kept()
    async with writing(kept) as writer:
        writer.write(partial(row, 0))
        began = time.monotonic()
        while not kept.rows and time.monotonic() < began + 10:
            time.sleep(0.02)  # noqa: ASYNC251 (the loop is kept busy on purpose)
            await asyncio.sleep(0.001)
        assert writers._LONGEST_S <= time.monotonic() - began < 5
