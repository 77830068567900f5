"""The floor: sockets, epoll and a stamp per read. Nothing is parsed; what no client of an event stream can do without.

python bench/client/floor.py PORT STREAMS REQUESTS EVENTS
"""

import gc
import json
import resource
import select
import socket
import sys
import time

Reads = list[tuple[int, bytes]]


def request(port: int, events: int) -> bytes:
    body = json.dumps(
        {
            "model": "bench",
            "messages": [{"role": "user", "content": "go"}],
            "max_tokens": events,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Loop:
    def __init__(self, port: int, wanted: int, data: bytes) -> None:
        self.port, self.wanted, self.data = port, wanted, data
        self.poll = select.epoll()
        self.open: dict[int, tuple[socket.socket, Reads]] = {}
        self.done: list[tuple[int, Reads]] = []  # when it was sent, and what came
        self.sent: dict[int, int] = {}

    def start(self) -> None:
        if not self.wanted:
            return
        self.wanted -= 1
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = sock.fileno()
        self.sent[number] = time.monotonic_ns()
        sock.connect_ex(("127.0.0.1", self.port))
        self.open[number] = (sock, [])
        self.poll.register(number, select.EPOLLOUT)

    def run(self, streams: int) -> None:
        for _ in range(streams):
            self.start()
        clock, poll, opened = time.monotonic_ns, self.poll.poll, self.open
        while opened:
            for number, event in poll():
                sock, reads = opened[number]
                if event & select.EPOLLOUT:
                    sock.send(self.data)
                    self.poll.modify(number, select.EPOLLIN)
                elif data := sock.recv(65_536):
                    reads.append((clock(), data))
                else:
                    self.end(number)

    def end(self, number: int) -> None:
        sock, reads = self.open.pop(number)
        self.poll.unregister(number)
        sock.close()
        self.done.append((self.sent.pop(number), reads))
        self.start()


def first_text(reads: Reads) -> int | None:
    return next((stamp for stamp, data in reads if b'"content":" ' in data), None)


def main() -> None:
    port, streams, requests, events = map(int, sys.argv[1:])
    loop = Loop(port, requests, request(port, events))
    gc.disable()
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic_ns()
    loop.run(streams)
    after, ended = resource.getrusage(resource.RUSAGE_SELF), time.monotonic_ns()
    ttfts = [(stamp - sent) / 1e6 for sent, reads in loop.done if (stamp := first_text(reads)) is not None]
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    print(
        json.dumps(
            {
                "cpu_s": cpu_s,
                "ttft_ms": ttfts,
                "reads": sum(len(r) for _, r in loop.done),
                "wall_s": (ended - began) / 1e9,
            }
        )
    )


if __name__ == "__main__":
    main()
