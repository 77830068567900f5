"""The smallest HTTP/1.1 client that streams: one connection per request, a stamp on every read, nothing decoded.

Owns the socket. It knows where an answer ends (chunks, a length, or the end of the connection) and no more; chunks are
taken apart (`load.chunks`) once the timed part is over. No redirects, proxies, compression or reuse: each would hide
from a measurement what it costs. `docs/design/client.md` says what that saves.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

from specdyno.engine import tls
from specdyno.load.chunks import Reads

_LAST_CHUNK = b"0\r\n\r\n"
_MOST_HEAD_BYTES = 65_536
_RESOLVED_S = 10.0  # how long an address is believed


class BrokenAnswerError(Exception):
    """What came is no whole HTTP answer."""


@dataclass(slots=True)
class Client:
    """How requests are sent: the headers of each (an API key among them), and whom TLS trusts beside the system's.

    PlanError where `ca_file` holds no certificate.

    A connection for each request: llama.cpp closes its own after every stream without saying so, uvicorn after 5 s of
    idling, and a request that meets a closing connection would be counted as the engine's failure.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str | None = None
    tls: ssl.SSLContext = field(init=False, repr=False)
    _places: dict[str, _Place] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.tls = tls.context(self.ca_file)

    async def post(self, url: str, body: bytes, reply: Reply) -> None:
        """Send the body and feed `reply` until its answer is whole.

        Raises OSError where no connection comes about (`reply.connected` is False then) or it breaks, and
        BrokenAnswerError where it ends too early or speaks no HTTP. Whatever came is in `reply`.
        """
        place = self._places.get(url) or self._places.setdefault(url, _Place.of(url, self))
        reply.request = place.head + b"%d\r\n\r\n" % len(body) + body
        try:
            await place.connect(reply)
            await reply.ended
        finally:
            reply.close()


class Reply(asyncio.Protocol):
    """One answer as it arrives: `reads` are those of the body, chunked or not."""

    __slots__ = (
        "_head",
        "_left",
        "_transport",
        "chunked",
        "connected",
        "content_type",
        "ended",
        "reads",
        "request",
        "status",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, reads: Reads) -> None:
        self.reads = reads
        self.request = b""
        self.ended: asyncio.Future[None] = loop.create_future()
        self.connected = self.chunked = False
        self.status: int | None = None
        self.content_type = ""
        self._head: bytes | None = b""  # None: it has been read
        self._left: int | None = None  # bytes of the body to come; None: not said
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.connected = cast("asyncio.Transport", transport), True  # uvloop's is no subclass
        self._transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        stamp_ns = time.monotonic_ns()
        if self._head is not None:
            data = self._begin(data)
            if not data and self._left != 0:
                return
        # What follows runs once per event of every stream.
        if data:
            reads = self.reads
            reads.data += data
            reads.stamps.append(stamp_ns)
            reads.ends.append(len(reads.data))
        if self.chunked:
            if (data.endswith(_LAST_CHUNK) or len(data) < len(_LAST_CHUNK)) and self._last_chunk():
                self._end()
        elif self._left is not None:
            self._left -= len(data)
            if self._left <= 0:
                self._end()

    def _last_chunk(self) -> bool:
        """Whether the body ends with its last chunk: no body looks so by chance, since none holds a bare line of 0."""
        return self.reads.data[-7:] in (b"\r\n" + _LAST_CHUNK, _LAST_CHUNK)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._end(exc)
        elif self._head is not None:
            self._end(BrokenAnswerError("the connection was closed before an answer came"))
        elif self.chunked or self._left is not None:
            self._end(BrokenAnswerError("the connection was closed within the answer"))
        else:
            self._end()

    def close(self) -> None:
        """Give the connection back, at once where the answer is not whole."""
        self.ended.cancel()
        whole = not self.ended.cancelled() and self.ended.exception() is None
        if self._transport is not None and whole:
            self._transport.close()
        elif self._transport is not None:
            self._transport.abort()

    def _end(self, error: Exception | None = None) -> None:
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)

    def _begin(self, data: bytes) -> bytes:
        """Take the head off the first bytes; what is left belongs to the body."""
        self._head = (self._head or b"") + data
        while True:
            head, found, rest = self._head.partition(b"\r\n\r\n")
            if not found:
                if len(head) > _MOST_HEAD_BYTES or not head.startswith(b"HTTP/"[: len(head)]):
                    self._end(BrokenAnswerError("the server does not speak HTTP/1.1"))
                return b""
            status, headers = _read_head(head)
            if status is None:
                self._end(BrokenAnswerError("the server does not speak HTTP/1.1"))
                return b""
            if status >= 200:
                break
            self._head = rest  # an interim answer: the real one follows
        self._head, self.status = None, status
        self.content_type = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        self.chunked = b"chunked" in headers.get(b"transfer-encoding", b"").lower()
        if not self.chunked:
            length = headers.get(b"content-length", b"")
            self._left = int(length) if length.isdigit() else 0 if status in (204, 304) else None
        return rest


@dataclass(slots=True)
class _Place:
    """Where a URL points to."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    head: bytes  # of the request, up to the length of its body
    addresses: list[str] = field(default_factory=list)
    resolved: float = 0.0

    @classmethod
    def of(cls, url: str, client: Client) -> _Place:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"POST {path} HTTP/1.1", f"Host: {parts.netloc.rpartition('@')[2]}"]
        lines += [f"{name}: {value}" for name, value in client.headers.items()]
        head = "\r\n".join([*lines, "Accept: */*", "Connection: close", "Content-Length: "]).encode()
        return cls(parts.hostname or "", parts.port or (443 if secure else 80), client.tls if secure else None, head)

    async def connect(self, reply: Reply) -> None:
        """Connect to the first address that answers, which is asked first from then on."""
        loop = asyncio.get_running_loop()
        if not self.addresses or loop.time() > self.resolved + _RESOLVED_S:
            found = await loop.getaddrinfo(self.host, self.port, type=1)
            fresh = list(dict.fromkeys(str(one[4][0]) for one in found))
            self.addresses = [one for one in self.addresses if one in fresh][:1] or fresh
            self.addresses += [one for one in fresh if one not in self.addresses]
            self.resolved = loop.time()
        refused: OSError | None = None
        for address in tuple(self.addresses):
            try:
                await loop.create_connection(
                    lambda: reply, address, self.port, ssl=self.tls, server_hostname=self.host if self.tls else None
                )
            except OSError as error:
                refused = refused or error
            else:
                if address != self.addresses[0]:
                    self.addresses = [address, *(one for one in self.addresses if one != address)]
                return
        raise refused or OSError(f"{self.host} has no address")


def _read_head(head: bytes) -> tuple[int | None, dict[bytes, bytes]]:
    first, *lines = head.split(b"\r\n")
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        return None, {}
    return int(words[1]), {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)
    }
