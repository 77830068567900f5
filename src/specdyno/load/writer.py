"""Rows made and stored beside the event loop: several at a time, in order, soon after their requests ended.

Owns when that happens. Requests often end together, and those that follow are sent at that moment: rows wait until the
loop is calm, and what has gathered by then is one transaction. Knows nothing of what a row holds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from specdyno.records.schema import RequestRecord

_GATHER_S = 0.02
_PAUSE_S = 0.005
_CALM_S = 0.003  # a timer that comes no later than this
_LONGEST_S = 0.1  # a row waits no longer for a calm moment
_TOGETHER = 64  # rows in one transaction

Make = Callable[[], RequestRecord]
_Promised = tuple[Make, asyncio.Future[RequestRecord]]


class Writer:
    """Rows on their way into the records. `error` is the first that kept one out, or that `told` raised.

    `keep` is called in the thread and takes all it is given or raises and takes none; `told` is called in the loop with
    each row that was kept.
    """

    def __init__(
        self,
        thread: ThreadPoolExecutor,
        *,
        keep: Callable[[Iterable[RequestRecord]], object],
        told: Callable[[RequestRecord], object],
    ) -> None:
        self.error: BaseException | None = None
        self._thread, self._keep, self._told = thread, keep, told
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Promised] = []
        self._storing: set[asyncio.Future[list[RequestRecord | Exception]]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def write(self, make: Make, *, at_once: bool = False) -> asyncio.Future[RequestRecord]:
        """The row that `make` makes, once it is stored. `at_once`: somebody waits for it."""
        row: asyncio.Future[RequestRecord] = self._loop.create_future()
        self._waiting.append((make, row))
        if at_once:
            self._hand_over()
        elif self._timer is None:
            self._look_in(_GATHER_S, time.monotonic() + _LONGEST_S)
        return row

    async def drain(self) -> None:
        """Until every row is stored."""
        self._hand_over()
        while self._storing:
            await asyncio.wait(self._storing)

    def _look_in(self, pause_s: float, latest: float) -> None:
        self._timer = self._loop.call_later(pause_s, self._look, time.monotonic() + pause_s, latest)

    def _look(self, due: float, latest: float) -> None:
        now = time.monotonic()
        if now - due > _CALM_S and now < latest:
            self._look_in(_PAUSE_S, latest)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), _TOGETHER):
            batch = waiting[start : start + _TOGETHER]
            # Each row is made while those before it are stored, which leaves the interpreter to the loop in between.
            storing = self._loop.run_in_executor(self._thread, _stored, self._keep, [make for make, _ in batch])
            self._storing.add(storing)
            storing.add_done_callback(partial(self._tell, batch))

    def _tell(self, batch: list[_Promised], storing: asyncio.Future[list[RequestRecord | Exception]]) -> None:
        self._storing.discard(storing)
        if storing.cancelled():
            return
        for (_, promised), row in zip(batch, storing.result(), strict=True):
            if isinstance(row, Exception):
                self.error = self.error or row
                if not promised.done():
                    promised.set_exception(row)
                    promised.exception()  # raised by the window: the loop need not log it
                continue
            if not promised.done():
                promised.set_result(row)
            try:
                self._told(row)
            except Exception as error:  # noqa: BLE001 (raised by the window: the event loop would only log it)
                self.error = self.error or error


def _stored(keep: Callable[[Iterable[RequestRecord]], object], makes: list[Make]) -> list[RequestRecord | Exception]:
    """The rows, all kept; where one stands in the way of the others, each for itself, an error in place of a row."""
    made: list[RequestRecord] = []

    def rows() -> Iterator[RequestRecord]:
        for make in makes:
            made.append(make())
            yield made[-1]

    try:
        keep(rows())
    except Exception:  # noqa: BLE001 (each row is tried again, and its own error kept)
        return [_stored_alone(keep, make) for make in makes]
    return list(made)


def _stored_alone(keep: Callable[[Iterable[RequestRecord]], object], make: Make) -> RequestRecord | Exception:
    try:
        row = make()
        keep((row,))
    except Exception as error:  # noqa: BLE001 (the window raises it)
        return error
    return row
