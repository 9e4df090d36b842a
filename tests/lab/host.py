"""A web host with ETag, HEAD, ranges, and a log of all requests.

The host listens on loopback by default.
"""

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
"""The default listening address."""


@dataclass(frozen=True)
class Answer:
    """A host's response to one request."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/octet-stream"
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Callable[[bytes], Iterator[bytes]] | None = None
    """The body in timed pieces, or None to send it at once."""


@dataclass
class ReceivedRequest:
    """A logged request."""

    host: str
    method: str
    path: str
    status: int
    """The status of the response to the request."""
    headers: dict[str, str]
    sent: int = 0
    """The number of bytes of the body that were sent so far."""

    @property
    def range(self) -> str | None:
        """The byte range of the request."""
        return self.headers.get("range")


DENIED = Answer(403, b"<Error><Code>AccessDenied</Code></Error>", "application/xml")
NOT_FOUND = Answer(404, b"not found", "text/plain")
UNAUTHORIZED = Answer(
    401, b"who are you?", "text/plain", {"WWW-Authenticate": 'Basic realm="lab"'}
)


class Host:
    """A server for the responses of ``respond(path, headers)``."""

    def __init__(
        self,
        name: str,
        respond: Callable[[str, dict[str, str]], Answer],
        certificate: Path | None = None,
    ):
        """Start the server.

        With a file that contains a certificate and its key, it uses TLS.
        """
        self.name = name
        self.scheme = "https" if certificate else "http"
        self.respond = respond
        self.log: list[ReceivedRequest] = []
        self.connections = 0
        """The number of connections so far. One can serve several requests."""
        self.pace = 0.0
        """The delay in seconds after each chunk of a body."""
        self._server = _Server((ADDRESS, 0), _Handler)
        self._server.host = self
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket,
                server_side=True,
                # Handshake in the request's thread, so that no client delays another.
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
        """The URL of the host, without a trailing slash."""
        return f"{self.scheme}://{ADDRESS}:{self._server.server_port}"

    def close(self):
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    host: Host
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any):
        """Ignore errors of clients that disconnect during a transfer."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60

    def setup(self):
        """Count a connection before its first request."""
        super().setup()
        self.server.host.connections += 1

    def do_GET(self):
        self._answer()

    def do_HEAD(self):
        self._answer()

    def log_message(self, format: str, *args: Any):  # noqa: A002
        """Print nothing, because requests are in the log."""

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
    """Return a 304 or partial response for a cached or ranged request."""
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
    """Return the requested byte positions of a body, or None."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", requested)
    if match is None or requested == "bytes=-":
        return range(0)
    first, last = match.groups()
    if not first:
        # Without a first position, the number is a count from the end.
        return range(max(0, size - int(last)), size)
    if not last:
        return range(int(first), size)
    return range(int(first), min(size, int(last) + 1))
