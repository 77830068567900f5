"""A person at the terminal: asked to start or stop an engine, and waited for."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from specdyno.errors import BlockedEngineError, PlanError, Problem
from specdyno.plan.schema import Engine

_CHUNK = 4096


def require_terminal(engine: Engine) -> None:
    """PlanError where a person is needed and no terminal is there to ask at."""
    if engine.external.human and not sys.stdin.isatty():
        remedy = "Run specdyno in a terminal, or write engine.external.start and stop"
        raise PlanError([Problem("engine.external.human", "there is no terminal to ask a person at", remedy)])


async def asked(text: str, tell: Callable[[str], None]) -> None:
    """Show what is to be done and wait for Enter. BlockedEngineError at the input's end."""
    tell(f"{text} Then press Enter.")
    descriptor = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    while True:
        readable = loop.create_future()
        loop.add_reader(descriptor, _once, readable)
        try:
            await readable
        finally:
            loop.remove_reader(descriptor)
        typed = os.read(descriptor, _CHUNK)
        if not typed:
            raise BlockedEngineError("nobody answered: the terminal was closed", remedy="Go on with --resume")
        if b"\n" in typed or b"\r" in typed:
            return


def _once(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
