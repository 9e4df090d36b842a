"""A relay on loopback from which uv fetches files.

It brings our limits, certificates and logins, and takes hashes on the way.
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
class _Relayed:
    """A file that uv may ask for."""

    url: str
    name: str
    size: int | None
    hashed: bool
    """Whether its hash is known."""
    failure: InstallationError | None = None
    """What ends all further attempts."""


class Relay(ThreadingHTTPServer):
    """Passes files on from their servers to programs of this machine that have their addresses.

    Args:
        client: What fetches them.
        progress: Counts the bytes of each file by its name.
        keep: Takes the address of each file that had no hash and its sha256, once all of it came.
    """

    daemon_threads = True
    block_on_close = False
    # uv fetches fifty files at once, and a connection that is refused counts as a failure.
    request_queue_size = 64

    def __init__(
        self,
        client: Client,
        progress: Progress,
        keep: Callable[[str, str], None],
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, _Relayed] = {}
        self.failure: InstallationError | None = None
        """Why the first file that failed did."""
        self._client = client
        self._progress = progress
        self._keep = keep
        self._closed = False
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self.shutdown()
        self.server_close()

    def address(
        self,
        url: str,
        name: str,
        size: int | None,
        *,
        hashed: bool,
    ) -> str:
        """Return an address for a file that no other program can guess.

        Args:
            url: Where the file comes from.
            name: Its name, which the address ends with.
            size: In bytes, if that is known.
            hashed: Whether its hash is known: who fetches the file compares it.
        """
        path = f"/{secrets.token_urlsafe(16)}/{quote(name)}"
        self.files[path] = _Relayed(url, name, size, hashed)
        return f"http://127.0.0.1:{self.server_port}{path}"

    def chunks(self, file: _Relayed) -> Generator[bytes]:
        """Yield the bytes of a file, hashed and counted, and an empty end once its hash is kept.

        Raises:
            InstallationError: the same again if the file cannot be had.
        """
        if file.failure:
            raise file.failure
        digest = hashlib.sha256()
        came = 0
        complete = False
        try:
            for chunk in self._client.chunks(file.url, file.size):
                if self._closed:
                    raise InterruptedByUserError(
                        "interrupted", "the download was interrupted"
                    )
                if not file.hashed:
                    digest.update(chunk)
                came += len(chunk)
                self._progress(file.name, len(chunk))
                yield chunk
            complete = True
        except InstallationError as error:
            self.failure = self.failure or error
            # A connection that broke may hold the next time: uv asks again.
            if error.code != "transfer":
                file.failure = error
            raise
        finally:
            if not complete:
                self._progress(file.name, -came)
        if not file.hashed:
            self._keep(file.url, digest.hexdigest())
        yield b""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report nothing of a program that goes away."""


class _Handler(BaseHTTPRequestHandler):
    server: Relay
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send a file in chunks; the empty last one says that it is whole and its hash kept."""
        file = self.server.files.get(self.path)
        if file is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with closing(self.server.chunks(file)) as chunks, suppress(InstallationError):
            # Before the status is sent: what fails at once gets another.
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
        """Keep quiet."""
