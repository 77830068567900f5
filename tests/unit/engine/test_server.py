"""A running engine: chosen, waited for, asked, scraped and stopped; what it repeats of the key shows nowhere."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from tests.unit.engine.arms import BASELINE, KEY

from specdyno.engine import process, server
from specdyno.engine.llamacpp import LlamaCppAdapter
from specdyno.engine.server import Server
from specdyno.engine.sglang import SglangAdapter
from specdyno.engine.trtllm import TrtllmAdapter
from specdyno.engine.vllm import VllmAdapter
from specdyno.errors import EngineError
from specdyno.load.boot import session_for
from specdyno.plan.schema import Arm, Engine, Role, Target

EAGLE = Arm(name="eagle3-k2", role=Role.CANDIDATE, method="eagle3", draft="d", draft_tokens=2)


def simulated(*, key: bool = False, **args) -> Engine:
    return Engine(kind="simulated", args={"time-scale": 0.01, **args}, api_key_env="MY_KEY" if key else None)


def arm(base: Arm, *faults: str) -> Arm:
    return base.model_copy(update={"options": {"fault": list(faults), "truth": {"ready_delay_s": 0.0}}})


@pytest.fixture
async def begin(tmp_path):
    """Starts simulated engines and stops them at the end."""
    begun = []

    async def start(engine: Engine, started: Arm = BASELINE) -> Server:
        session = session_for(engine)
        begun.append((session, None))
        made = server.adapter(engine, Target(model="sim/model"))
        running = await server.begin(made, started, log_path=tmp_path / "a.log", session=session, boot_seed=5)
        begun[-1] = (session, running)
        return running

    yield start
    for session, running in begun:
        if running is not None:
            await running.stop()
        await session.close()


@pytest.fixture
async def foreign():
    """A server of somebody else's: answers each path with a given value."""
    runners = []

    async def serve(pages: dict[str, object], status: int = 200) -> str:
        async def answer(request: web.Request) -> web.Response:
            if request.path not in pages:
                return web.Response(status=404)
            page = pages[request.path]
            return web.Response(status=status, text=page if isinstance(page, str) else json.dumps(page))

        app = web.Application()
        app.router.add_get("/{tail:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield serve
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def session():
    async with session_for(Engine(kind="vllm")) as opened:
        yield opened


async def test_an_engine_is_ready_tells_who_it_is_and_counts(begin):
    running = await begin(simulated(), arm(EAGLE))
    await server.wait_ready(running, 20)
    assert await running.healthy()
    identity = await running.identity()
    assert (identity.speculation, identity.method, identity.draft_tokens) == (True, "eagle3", 2)
    assert await running.served_model("fallback") == "sim/model"
    sample, raw = await running.counters()
    assert sample.series
    assert not sample.problems
    assert "vllm:generation_tokens_total" in raw
    await running.stop()
    assert process.port_is_free(running.process.launch.port)
    assert not await running.healthy()
    assert await running.served_model("fallback") == "fallback"


async def test_counters_that_do_not_answer_are_a_problem_not_a_zero(begin):
    running = await begin(simulated(), arm(BASELINE, "no_metrics"))
    await server.wait_ready(running, 20)
    sample, raw = await running.counters()
    assert (sample.series, raw) == ((), "")
    assert sample.problems == ("/metrics gave no text",)


async def test_an_engine_that_refuses_to_boot_shows_its_last_words(begin):
    running = await begin(simulated(), arm(EAGLE, "refuse_boot:1"))
    with pytest.raises(EngineError) as caught:
        await server.wait_ready(running, 20)
    assert "ended with code 1 before it was ready" in str(caught.value)
    assert "does not appear to have a file named config.json" in caught.value.log_tail
    assert caught.value.log_path.endswith("a.log")
    assert caught.value.remedy


async def test_an_engine_that_is_never_ready_is_given_up(begin):
    running = await begin(simulated(), arm(BASELINE, "boot_hang"))
    with pytest.raises(EngineError, match="not ready within 1 s") as caught:
        await server.wait_ready(running, 1)
    assert "ready_timeout" in caught.value.remedy


async def test_the_engine_requires_the_key_and_no_word_of_it_is_kept(begin, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    running = await begin(simulated(key=True), arm(BASELINE, "log_secrets"))
    await server.wait_ready(running, 20)
    assert await running.served_model("fallback") == "sim/model"
    async with session_for(Engine(kind="vllm")) as keyless:
        stranger = Server(running.base_url, running.adapter, keyless)
        assert await stranger.served_model("refused") == "refused"
    assert KEY in running.process.log_path.read_text()
    failure = server.failed(running, f"saw {KEY}", remedy=f"unset {KEY}")
    assert "Bearer [API key]" in failure.log_tail
    assert KEY not in f"{failure} {failure.remedy} {failure.log_tail}"
    await running.stop()
    assert KEY not in running.process.log_path.read_text()
    assert "Bearer [API key]" in running.process.log_path.read_text()


async def test_a_stated_port_is_used(begin):
    port = process.free_port()
    running = await begin(simulated(port=port))
    assert running.base_url == f"http://127.0.0.1:{port}"
    assert "--port" in running.process.launch.argv
    assert running.process.launch.argv.count("--port") == 1


MODELS = {"data": [{"id": "served"}]}


async def test_a_foreign_server_is_told_apart_by_what_it_answers(foreign, session):
    engine = Engine(kind="vllm")
    llama = await server.attach(await foreign({"/v1/models": MODELS, "/props": {"total_slots": 2}}), engine, session)
    assert isinstance(llama.adapter, LlamaCppAdapter)
    other = await server.attach(await foreign({"/v1/models": MODELS}), engine, session)
    assert isinstance(other.adapter, VllmAdapter)
    assert other.process is None
    sglang = await server.attach(
        await foreign({"/v1/models": MODELS, "/server_info": {"model_path": "m"}}), engine, session
    )
    assert isinstance(sglang.adapter, SglangAdapter)
    pages = {"/v1/models": MODELS, "/prometheus/metrics": "trtllm_generation_tokens_total 1"}
    trtllm = await server.attach(await foreign(pages), engine, session)
    assert isinstance(trtllm.adapter, TrtllmAdapter)
    await other.stop()
    assert (await other.identity()).model == "served"


@pytest.mark.parametrize("page", ["<html>a gateway</html>", "[]", "7", '"text"', '{"data": {}}', '{"data": ["x"]}'])
async def test_a_gateway_that_answers_everything_with_something_else_is_survived(foreign, session, page):
    paths = ["/v1/models", "/props", "/slots", "/version", "/server_info", "/metrics"]
    running = await server.attach(await foreign(dict.fromkeys(paths, page)), Engine(kind="vllm"), session)
    assert (await running.identity()).model is None
    assert await running.served_model("fallback") == "fallback"
    await running.counters()


@pytest.mark.parametrize(("status", "word"), [(401, "--api-key-env"), (403, "--api-key-env"), (500, "address")])
async def test_a_server_that_refuses_is_told_with_what_to_do(foreign, session, status, word):
    url = await foreign({"/v1/models": MODELS}, status)
    with pytest.raises(EngineError, match=str(status)) as caught:
        await server.attach(url, Engine(kind="vllm"), session)
    assert word in caught.value.remedy


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "no address", "ftp://127.0.0.1"])
async def test_where_nothing_answers_the_address_is_to_be_checked(session, url):
    with pytest.raises(EngineError, match="no server answers") as caught:
        await server.attach(url, Engine(kind="vllm"), session)
    assert "--base-url" in caught.value.remedy
