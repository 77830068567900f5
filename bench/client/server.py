"""A server that streams events at exact intervals, knows when it did, and costs little: the truth of `bench/client`.

    python bench/client/server.py [--port N] [--interval-ms 20] [--first-ms 100]

One process, one epoll loop, all bytes made in advance. A chat completion of `max_tokens` n is answered by n text
events: the first `first-ms` after the request was read, the others an interval apart by the clock, whatever the client
does. `GET /truth` gives, and forgets, what was served since it was last asked.
"""

import argparse
import heapq
import json
import select
import socket
import sys
import time

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\nconnection: %s\r\n\r\n"
)
CHUNK = (
    '{"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1790000000,'
    '"model":"bench","choices":[%s]%s}'
)
CHOICE = '{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s,"token_ids":null}'
DONE = "[DONE]"
BACKLOG = 4096


def event(data: str) -> bytes:
    """One server-sent event in an HTTP chunk of its own, as uvicorn frames it."""
    text = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(text), text)


ROLE = event(CHUNK % (CHOICE % ('{"role":"assistant","content":""}', "null"), ""))
TEXT = event(CHUNK % (CHOICE % ('{"content":" word"}', "null"), ""))
LAST = event(CHUNK % (CHOICE % ('{"content":" end"}', '"length"'), ""))


def tail(events: int) -> bytes:
    usage = {"prompt_tokens": 8, "total_tokens": 8 + events, "completion_tokens": events}
    return event(CHUNK % ("", f',"usage":{json.dumps(usage)}')) + event(DONE) + b"0\r\n\r\n"


class Stream:
    """One answer being sent."""

    __slots__ = ("connection", "first_ns", "left", "received_ns", "total")

    def __init__(self, connection: "Connection", total: int, received_ns: int) -> None:
        self.connection, self.total, self.left = connection, total, total
        self.received_ns, self.first_ns = received_ns, 0


class Connection:
    __slots__ = ("close", "received", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.received, self.close = sock, b"", False


class Server:
    def __init__(self, port: int, interval_s: float, first_s: float) -> None:
        self.interval_ns, self.first_ns = int(interval_s * 1e9), int(first_s * 1e9)
        self.listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.poll = select.epoll()
        self.poll.register(self.listener, select.EPOLLIN)
        self.connections: dict[int, Connection] = {}
        self.due: list[tuple[int, int, Stream]] = []
        self.order = 0
        self.forget()

    def forget(self) -> None:
        self.served: list[tuple[int, int]] = []  # request read, first text sent
        self.events = self.failed = 0
        self.late_ns: list[int] = []
        self.began_ns = self.ended_ns = 0

    def run(self) -> None:
        while True:
            # Half a millisecond early, and then without waiting: epoll waits in whole milliseconds.
            wait_ns = self.due[0][0] - time.monotonic_ns() - 500_000 if self.due else 1_000_000_000
            for number, _ in self.poll.poll(max(0, wait_ns) / 1e9):
                if number == self.listener.fileno():
                    self.accept()
                else:
                    self.read(self.connections[number])
            self.send_due()

    def accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections[sock.fileno()] = Connection(sock)
            self.poll.register(sock, select.EPOLLIN)

    def read(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(262_144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(connection)
            return
        connection.received += data
        head, found, body = connection.received.partition(b"\r\n\r\n")
        if not found:
            return
        headers = {
            name.lower(): value.strip().lower()
            for name, _, value in (line.partition(b":") for line in head.split(b"\r\n"))
        }
        if len(body) < int(headers.get(b"content-length", 0)):
            return
        connection.received = b""
        connection.close = headers.get(b"connection") == b"close"
        self.answer(connection, head.split(b" ", 2)[1], body)

    def answer(self, connection: Connection, path: bytes, body: bytes) -> None:
        if path != b"/v1/chat/completions":
            self.plain(connection, path)
            return
        now = time.monotonic_ns()
        self.began_ns = self.began_ns or now
        asked = json.loads(body)
        total = int(asked.get("max_completion_tokens") or asked.get("max_tokens") or 16)
        self.write(connection, HEAD % (b"close" if connection.close else b"keep-alive"))
        self.plan(Stream(connection, total, now), now + self.first_ns)

    def plain(self, connection: Connection, path: bytes) -> None:
        answers = {
            b"/truth": self.truth,
            b"/v1/models": lambda: {"object": "list", "data": [{"id": "bench", "object": "model"}]},
        }
        text = json.dumps(answers.get(path, dict)()).encode()
        self.write(
            connection,
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text),
        )
        if connection.close:
            self.drop(connection)

    def truth(self) -> dict[str, object]:
        late = sorted(self.late_ns) or [0]
        facts = {
            "served": self.served,
            "events": self.events,
            "failed": self.failed,
            "began_ns": self.began_ns,
            "ended_ns": self.ended_ns,
            "late_median_ns": late[len(late) // 2],
            "late_p99_ns": late[int(len(late) * 0.99)],
            "cpu_s": time.process_time(),
        }
        self.forget()
        return facts

    def plan(self, stream: Stream, due_ns: int) -> None:
        self.order += 1
        heapq.heappush(self.due, (due_ns, self.order, stream))

    def send_due(self) -> None:
        # Not more than one lap: who connects is heard although the sending is behind.
        for _ in range(64):
            now = time.monotonic_ns()
            if not self.due or self.due[0][0] > now:
                return
            due_ns, _, stream = heapq.heappop(self.due)
            self.send(stream, due_ns, now)

    def send(self, stream: Stream, due_ns: int, now: int) -> None:
        first = stream.left == stream.total
        stream.left -= 1
        data = TEXT if stream.left else LAST + tail(stream.total)
        if first:
            stream.first_ns = now
            data = ROLE + data
        if not self.write(stream.connection, data):
            return
        self.events += 1
        self.late_ns.append(now - due_ns)
        if stream.left:
            self.plan(stream, due_ns + self.interval_ns)
            return
        self.served.append((stream.received_ns, stream.first_ns))
        self.ended_ns = now
        if stream.connection.close:
            self.drop(stream.connection)

    def write(self, connection: Connection, data: bytes) -> bool:
        """False where the client is gone, or has left so much unread that the socket is full."""
        try:
            if connection.sock.send(data) == len(data):
                return True
        except OSError:
            pass
        self.failed += 1
        self.drop(connection)
        return False

    def drop(self, connection: Connection) -> None:
        number = connection.sock.fileno()
        if number < 0:
            return
        self.poll.unregister(number)
        del self.connections[number]
        connection.sock.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--interval-ms", type=float, default=20.0)
    parser.add_argument("--first-ms", type=float, default=100.0)
    asked = parser.parse_args()
    server = Server(asked.port, asked.interval_ms / 1000, asked.first_ms / 1000)
    print(server.port, flush=True)
    try:
        server.run()
    except KeyboardInterrupt:
        sys.exit()


if __name__ == "__main__":
    main()
