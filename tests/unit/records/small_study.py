"""A small study to write, and records to put into it."""

from __future__ import annotations

from typing import Any

from specdyno.records.schema import Outcome, RequestRecord, StudyHeader, WindowKind
from specdyno.records.store import Store

HEADER = StudyHeader(
    plan={"study": "agent-pool", "seed": 1},
    plan_yaml="study: agent-pool\n",
    plan_sha256="ab" * 32,
    created_unix_ns=1_780_000_000_000_000_000,
    provenance={"specdyno": "0.1.0", "cores": 2},
)


def request(index: int, **changes: Any) -> RequestRecord:
    values = {
        "index": index,
        "prompt_id": f"prompt-{index}",
        "prompt_sha256": "cd" * 32,
        "class_name": "code",
        "intended_ns": 1000 * index,
        "sent_ns": 1000 * index,
        "outcome": Outcome.FINISHED,
        "last_byte_ns": 1000 * index + 900,
    }
    return RequestRecord(**{**values, **changes})


def begin_boot(store: Store, **changes: Any) -> int:
    values = {
        "block": 0,
        "arm": "baseline",
        "attempt": 0,
        "position": 0,
        "started_ns": 5,
        "started_unix_ns": 6,
    }
    return store.begin_boot(**{**values, **changes})


def begin_window(store: Store, boot_id: int, **changes: Any) -> int:
    values = {
        "load": "pool",
        "kind": WindowKind.MIXED,
        "class_name": None,
        "concurrency": 2,
        "planned": 3,
        "started_ns": 10,
    }
    return store.begin_window(boot_id, **{**values, **changes})
