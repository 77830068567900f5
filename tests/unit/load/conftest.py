"""An empty study, a scripted server per test, and how to reach it."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.load.scripted_server import Scripted

from specdyno.load.http import Client
from specdyno.load.window import Endpoint
from specdyno.plan.schema import Sampling
from specdyno.records.schema import StudyHeader
from specdyno.records.store import Store


@pytest.fixture
def store(tmp_path):
    header = StudyHeader(plan={}, plan_yaml="", plan_sha256="", created_unix_ns=0, provenance={})
    with Store.create(tmp_path / "study.sqlite", header) as opened:
        yield opened


@pytest.fixture
async def scripted():
    served = Scripted()
    server = await asyncio.start_server(served.handle, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield served
        await served.close()


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def place(scripted, client):
    def make(timeout_s: float = 5.0, secret: str = "") -> Endpoint:
        return Endpoint(scripted.url, "m", client, Sampling(temperature=0.0), timeout_s, secret)

    return make
