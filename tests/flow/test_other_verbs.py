"""The verbs that need no study: `measure` on a server of known truth, `init`, `check`, `read`, help and version."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
import yaml
from tests.flow.command_line import QUIET, environment, plain, plan, records, specdyno, until, write_plan

from specdyno import __version__
from specdyno.plan.schema import Plan

VERBS = ("demo", "init", "check", "run", "judge", "report", "export", "settings", "measure", "read")
SPECULATIVE = json.dumps({"method": "eagle3", "model": "sim/draft", "num_speculative_tokens": 3})
ACCEPTANCE = (0.8, 0.6, 0.5)  # conditional


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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


# ---- measure ---------------------------------------------------------------------------------------------------------


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


# ---- init, check -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["vllm", "llamacpp", "simulated"])
def test_what_init_writes_is_a_plan(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "plan.yaml"
    ended = specdyno("init", path, "--engine", engine)
    assert ended.code == 0, ended
    assert f"specdyno check {path}" in ended.text
    assert Plan.model_validate(yaml.safe_load(path.read_text()) | {}).engine.kind == engine
    assert path.read_text().count("#") > 10, "it is commented"


def test_init_and_check_go_together(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    words = ["--engine", "simulated", "--target", "sim/model", "--method", "eagle3", "--draft", "sim/draft"]
    assert specdyno("init", path, *words).code == 0
    checked = specdyno("check", path)
    assert checked.code == 0, checked
    for word in ("baseline", "eagle3", "sim/draft", "Schedule", "Time", "experiment.looks", "guards.tpot"):
        assert word in checked.text
    assert plain(checked.out)


def test_init_never_overwrites_unasked(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("mine")
    refused = specdyno("init", path)
    assert refused.code == 2
    assert "--force" in refused.text
    assert path.read_text() == "mine"
    assert specdyno("init", path, "--force").code == 0
    assert path.read_text() != "mine"


def test_check_boots_nothing_and_writes_nothing(tmp_path: Path) -> None:
    path = write_plan(tmp_path / "plan.yaml", plan(experiment={"looks": [2]}))
    ended = specdyno("check", path)
    assert ended.code == 0
    assert "fewer than four blocks never promote" in ended.text
    assert [one.name for one in tmp_path.iterdir()] == ["plan.yaml"]


# ---- read ------------------------------------------------------------------------------------------------------------

LOG_LINE = (
    "INFO 12-01 10:00:00 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.38, Accepted throughput: "
    "10.00 tokens/s, Drafted throughput: 21.75 tokens/s, Accepted: 100 tokens, Drafted: 217 tokens, "
    "Per-position acceptance rate: 0.700, 0.450, 0.230, Avg Draft acceptance rate: 46.1%\n"
)


def test_read_shows_what_a_log_says(tmp_path: Path) -> None:
    (tmp_path / "vllm.log").write_text(LOG_LINE)
    ended = specdyno("read", tmp_path / "vllm.log")
    assert ended.code == 0, ended
    assert "0.700" in ended.text
    assert "217" in ended.text


def test_read_of_two_scrapes_shows_what_happened_between_them(tmp_path: Path) -> None:
    for name, count in (("before", 0), ("after", 100)):
        (tmp_path / name).write_text(
            "# TYPE vllm:spec_decode_num_drafts counter\n"
            f"vllm:spec_decode_num_drafts_total {100 + count}\n"
            "# TYPE vllm:spec_decode_num_draft_tokens counter\n"
            f"vllm:spec_decode_num_draft_tokens_total {300 + 3 * count}\n"
            "# TYPE vllm:spec_decode_num_accepted_tokens counter\n"
            f"vllm:spec_decode_num_accepted_tokens_total {50 + 1.5 * count}\n"
        )
    ended = specdyno("read", tmp_path / "before", tmp_path / "after")
    assert ended.code == 0, ended
    assert "2.5" in ended.text, "1 + 150 / 100"


@pytest.mark.parametrize("content", [b"", b"\x00\xff\x1b[31m\x1b]0;title\x07", b"a diary", b"{", b"[[[[" * 1000])
def test_read_of_anything_else_says_so_and_shows_no_control_character(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd").write_bytes(content)
    ended = specdyno("read", tmp_path / "odd")
    assert ended.code in (0, 2)
    assert ended.text
    assert plain(ended.out + ended.err)


def test_read_of_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    ended = specdyno("read", tmp_path / "none.log")
    assert ended.code == 2
    assert "none.log" in ended.text


# ---- help ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str) -> None:
    ended = specdyno(verb, "--help")
    assert ended.code == 0
    assert verb in ended.text
    assert "Usage" in ended.text


def test_help_lists_every_verb_and_version_is_the_package_s() -> None:
    listed = specdyno("--help")
    assert listed.code == 0
    assert all(verb in listed.text for verb in VERBS)
    assert specdyno("--version").out.strip() == f"specdyno {__version__}"


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
