"""The hub's API as far as a preflight asks it, served from real folders on a free local port.

Answers model info, `resolve` with ranges and redirects to a second origin that stands for the content network; knows
the hub's own error codes; counts every byte of a body by file and notes who was shown the token.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repository:
    folder: Path
    gated: bool = False
    sent: Counter[str] = field(default_factory=Counter)  # file to bytes of bodies


class Imitation:
    """`faults` maps a file's name, or "info", to what goes wrong there: an int is a status, a word a misbehaviour."""

    def __init__(self, *, is_content: bool = False) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str, str | None]] = []  # method, path, Authorization
        self.faults: dict[str, Any] = {}
        self.content: Imitation | None = None  # where large files are redirected to
        self.is_content = is_content
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        imitation = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                imitation.answer(self)

            do_HEAD = do_GET  # noqa: N815 - the name is http.server's

        return Handler

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path)
        self.requests.append((request.command, path, request.headers.get("Authorization")))
        if "/tree/" in path:
            self._tree(request, path.removeprefix("/api/models/").partition("/tree/")[0])
        elif path.startswith("/api/models/"):
            name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            self._info(request, name, revision or "main")
        else:
            name, _, rest = path[1:].partition("/resolve/")
            revision, _, file = rest.partition("/")
            self._file(request, name, revision, file)

    def _info(self, request: BaseHTTPRequestHandler, name: str, revision: str) -> None:
        if self._spoilt(request, "info"):
            return
        if name not in self.repositories:
            # As the real hub does: a stranger is not told whether a private repository exists.
            send(request, 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        elif revision not in ("main", COMMIT):
            send(request, 404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": f"Invalid rev id: {revision}"})
        else:
            folder = self.repositories[name].folder
            files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
            body = {"id": name, "modelId": name, "sha": COMMIT, "tags": [], "downloads": 0, "likes": 0}
            body |= {"private": False, "siblings": [{"rfilename": file} for file in files]}
            send(request, 200, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def _tree(self, request: BaseHTTPRequestHandler, name: str) -> None:
        """What `snapshot_download` asks; the tests fill the cache through it, as an engine would."""
        listed = [
            {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": "0" * 40}
            for path in sorted(self.repositories[name].folder.iterdir())
        ]
        send(request, 200, {"Content-Type": "application/json"}, json.dumps(listed).encode())

    def _file(self, request: BaseHTTPRequestHandler, name: str, revision: str, file: str) -> None:
        repository = self.repositories.get(name)
        if self._spoilt(request, file):
            return
        if repository is None:
            send(request, 401, {"X-Error-Code": "RepoNotFound"})
        elif repository.gated:
            send(request, 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": f"Access to {name} is restricted"})
        elif revision not in ("main", COMMIT):
            send(request, 404, {"X-Error-Code": "RevisionNotFound"})
        elif not (repository.folder / file).is_file():
            send(request, 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        elif self.content and file.endswith(".safetensors"):
            size = (repository.folder / file).stat().st_size
            where = {"Location": f"{self.content.url}/{name}/resolve/{revision}/{file}"}
            send(request, 302, where | {"X-Repo-Commit": COMMIT, "X-Linked-Size": str(size), "X-Linked-Etag": '"e"'})
        else:
            self._body(request, repository, file)

    def _body(self, request: BaseHTTPRequestHandler, repository: Repository, file: str) -> None:
        data = (repository.folder / file).read_bytes()
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha256(data).hexdigest()}"', "Accept-Ranges": "bytes"}
        status, whole = 200, len(data)
        asked = request.headers.get("Range")
        if asked and self.faults.get(file) != "no ranges":
            start, _, end = asked.removeprefix("bytes=").partition("-")
            if int(start) >= whole:
                send(request, 416, {"Content-Range": f"bytes */{whole}"})
                return
            data = data[int(start) : int(end) + 1]
            status = 206
            headers["Content-Range"] = f"bytes {start}-{int(start) + len(data) - 1}/{whole}"
            if self.faults.get(file) == "no size":
                del headers["Content-Range"]
        cut = len(data) // 2 if self.faults.get(file) == "dies" and request.command == "GET" else None
        if request.command == "GET":
            repository.sent[file] += len(data)
        send(request, status, headers, data, cut=cut)

    def _spoilt(self, request: BaseHTTPRequestHandler, name: str) -> bool:
        fault = self.faults.get(name)
        if isinstance(fault, int):
            send(request, fault, {"X-Error-Message": f"no, {request.headers.get('Authorization')}"})
        elif isinstance(fault, bytes):
            send(request, 200, {"Content-Type": "text/html"}, fault)
        elif isinstance(fault, threading.Event):
            fault.wait(20)
            request.close_connection = True
        return isinstance(fault, int | bytes | threading.Event)


def send(
    request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes = b"", *, cut: int | None = None
) -> None:
    request.send_response(status)
    for key, value in headers.items():
        request.send_header(key, value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body if cut is None else body[:cut])
    if cut is not None:
        request.wfile.flush()
        request.close_connection = True
