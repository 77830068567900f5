"""`measure` on a server of known truth: acceptance by position, what it claims, what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from tests.flow.command_line import QUIET, environment, records, specdyno, until

from specdyno.engine.process import free_port

SPECULATIVE = json.dumps({"method": "eagle3", "model": "sim/draft", "num_speculative_tokens": 3})
ACCEPTANCE = (0.8, 0.6, 0.5)  # conditional


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a simulated server that somebody else runs; its address."""
    running: list[subprocess.Popen] = []

    def start(*flags: str, **truth: object) -> str:
        port = free_port()
        command = [sys.executable, "-m", "specdyno.engine.simulated", "--model", "sim/served", "--port", str(port)]
        command += ["--time-scale", "0.02", "--boot-seed", "5", "--truth", json.dumps({**QUIET, **truth}), *flags]
        with (tmp_path / f"server-{port}.log").open("wb") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment()))
        until(lambda: _healthy(port), meanwhile=running[-1])
        return f"http://127.0.0.1:{port}"

    yield start
    for process in running:
        process.kill()
        process.wait()


def _healthy(port: int) -> bool:
    with suppress(URLError, ConnectionError), urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
        return answer.status == 200
    return False


@pytest.mark.parametrize("detail", ["none", "detailed"])
def test_measure_finds_the_known_acceptance_by_position_and_says_that_it_is_no_verdict(
    serve: Callable[..., str], tmp_path: Path, detail: str
) -> None:
    flags = ["--speculative-config", SPECULATIVE, "--per-request-spec-decode-metrics", detail]
    url = serve(*flags, acceptance=list(ACCEPTANCE), output_tokens=64)
    words = ["--num-prompts", 60, "--max-concurrency", 8, "--max-tokens", 256]
    ended = specdyno("measure", "--base-url", url, *words, "--out", tmp_path / "kept")
    assert ended.code == 0, ended
    assert "method eagle3, K 3" in ended.text
    assert "no verdict" in ended.text
    found = {line.split()[0]: numbers_with_interval(line) for line in ended.out.splitlines() if " [" in line}
    assert set(found) == ({"all"} if detail == "none" else {"all", "code", "chat"})
    joint = [0.8, 0.8 * 0.6, 0.8 * 0.6 * 0.5]
    for length, *_, q1, q2, q3 in found.values():
        # A draft at the very end of a text is trimmed, which takes a little off the deeper positions.
        assert [q1, q2, q3] == pytest.approx(joint, abs=0.06)
        assert length == pytest.approx(1 + sum(joint), abs=0.12)
    assert len(records(tmp_path / "kept").requests) >= 60


def numbers_with_interval(line: str) -> list[float]:
    return [float(number) for number in re.findall(r"([\d.]+) \[", line)]


def test_measure_learns_k_from_the_counters_of_a_server_that_does_not_describe_itself(
    serve: Callable[..., str],
) -> None:
    engine = serve("--speculative-config", SPECULATIVE, acceptance=list(ACCEPTANCE), output_tokens=64)
    with silent_about_itself(engine) as url:
        ended = specdyno("measure", "--base-url", url, "--num-prompts", 40, "--max-concurrency", 8)
    assert ended.code == 0, ended
    assert "method not reported, K 3" in ended.text
    overall = next(line for line in ended.out.splitlines() if line.startswith("all "))
    assert numbers_with_interval(overall)[0] == pytest.approx(2.52, abs=0.12), "not cut at a wrong K"


@contextmanager
def silent_about_itself(engine: str) -> Iterator[str]:
    """A relay that hides `/server_info` and `/version`, as a server outside its development mode does."""

    class Relay(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, body: bytes | None) -> None:
            if self.path.startswith(("/server_info", "/version")):
                self.send_error(404)
                return
            request = Request(engine + self.path, data=body, headers={"Content-Type": "application/json"})
            try:
                with urlopen(request, timeout=60) as answer:
                    content, kind, status = answer.read(), answer.headers["Content-Type"], answer.status
            except HTTPError as error:
                content, kind, status = error.read(), "text/plain", error.code
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Relay) as relay:
        Thread(target=relay.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{relay.server_port}"
        relay.shutdown()


def test_measure_of_a_server_without_speculation_claims_no_acceptance(serve: Callable[..., str]) -> None:
    ended = specdyno("measure", "--base-url", serve() + "/v1/", "--num-prompts", 8)
    assert ended.code == 0, ended
    assert "not measured (nothing was drafted)" in ended.text
    assert "no verdict" in ended.text


def test_measure_names_a_missing_key_and_never_shows_the_one_it_is_given(serve: Callable[..., str]) -> None:
    key = "sk-measure-77aa"
    url = serve("--api-key", key)
    refused = specdyno("measure", "--base-url", url)
    assert refused.code == 3
    assert "--api-key-env" in refused.text
    wrong = specdyno("measure", "--base-url", url, "--api-key-env", "K", env={"K": "sk-wrong-000"})
    assert wrong.code == 3
    unset = specdyno("measure", "--base-url", url, "--api-key-env", "NO_SUCH_KEY")
    assert unset.code in (2, 3)
    right = specdyno("measure", "--base-url", url, "--api-key-env", "K", "--num-prompts", 4, env={"K": key})
    assert right.code == 0, right
    for ended in (refused, wrong, right):
        assert key not in ended.text
        assert "sk-wrong" not in ended.text


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{port}", "127.0.0.1:{port}", "http://no.such.host.invalid", "nonsense"]
)
def test_measure_of_nothing_says_what_to_check(url: str) -> None:
    ended = specdyno("measure", "--base-url", url.format(port=free_port()))
    assert ended.code == 3
    assert "--base-url" in ended.text


def test_measure_of_a_server_that_is_no_engine_is_refused() -> None:
    class Website(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>welcome</html>")

        def log_message(self, *_words: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Website) as website:
        Thread(target=website.serve_forever, daemon=True).start()
        ended = specdyno("measure", "--base-url", f"http://127.0.0.1:{website.server_port}")
        website.shutdown()
    assert ended.code in (2, 3), ended


def test_measure_of_a_server_that_refuses_every_request_ends_with_its_answer(serve: Callable[..., str]) -> None:
    ended = specdyno("measure", "--base-url", serve("--fault", "http_500"), "--num-prompts", 4)
    assert ended.code == 3
    assert "http_error" in ended.text


def test_measure_refuses_prompts_it_cannot_use(serve: Callable[..., str], tmp_path: Path) -> None:
    url = serve()
    ended = specdyno("measure", "--base-url", url, "--prompts", tmp_path / "none.jsonl")
    assert ended.code == 2
    assert "none.jsonl" in ended.text
    many = specdyno("measure", "--base-url", url, "--num-prompts", 100_000)
    assert many.code == 2
    assert "prompts" in many.text


def test_measure_does_not_overwrite_what_is_kept(serve: Callable[..., str], tmp_path: Path) -> None:
    words = ["measure", "--base-url", serve(), "--num-prompts", 4, "--out", tmp_path / "kept"]
    assert specdyno(*words).code == 0
    before = len(records(tmp_path / "kept").requests)
    assert specdyno(*words).code == 4
    assert len(records(tmp_path / "kept").requests) == before


def test_measure_offers_a_rate_and_counts_what_met_the_service_level(serve: Callable[..., str], tmp_path: Path) -> None:
    url = serve(output_tokens=16)
    words = ["--num-prompts", 30, "--request-rate", 20, "--burstiness", 2, "--goodput", "ttft:60000 e2el:60000"]
    ended = specdyno("measure", "--base-url", url, *words, "--out", tmp_path / "kept")
    assert ended.code == 0, ended
    assert "Goodput:" in ended.text
    (window,) = [one for one in records(tmp_path / "kept").windows if one.kind == "mixed"]
    assert window.concurrency is None
    assert (window.arrival.rate, window.arrival.burstiness) == (20.0, 2.0)
    told = float(re.search(r"Goodput: ([0-9.]+) requests/s", ended.text)[1])
    assert told == pytest.approx(20, rel=0.5)


@pytest.mark.parametrize("written", ["ttft", "speed:3", "ttft:0", "tpot:nan", "ttft:x"])
def test_a_service_level_that_is_none_is_refused(written: str) -> None:
    ended = specdyno("measure", "--base-url", "http://127.0.0.1:9", "--goodput", written)
    assert ended.code == 2
    assert "is no limit" in ended.text
