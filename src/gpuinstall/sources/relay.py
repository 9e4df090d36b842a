"""Loopback relay through which uv downloads files.

The relay applies gpuinstall's limits, certificates, and logins, and hashes the files.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import quote

from gpuinstall.base.errors import InstallationError, InterruptedByUserError
from gpuinstall.base.reporter import Progress
from gpuinstall.sources.web import Client


@dataclass
class _RelayedFile:
    """File that uv may request from the relay."""

    url: str
    name: str
    size: int | None
    hashed: bool
    """Whether uv knows the hash of the file."""
    failure: InstallationError | None = None
    """A permanent download error, which is raised again for each request."""


class Relay(ThreadingHTTPServer):
    """Local HTTP server that relays files at secret loopback URLs.

    Args:
        client: The client that downloads the files.
        progress: Receives the name of a file and a number of bytes.
        keep: Receives the URL and the sha256 of each complete file that had
            no hash.
    """

    daemon_threads = True
    block_on_close = False
    # uv downloads 50 files at once, and a refused connection counts as a failure.
    request_queue_size = 64

    def __init__(
        self,
        client: Client,
        progress: Progress,
        keep: Callable[[str, str], None],
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, _RelayedFile] = {}
        self.failure: InstallationError | None = None
        """The error of the first file that failed."""
        self._client = client
        self._progress = progress
        self._keep = keep
        self._closed = False
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self.shutdown()
        self.server_close()

    def add_file(self, url: str, name: str, size: int | None, *, hashed: bool) -> str:
        """Add a file, and return a URL that other programs cannot guess.

        Args:
            url: The URL of the file on its server.
            name: The file name, which is the last part of the returned URL.
            size: The size in bytes, or None if unknown.
            hashed: Whether uv has the hash of the file and verifies it.
        """
        path = f"/{secrets.token_urlsafe(16)}/{quote(name)}"
        self.files[path] = _RelayedFile(url, name, size, hashed)
        return f"http://127.0.0.1:{self.server_port}{path}"

    def download(self, file: _RelayedFile) -> Generator[bytes]:
        """Yield a file in chunks, and an empty chunk once it is complete.

        Raises:
            InstallationError: The file cannot be downloaded.
        """
        if file.failure:
            raise file.failure
        digest = hashlib.sha256()
        received = 0
        complete = False
        try:
            for chunk in self._client.chunks(file.url, file.size):
                if self._closed:
                    raise InterruptedByUserError(
                        "interrupted", "the download was interrupted"
                    )
                if not file.hashed:
                    digest.update(chunk)
                received += len(chunk)
                self._progress(file.name, len(chunk))
                yield chunk
            complete = True
        except InstallationError as error:
            self.failure = self.failure or error
            # uv retries a request after a broken connection.
            if error.code != "transfer":
                file.failure = error
            raise
        finally:
            if not complete:
                self._progress(file.name, -received)
        if not file.hashed:
            self._keep(file.url, digest.hexdigest())
        yield b""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore an error caused by a closed connection."""


class _Handler(BaseHTTPRequestHandler):
    server: Relay
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send a file in chunks. An empty last chunk marks a complete file."""
        file = self.server.files.get(self.path)
        if file is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with closing(self.server.download(file)) as chunks, suppress(InstallationError):
            # Read a chunk first, because an error determines the status.
            try:
                chunk = next(chunks)
            except InstallationError:
                self.send_error(
                    HTTPStatus.GONE if file.failure else HTTPStatus.BAD_GATEWAY
                )
                return
            self.close_connection = True
            self.send_response(HTTPStatus.OK)
            self.send_header("Cache-Control", "max-age=31536000, immutable")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while chunk:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                chunk = next(chunks)
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Suppress the log of HTTP requests."""
