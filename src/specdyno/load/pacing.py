"""When the requests of a window are sent: the closed loop and the open one.

Owns the pace only. What is sent, stamped and kept is the desk's (`load.window`).
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Protocol

from specdyno.records.schema import Outcome

_REFUSED_PAUSE_S = 0.5  # where nothing listens: time for the engine's death to be noticed before the next is sent
_DESCRIPTORS = 65_536


class Sender(Protocol):
    """Sends the job at a place of the window's list and keeps its row; None where the window has stopped."""

    def stopped(self) -> bool: ...

    async def send(self, index: int, *, intended_ns: int | None = None) -> Outcome | None: ...


async def closed_loop(sender: Sender, count: int, *, concurrency: int) -> None:
    """Every job once, in order, `concurrency` at a time; the next waits for an answer."""
    queue = iter(range(count))

    async def client() -> None:
        for index in queue:
            if sender.stopped():
                return
            if await sender.send(index) is Outcome.REFUSED:
                await asyncio.sleep(_REFUSED_PAUSE_S)

    await together([client() for _ in range(min(concurrency, count))])


async def on_schedule(sender: Sender, offsets_ns: Sequence[int]) -> None:
    """Every job at its intended time, whatever is still in flight; a send that comes late is still sent.

    Returns when all are answered. Once the window has stopped, the rest of the list is not sent.
    """
    allow_connections()
    flying: set[asyncio.Future[Outcome | None]] = set()
    errors: list[BaseException] = []

    def ended(task: asyncio.Future[Outcome | None]) -> None:
        flying.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            errors.append(error)

    began_ns = time.monotonic_ns()
    try:
        for index, offset_ns in enumerate(offsets_ns):
            await wait_until(began_ns + offset_ns)
            if sender.stopped() or errors:
                break
            task = asyncio.ensure_future(sender.send(index, intended_ns=began_ns + offset_ns))
            flying.add(task)
            task.add_done_callback(ended)
        while flying and not errors:
            await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancelled(flying)
    if errors:
        raise errors[0]


async def together(parts: Iterable[Awaitable[Any]]) -> None:
    """All parts to their end; where one raises, the others are cancelled and the error is passed on."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        await _cancelled(tasks)


def allow_connections() -> None:
    """As many open sockets as this process may have: a closed loop knows how many it needs, an open one does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def wait_until(moment_ns: int) -> None:
    """Never too early. The loop's timers tick in milliseconds: the last part is waited for by giving way to others."""
    while (left_ns := moment_ns - time.monotonic_ns()) > 0:  # noqa: ASYNC110 - a moment is waited for, no event
        await asyncio.sleep(left_ns / 1e9)


async def _cancelled(tasks: Iterable[asyncio.Future[Any]]) -> None:
    left = list(tasks)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
