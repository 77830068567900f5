"""Arms and adapters that the tests of all products use."""

from __future__ import annotations

from pathlib import Path

from specdyno.engine import server
from specdyno.engine.base import Adapter
from specdyno.plan.schema import NEEDS_DRAFT, Arm, Engine, Method, Role, Target
from specdyno.records.schema import CounterSample

DATA = Path(__file__).parents[2] / "data" / "engines"
BASELINE = Arm(name="baseline", role=Role.BASELINE)
EMPTY = CounterSample(0, "", ())
KEY = "sk-of-the-test"


def arm(method: Method | str, k: int = 3, draft: str | None = None, **options) -> Arm:
    """A candidate; a method that needs a draft has one, whether it is named or not."""
    if draft is None and method in NEEDS_DRAFT:
        draft = "org/draft"
    return Arm(name="c", role=Role.CANDIDATE, method=method, draft=draft, draft_tokens=k, options=options)


def adapter(kind: str, *, revision: str | None = None, **keys) -> Adapter:
    return server.adapter(Engine(kind=kind, **keys), Target(model="org/model", revision=revision))


def argv(made: Adapter, started: Arm = BASELINE, **keys) -> list[str]:
    return list(made.launch(started, 8123, **keys).argv)
