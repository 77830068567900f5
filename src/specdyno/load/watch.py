"""What a watcher of a running study is told: facts only, no text for people."""

from __future__ import annotations

from typing import Protocol

from specdyno.records.schema import RequestRecord, WindowKind


class Watcher(Protocol):
    """Gets each step of a study as it happens. Calls must return at once."""

    def block(self, index: int, blocks: int, order: tuple[str, ...]) -> None: ...

    def boot(self, arm: str, attempt: int) -> None: ...

    def ready(self, arm: str, seconds: float) -> None: ...

    def window(self, load: str, kind: WindowKind, class_name: str | None, planned: int) -> None: ...

    def row(self, row: RequestRecord) -> None: ...

    def boot_ended(self, arm: str, failure: str) -> None: ...

    def time_left(self, seconds: float | None, blocks_to_look: int) -> None: ...

    def note(self, text: str) -> None: ...


class Silent:
    """A watcher that shows nothing."""

    def block(self, index: int, blocks: int, order: tuple[str, ...]) -> None:
        pass

    def boot(self, arm: str, attempt: int) -> None:
        pass

    def ready(self, arm: str, seconds: float) -> None:
        pass

    def window(self, load: str, kind: WindowKind, class_name: str | None, planned: int) -> None:
        pass

    def row(self, row: RequestRecord) -> None:
        pass

    def boot_ended(self, arm: str, failure: str) -> None:
        pass

    def time_left(self, seconds: float | None, blocks_to_look: int) -> None:
        pass

    def note(self, text: str) -> None:
        pass
