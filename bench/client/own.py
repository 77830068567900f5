"""specdyno's own load side: a whole closed-loop window with its store, or (--bare) only its client.

python bench/client/own.py [--bare] PORT STREAMS REQUESTS EVENTS
"""

import asyncio
import gc
import json
import resource
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import uvloop

from specdyno.load.boot import client_for
from specdyno.load.client import RawExchange, exchange, record
from specdyno.load.pacing import together
from specdyno.load.window import Endpoint, Hooks, Job, WindowRun, run_window
from specdyno.plan.schema import Engine, EngineKind, Sampling
from specdyno.records import provenance
from specdyno.records.schema import BootStatus, RequestRecord, StudyHeader, WindowKind
from specdyno.records.store import Store
from specdyno.workload.prompts import Prompt

TIMEOUT_S = 120.0


def jobs(requests: int, events: int) -> list[Job]:
    return [
        Job(Prompt(f"p{i}", "bench", ({"role": "user", "content": "go"},), None, None, None, None, events, ""))
        for i in range(requests)
    ]


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def window(
    endpoint: Endpoint, asked: list[Job], streams: int, store: Store
) -> tuple[list[float], WindowRun, float]:
    boot = store.begin_boot(
        block=0, arm="bench", attempt=0, position=0, status=BootStatus.READY, started_ns=0, started_unix_ns=0
    )
    opened = store.begin_window(
        boot,
        load="bench",
        kind=WindowKind.MIXED,
        class_name=None,
        concurrency=streams,
        planned=len(asked),
        started_ns=0,
    )
    rows: list[RequestRecord] = []
    hooks = Hooks(partial(store.add_requests, opened), on_row=rows.append)
    before = cpu_s()
    run = await run_window(endpoint, asked, concurrency=streams, hooks=hooks)
    used = cpu_s() - before
    return [(row.chunk_ns[0] - row.sent_ns) / 1e6 for row in rows if row.chunk_ns], run, used


async def bare(endpoint: Endpoint, asked: list[Job], streams: int) -> tuple[list[float], float]:
    prepared, raws = [endpoint.prepare(job) for job in asked], list[RawExchange]()
    queue = iter(prepared)

    async def client() -> None:
        for url, body in queue:
            raws.append(await exchange(endpoint.client, url, body, timeout_s=TIMEOUT_S))

    before = cpu_s()
    await together([client() for _ in range(streams)])
    used = cpu_s() - before
    rows = [record(raw, asked[0].prompt, index=0, max_tokens=0, intended_ns=raw.sent_ns) for raw in raws]
    return [(row.chunk_ns[0] - row.sent_ns) / 1e6 for row in rows if row.chunk_ns], used


async def measured(port: int, streams: int, requests: int, events: int, *, only_client: bool) -> dict[str, object]:
    client = client_for(Engine(kind=EngineKind.VLLM))
    endpoint = Endpoint(f"http://127.0.0.1:{port}", "bench", client, Sampling(temperature=0.0), TIMEOUT_S)
    asked = jobs(requests, events)
    gc.disable()
    if only_client:
        ttfts, used = await bare(endpoint, asked, streams)
        return {"cpu_s": used, "ttft_ms": ttfts}
    with tempfile.TemporaryDirectory() as folder:
        header = StudyHeader({}, "", "", time.time_ns(), provenance.collect())
        with Store.create(Path(folder) / "study.sqlite", header) as store:
            ttfts, run, used = await window(endpoint, asked, streams, store)
    return {"cpu_s": used, "ttft_ms": ttfts, "lag_max_ms": run.lag_max_ns / 1e6, "done": run.done}


def main() -> None:
    only_client = sys.argv[1] == "--bare"
    port, streams, requests, events = map(int, sys.argv[1 + only_client :])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        print(json.dumps(loop.run(measured(port, streams, requests, events, only_client=only_client))))


if __name__ == "__main__":
    main()
