"""Whether a study's load is sent by this process alone or by workers, decided in a warm-up and kept for the study.

Once one boot needed workers, all scored windows after it have them: arms measured by different clients could not be
compared.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Self

import psutil

from specdyno.load.window import Endpoint
from specdyno.load.workers import Workers, wanted


@dataclass(slots=True)
class Crew:
    """Enter it for the length of a boot: its workers end with it."""

    cores: int = field(default_factory=lambda: psutil.cpu_count() or 1)
    count: int = 0  # workers that this study needs, as far as it is known
    _workers: Workers | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._workers is not None:
            await self._workers.stop()
            self._workers = None

    def cpu_s(self) -> float:
        """CPU seconds that the workers have used: this client's, nobody else's."""
        total = 0.0
        for pid in self._workers.pids if self._workers is not None else ():
            with suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                total += times.user + times.system
        return total

    async def fitted(self, endpoint: Endpoint, seen: tuple[int, float], *, tell: Callable[[str], None]) -> Endpoint:
        """The endpoint with workers where `seen`, largest lag (ns) and CPU share of a warm-up, asks for them."""
        lag_ns, busy = seen
        if not self.count and (count := wanted(lag_ns, busy, self.cores)):
            self.count = count
            tell(
                f"one process is not enough to send this load ({lag_ns / 1e6:.0f} ms late, {busy:.0%} of a core): "
                f"{count} worker processes send it from here on"
            )
        if not self.count or self._workers is not None:
            return endpoint
        client = endpoint.client
        self._workers = await Workers.start(self.count, client.headers, client.ca_file)
        return replace(endpoint, workers=self._workers)
