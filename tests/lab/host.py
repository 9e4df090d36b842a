"""One web host on loopback: real HTTP with ETag, HEAD and range requests, and a log of all that was asked of it."""

from __future__ import annotations

import hashlib
import re
import ssl
import threading
import time
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHUNK = 64 * 1024


@dataclass(frozen=True)
class Answer:
    """What a host says to one request."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/octet-stream"
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Callable[[bytes], Iterator[bytes]] | None = None
    """The body as it goes out, in its own time; without it, all of it at once."""


@dataclass
class Asked:
    """One request as it came; ``sent`` counts the bytes of body that went out so far."""

    host: str
    method: str
    path: str
    status: int
    headers: dict[str, str]
    sent: int = 0

    @property
    def range(self) -> str | None:
        """The range that was asked for."""
        return self.headers.get("range")


DENIED = Answer(403, b"<Error><Code>AccessDenied</Code></Error>", "application/xml")
NOT_FOUND = Answer(404, b"not found", "text/plain")
UNAUTHORIZED = Answer(401, b"who are you?", "text/plain", {"WWW-Authenticate": 'Basic realm="lab"'})


class Host:
    """Serves what ``respond(path, headers)`` answers; ``pace`` are the seconds to wait after each chunk of a body.

    ``certificate`` is a file with a certificate and its key: with it the host speaks TLS.
    """

    def __init__(
        self,
        name: str,
        respond: Callable[[str, dict[str, str]], Answer],
        port: int = 0,
        certificate: Path | None = None,
    ) -> None:
        self.name = name
        self.scheme = "https" if certificate else "http"
        self.respond = respond
        self.log: list[Asked] = []
        self.pace = 0.0
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.host = self
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the host, without a slash at its end."""
        return f"{self.scheme}://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop; from then on nobody answers."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    host: Host
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that goes away in mid-transfer is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep quiet: the log is a list."""

    def _answer(self) -> None:
        host = self.server.host
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = _conditional(host.respond(self.path, headers), headers)
        asked = Asked(host.name, self.command, self.path, answer.status, headers)
        host.log.append(asked)
        self._send_head(answer)
        if self.command == "GET":
            self._send_body(answer, asked)

    def _send_head(self, answer: Answer) -> None:
        self.send_response(answer.status)
        usual = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
        for name, value in (usual | answer.headers).items():
            self.send_header(name, value)
        self.end_headers()

    def _send_body(self, answer: Answer, asked: Asked) -> None:
        for chunk in (answer.pieces or _chunks)(answer.body):
            asked.sent += len(chunk)
            self.wfile.write(chunk)
            time.sleep(self.server.host.pace)


def part_of(answer: Answer, headers: dict[str, str]) -> Answer:
    """The range of a file that is asked for, sent as the file is."""
    span = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
    if not span:
        return answer
    first, last = int(span[1]), int(span[2])
    said = {**answer.headers, "Content-Range": f"bytes {first}-{last}/{len(answer.body)}"}
    return replace(answer, status=206, body=answer.body[first : last + 1], headers=said)


def _chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), CHUNK):
        yield body[start : start + CHUNK]


def _conditional(answer: Answer, headers: dict[str, str]) -> Answer:
    if answer.status != HTTPStatus.OK:
        return answer
    etag = answer.headers.get("ETag") or f'"{hashlib.sha256(answer.body).hexdigest()[:32]}"'
    known = {"ETag": etag, "Accept-Ranges": "bytes", **answer.headers}
    if headers.get("if-none-match") == etag:
        return Answer(304, b"", answer.content_type, known)
    if "range" in headers and known["Accept-Ranges"] != "none":
        return _partial(answer, headers["range"], known)
    return replace(answer, headers=known)


def _partial(answer: Answer, wanted: str, headers: dict[str, str]) -> Answer:
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted)
    size = len(answer.body)
    if match is None or wanted == "bytes=-":
        return Answer(416, b"", answer.content_type, {"Content-Range": f"bytes */{size}"})
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(size - 1, int(last)) if first and last else size - 1
    if start > end:
        return Answer(416, b"", answer.content_type, {"Content-Range": f"bytes */{size}"})
    span = {**headers, "Content-Range": f"bytes {start}-{end}/{size}"}
    return Answer(206, answer.body[start : end + 1], answer.content_type, span, answer.pieces)
