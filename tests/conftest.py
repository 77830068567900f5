"""What holds for every test: no example has a deadline, and where several workers run, what is measured runs alone."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from hypothesis import HealthCheck, settings

# Nothing is ever asserted about time.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

_TOGETHER = ("engine", "flow", "browser")  # folders whose files share engines or costly studies: one worker's each


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give a worker whole files, and whole folders where files share what is costly to make."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 (only where there are workers)

    class ByFolder(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return next((name for name in _TOGETHER if file.startswith(f"tests/{name}/")), file)

    return ByFolder(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Hold the machine: alone from a worker's first test that measures to its last, else beside other workers."""
    if (machine := item.config.stash.get(_MACHINE, None)) is None:
        return (yield)
    alone = _measures(item)
    machine.take(alone=alone)
    try:
        return (yield)
    finally:
        if not alone:
            machine.leave()


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.stash[_MACHINE] = machine = _Machine()
        config.add_cleanup(machine.close)


def _measures(item: pytest.Item) -> bool:
    """Whether other work would disturb a test: it boots an engine, or runs whole studies."""
    return item.nodeid.startswith(("tests/engine/", "tests/flow/"))


class _Machine:
    """A lock that a user's workers share, of all runs: many may hold it together, or one alone."""

    def __init__(self) -> None:
        self._gate, self._lock = self._opened("gate"), self._opened("lock")
        self._alone = False

    def close(self) -> None:
        self._gate.close()
        self._lock.close()

    @staticmethod
    def _opened(name: str) -> IO[bytes]:
        return (Path(tempfile.gettempdir()) / f"specdyno-tests-{os.getuid()}-{name}").open("wb")

    def take(self, *, alone: bool) -> None:
        if alone and self._alone:
            return
        self.leave()
        # Who waits to be alone closes the gate, so that the others cannot keep passing the lock among them.
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        fcntl.flock(self._lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        self._alone = alone

    def leave(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._alone = False


_MACHINE = pytest.StashKey[_Machine]()
