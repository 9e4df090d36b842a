"""One web host, on loopback unless told otherwise: real HTTP with ETag, HEAD and ranges, and a log of all requests."""

import hashlib
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CHUNK = 64 * 1024
ADDRESS = "127.0.0.1"
"""Where hosts listen."""


@dataclass(frozen=True)
class Answer:
    """What a host sends for one request."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/octet-stream"
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Callable[[bytes], Iterator[bytes]] | None = None
    """The body as it goes out, in its own time; without it, all of it at once."""


@dataclass
class ReceivedRequest:
    """One request as it came."""

    host: str
    method: str
    path: str
    status: int
    """That of its answer."""
    headers: dict[str, str]
    sent: int = 0
    """How many bytes of body went out so far."""

    @property
    def range(self) -> str | None:
        """The range that was asked for."""
        return self.headers.get("range")


DENIED = Answer(403, b"<Error><Code>AccessDenied</Code></Error>", "application/xml")
NOT_FOUND = Answer(404, b"not found", "text/plain")
UNAUTHORIZED = Answer(
    401, b"who are you?", "text/plain", {"WWW-Authenticate": 'Basic realm="lab"'}
)


class Host:
    """Serves what ``respond(path, headers)`` answers."""

    def __init__(
        self,
        name: str,
        respond: Callable[[str, dict[str, str]], Answer],
        certificate: Path | None = None,
    ):
        """Begin to serve; with a file that has a certificate and its key, the host speaks TLS."""
        self.name = name
        self.scheme = "https" if certificate else "http"
        self.respond = respond
        self.log: list[ReceivedRequest] = []
        self.connections = 0
        """How many came so far; one may serve several requests."""
        self.pace = 0.0
        """The seconds to wait after each chunk of a body."""
        self._server = _Server((ADDRESS, 0), _Handler)
        self._server.host = self
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket,
                server_side=True,
                # The thread of each request does it: a client that does not must hold up no other.
                do_handshake_on_connect=False,
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.01},
            daemon=True,
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the host, without a slash at its end."""
        return f"{self.scheme}://{ADDRESS}:{self._server.server_port}"

    def close(self):
        """Stop; from then on nothing answers."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    host: Host
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any):
        """Report nothing: a client that goes away in mid-transfer is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60

    def setup(self):
        """Count the connection."""
        super().setup()
        self.server.host.connections += 1

    def do_GET(self):
        self._answer()

    def do_HEAD(self):
        self._answer()

    def log_message(self, format: str, *args: Any):  # noqa: A002
        """Keep quiet: the log is a list."""

    def _answer(self):
        host = self.server.host
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = _conditional(host.respond(self.path, headers), headers)
        request = ReceivedRequest(
            host.name, self.command, self.path, answer.status, headers
        )
        host.log.append(request)
        self._send_head(answer)
        if self.command == "GET":
            self._send_body(answer, request)

    def _send_head(self, answer: Answer):
        self.send_response(answer.status)
        headers = {
            "Content-Type": answer.content_type,
            "Content-Length": str(len(answer.body)),
            **answer.headers,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_body(self, answer: Answer, request: ReceivedRequest):
        pieces = answer.pieces or _chunks
        for chunk in pieces(answer.body):
            request.sent += len(chunk)
            self.wfile.write(chunk)
            sent = time.monotonic()
            # A test may end the wait.
            while time.monotonic() - sent < self.server.host.pace:
                time.sleep(0.01)


def _chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), CHUNK):
        yield body[start : start + CHUNK]


def _conditional(answer: Answer, headers: dict[str, str]) -> Answer:
    """Return what is left of an answer for a client that has it already, or wants a part of it."""
    if answer.status != HTTPStatus.OK:
        return answer
    etag = answer.headers.get("ETag")
    if etag is None:
        digest = hashlib.sha256(answer.body).hexdigest()
        etag = f'"{digest[:32]}"'
    answer = replace(
        answer, headers={"ETag": etag, "Accept-Ranges": "bytes", **answer.headers}
    )
    if headers.get("if-none-match") == etag:
        return replace(answer, status=304, body=b"", pieces=None)
    if "range" in headers and answer.headers["Accept-Ranges"] != "none":
        return _partial(answer, headers["range"])
    return answer


def _partial(answer: Answer, requested: str) -> Answer:
    size = len(answer.body)
    span = _span(requested, size)
    if not span:
        headers = {"Content-Range": f"bytes */{size}"}
        return Answer(status=416, content_type=answer.content_type, headers=headers)
    return replace(
        answer,
        status=206,
        body=answer.body[span.start : span.stop],
        headers={
            **answer.headers,
            "Content-Range": f"bytes {span.start}-{span.stop - 1}/{size}",
        },
    )


def _span(requested: str, size: int) -> range:
    """Return the positions that a client wants of a body; none if there are none."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", requested)
    if match is None or requested == "bytes=-":
        return range(0)
    first, last = match.groups()
    if not first:
        # Without a first position, it is how many from the end.
        return range(max(0, size - int(last)), size)
    if not last:
        return range(int(first), size)
    return range(int(first), min(size, int(last) + 1))
