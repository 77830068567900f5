"""What the load side costs per streamed event, and how much later than true it stamps the first one.

    python bench/client/run.py [--streams 128] [--most 2048]
        [--vllm-python PATH --tokenizer DIR] [--guidellm PATH]

Every client asks the same server (`server.py`), which runs on one core and knows when it sent; the clients run on
another. CPU is that of the client: from first request to last row for the floor and for specdyno (parsing and storing
included), and while the server was being asked for the peers (their imports and their evaluation excluded). Rounds
alternate between the clients; medians are shown. A round in which the server itself was later than an interval (other
work on its core) is not counted where there are others: the last column says how many were.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import psutil

from specdyno.load.pacing import allow_connections

HERE = Path(__file__).parent
SLACK_S = 120.0
FIRST_MS = 100.0
KEPT_UP = 0.9
# As `vllm bench serve`, whose front door asks for a distribution named vllm, which its CPU build is not.
VLLM_BENCH = """
from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
serve.add_cli_args(parser)
serve.main(parser.parse_args())
"""
PEERS = ("vllm bench serve", "guidellm")


@dataclass(frozen=True)
class Asked:
    """One run: how many streams, requests, events per request, and how far apart."""

    streams: int
    requests: int
    events: int
    interval_ms: float

    @property
    def ideal_per_s(self) -> float:
        """Events per second where nobody is late: each request waits once for its first event."""
        return self.streams * self.events / (self.events * self.interval_ms + FIRST_MS) * 1000

    @property
    def limit_s(self) -> float:
        return self.requests / self.streams * self.events * self.interval_ms / 1000 + SLACK_S


@dataclass(frozen=True)
class Seen:
    """What a client did: microseconds per event, its error of the median TTFT, and events per second carried."""

    cpu_us: float
    ttft_error_ms: float
    events_per_s: float
    late_p99_ms: float  # of the server: where it is large, the server is what is measured


class UnusableError(Exception):
    """Why a client has no figures."""


Client = Callable[[int, Asked], tuple[float | None, float]]  # port -> CPU seconds (None: polled), median TTFT in ms


def pinned(core: int, command: list[str], **options: Any) -> subprocess.Popen[str]:
    there = sorted(os.sched_getaffinity(0))
    process = subprocess.Popen(command, text=True, **options)
    os.sched_setaffinity(process.pid, {there[core % len(there)]})
    return process


@contextmanager
def served(interval_ms: float) -> Iterator[int]:
    command = [sys.executable, str(HERE / "server.py"), "--interval-ms", str(interval_ms), "--first-ms", str(FIRST_MS)]
    server = pinned(0, command, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.wait()


def truth(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/truth", timeout=30) as answer:
        facts: dict[str, Any] = json.load(answer)
    return facts


def script(name: str, *options: str) -> Client:
    """A client of this folder, which reports its own CPU seconds."""

    def ask(port: int, asked: Asked) -> tuple[float | None, float]:
        numbers = map(str, (port, asked.streams, asked.requests, asked.events))
        command = [sys.executable, str(HERE / name), *options, *numbers]
        said = json.loads(finished(pinned(1, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE), asked.limit_s))
        if len(said["ttft_ms"]) != asked.requests:
            raise UnusableError(f"{len(said['ttft_ms'])} of {asked.requests} requests were answered")
        return said["cpu_s"], statistics.median(said["ttft_ms"])

    return ask


def finished(process: subprocess.Popen[str], limit_s: float) -> str:
    try:
        out, error = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise UnusableError(f"not done within {limit_s:.0f} s") from None
    if process.returncode:
        raise UnusableError((error or out or "").strip().splitlines()[-1:][0] if error or out else "failed")
    return out or ""


def vllm_bench(python: str, tokenizer: str) -> Client:
    def ask(port: int, asked: Asked) -> tuple[float | None, float]:
        with tempfile.TemporaryDirectory() as folder:
            prompts = Path(folder) / "prompts.jsonl"
            prompts.write_text('{"prompt": "go"}\n' * asked.requests)
            command = [
                python, "-c", VLLM_BENCH, "--backend", "openai-chat",
                "--endpoint", "/v1/chat/completions", "--base-url", f"http://127.0.0.1:{port}", "--model", "bench",
                "--tokenizer", tokenizer, "--percentile-metrics", "ttft", "--dataset-name", "custom",
                "--dataset-path", str(prompts),
                "--custom-output-len", str(asked.events), "--skip-chat-template", "--disable-shuffle",
                "--num-prompts", str(asked.requests), "--max-concurrency", str(asked.streams), "--num-warmups", "0",
                "--ready-check-timeout-sec", "0", "--disable-tqdm", "--save-result", "--result-dir", folder,
                "--result-filename", "result.json",
            ]  # fmt: skip
            finished(pinned(1, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=quiet()), asked.limit_s)
            said = json.loads((Path(folder) / "result.json").read_text())
        if said["completed"] != asked.requests:
            raise UnusableError(f"{said['completed']} of {asked.requests} requests were answered")
        return None, float(said["median_ttft_ms"])

    return ask


def guidellm(program: str) -> Client:
    def ask(port: int, asked: Asked) -> tuple[float | None, float]:
        with tempfile.TemporaryDirectory() as folder:
            prompts, result = Path(folder) / "prompts.jsonl", Path(folder) / "result.json"
            row = json.dumps({"prompt": "go", "output_tokens_count": asked.events})
            prompts.write_text(f"{row}\n" * asked.requests)
            # As version 0.8 takes it.
            command = [
                program, "run", "--backend", f"kind=openai_http,target=http://127.0.0.1:{port},model=bench",
                "--profile", f"kind=concurrent,streams={asked.streams}",
                "--constraint", f"kind=max_requests,count={asked.requests}",
                "--data", f"kind=json_file,path={prompts}", "--output", f"kind=json,path={result}", "--disable-console",
            ]  # fmt: skip
            finished(pinned(1, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=quiet()), asked.limit_s)
            metrics = json.loads(result.read_text())["benchmarks"][0]["metrics"]
        return None, float(metrics["time_to_first_token_ms"]["successful"]["median"])

    return ask


def quiet() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}


class Polled:
    """CPU seconds of everything below this process, at moments: for clients that do not report their own."""

    def __init__(self, besides: set[int]) -> None:
        self._besides, self._seen, self._over = besides, list[tuple[int, float]](), threading.Event()
        self._last: dict[int, float] = {}
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._over.wait(0.1):
            for child in psutil.Process().children(recursive=True):
                if child.pid not in self._besides:
                    try:
                        used = child.cpu_times()
                    except psutil.Error:
                        continue
                    self._last[child.pid] = used.user + used.system
            self._seen.append((time.monotonic_ns(), sum(self._last.values())))

    def between(self, began_ns: int, ended_ns: int) -> float:
        before = [cpu for at, cpu in self._seen if at <= began_ns]
        after = [cpu for at, cpu in self._seen if at >= ended_ns]
        return (after or [self._seen[-1][1]])[0] - (before[-1] if before else 0.0)


def measure(client: Client, asked: Asked) -> Seen:
    with served(asked.interval_ms) as port:
        servers = {child.pid for child in psutil.Process().children()}
        with Polled(servers) as polled:
            cpu_s, ttft_ms = client(port, asked)
        facts = truth(port)
    if not facts["served"] or facts["failed"]:
        raise UnusableError(f"the server lost {facts['failed']} streams: they were not read in time")
    true_ms = statistics.median((first - read) / 1e6 for read, first in facts["served"])
    began, ended = facts["began_ns"], facts["ended_ns"]
    used = polled.between(began, ended) if cpu_s is None else cpu_s
    return Seen(
        used / facts["events"] * 1e6,
        ttft_ms - true_ms,
        facts["events"] / (ended - began) * 1e9,
        facts["late_p99_ns"] / 1e6,
    )


def compare(clients: dict[str, Client | str], asked: Asked, rounds: int) -> dict[str, list[Seen] | str]:
    """Figures of each client, or why there are none; the order turns round with each round."""
    found: dict[str, list[Seen] | str] = {
        name: client if isinstance(client, str) else list[Seen]() for name, client in clients.items()
    }
    names = list(clients)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            client, seen = clients[name], found[name]
            if isinstance(client, str) or isinstance(seen, str):
                continue
            try:
                seen.append(measure(client, asked))
            except UnusableError as error:
                found[name] = str(error)
            print(f"round {number + 1} of {rounds}: {name}: {told(found[name])}", file=sys.stderr, flush=True)
    return found


def told(seen: list[Seen] | str) -> str:
    return seen if isinstance(seen, str) else f"{seen[-1].cpu_us:.1f} us/event, TTFT + {seen[-1].ttft_error_ms:.1f} ms"


def find_most(clients: dict[str, Client | str], asked: Asked, most: int) -> None:
    """Double the streams as long as the floor keeps up with the server's events."""
    carried = dict.fromkeys(clients, 0)
    while asked.streams <= most:
        asked = replace(asked, requests=asked.streams * 2)
        found = compare(clients, asked, 1)
        show(found, asked)
        for name, seen in found.items():
            if not isinstance(seen, str) and seen[0].events_per_s >= KEPT_UP * asked.ideal_per_s:
                carried[name] = asked.streams
        if carried[next(iter(clients))] < asked.streams:
            print(f"\nthis machine does not carry {asked.streams} streams: not even the floor keeps up")
            break
        asked = replace(asked, streams=asked.streams * 2)
    print(f"\nlargest number of streams carried ({KEPT_UP:.0%} of the events/s that are possible):")
    for name, streams in carried.items():
        print(f"  {name:<28}{streams or 'none':>8}")


def show(found: dict[str, list[Seen] | str], asked: Asked) -> None:
    per_s = asked.streams / asked.interval_ms * 1000
    print(f"\n{asked.streams} streams, {asked.interval_ms:g} ms between events ({per_s:.0f} events/s)")
    print(
        f"{'client':<28}{'CPU us/event':>14}{'x floor':>9}{'TTFT error ms':>15}{'events/s':>10}{'server late ms':>16}"
        f"{'rounds':>8}"
    )
    floor = next(iter(found.values()))
    for name, seen in found.items():
        if isinstance(seen, str):
            print(f"{name:<28}  no figures: {seen}")
            continue
        steady = [one for one in seen if one.late_p99_ms <= asked.interval_ms]
        columns = zip(*(vars(one).values() for one in steady or seen), strict=True)
        middle = [statistics.median(values) for values in columns]
        rounds = f"{len(steady)}/{len(seen)}"
        print(
            f"{name:<28}{middle[0]:>14.1f}{ratio(seen, floor, asked):>9}{middle[1]:>15.1f}{middle[2]:>10.0f}"
            f"{middle[3]:>16.1f}{rounds:>8}",
            flush=True,
        )


def ratio(seen: list[Seen], floor: list[Seen] | str, asked: Asked) -> str:
    """Of the CPU per event, within rounds. A server later than an interval sent events in heaps: they cost less."""
    pairs = zip(seen, [] if isinstance(floor, str) else floor, strict=False)
    steady = [pair for pair in pairs if max(one.late_p99_ms for one in pair) <= asked.interval_ms]
    return f"{statistics.median(one.cpu_us / least.cpu_us for one, least in steady):.2f}" if steady else "-"


def peers(given: argparse.Namespace) -> dict[str, Client | str]:
    missing = "" if given.tokenizer else "it wants a folder with a tokenizer: name one with --tokenizer"
    if subprocess.run([given.vllm_python, "-c", "import vllm"], capture_output=True, check=False).returncode:
        missing = f"no vllm in {given.vllm_python}: name another Python with --vllm-python"
    program = given.guidellm or shutil.which("guidellm")
    return {
        PEERS[0]: missing or vllm_bench(given.vllm_python, given.tokenizer),
        PEERS[1]: guidellm(program) if program else "not installed: name one with --guidellm",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--interval-ms", type=float, default=20.0)
    parser.add_argument("--events", type=int, default=100, help="per request")
    parser.add_argument("--laps", type=int, default=3, help="requests per stream")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--most", type=int, default=0, help="then double the streams as long as they are carried, up to this many"
    )
    parser.add_argument("--vllm-python", default=sys.executable)
    parser.add_argument("--tokenizer", help="folder of any tokenizer, for vllm bench serve")
    parser.add_argument("--guidellm", help="the program, where it is not on the path")
    given = parser.parse_args()
    allow_connections()
    own: dict[str, Client | str] = {
        "floor (raw sockets)": script("floor.py"),
        "specdyno, client alone": script("own.py", "--bare"),
        "specdyno, rows in a study": script("own.py"),
    }
    asked = Asked(given.streams, given.streams * given.laps, given.events, given.interval_ms)
    show(compare(own | peers(given), asked, given.rounds), asked)
    if given.most:
        find_most(own, asked, given.most)


if __name__ == "__main__":
    main()
