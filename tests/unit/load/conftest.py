"""A scripted server per test, and how to reach it."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.load.scripted_server import Scripted

from specdyno.load.http import Client
from specdyno.load.window import Endpoint
from specdyno.plan.schema import Sampling


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
