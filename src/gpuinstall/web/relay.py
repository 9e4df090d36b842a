"""A relay on loopback from which uv fetches files: our limits, certificates and logins, and hashes taken on the way.

A large file comes in several ranges at once where its server gives them under one mark, else in one stream.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, islice
from threading import BoundedSemaphore, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gpuinstall.errors import InstallationError, InterruptedByUserError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from typing_extensions import Self

    from gpuinstall.reporter import Progress
    from gpuinstall.web.client import Client, Head

LARGE = 64_000_000
"""The bytes above which a file comes in ranges."""
PIECE = 4_000_000
"""The bytes of one range: a quarter of a second at the 30 MB/s that a connection to such servers has."""
FAST = 80_000_000
"""The bytes a second of a connection from which on more of them bring nothing: 75 ranges of a file take three times the
processor of one stream (0.75 s for 300 MB, 0.25), and servers that are slow for each connection give 20 to 60 MB/s.
"""
AT_ONCE, FOR_EACH = 16, 4
"""How many ranges are asked for at once, of all files and of each."""


@dataclass
class _Relayed:
    """A file that uv may ask for; ``failure`` ends all further attempts."""

    url: str
    name: str
    size: int | None
    hashed: bool
    in_ranges: bool
    failure: InstallationError | None = None


class Relay:
    """Passes files on from their servers to programs of this machine that were given their addresses.

    ``progress`` counts the bytes of each file by its name; ``keep`` gets the address of each file that had no hash and
    its sha256, once all of it came; ``parallel`` says whether large ones come in ranges.
    """

    def __init__(
        self, client: Client, progress: Progress, keep: Callable[[str, str], None], *, parallel: bool = True
    ) -> None:
        self._client, self._progress, self._keep, self._parallel = client, progress, keep, parallel
        self._files: dict[str, _Relayed] = {}
        self._failures: list[InstallationError] = []
        self._slots = BoundedSemaphore(AT_ONCE)
        self._closed = False
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.relay = self

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._server.shutdown()
        self._server.server_close()

    def address(self, url: str, name: str, size: int | None, *, hashed: bool) -> str:
        """Give a file of ``size`` bytes, where that is known, an address that nobody can guess.

        ``hashed`` says that its hash is known, which whoever fetches it compares.
        """
        path = f"/{secrets.token_urlsafe(16)}/{quote(name)}"
        self._files[path] = _Relayed(url, name, size, hashed, self._parallel)
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    @property
    def failure(self) -> InstallationError | None:
        """Why the first file that failed did."""
        return next(iter(self._failures), None)

    def file(self, path: str) -> _Relayed | None:
        """The file at a path."""
        return self._files.get(path)

    def chunks(self, file: _Relayed) -> Generator[bytes]:
        """Bring a file, hash and count it; raise InstallationError, the same again where it cannot be had."""
        if file.failure:
            raise file.failure
        digest, came, complete = hashlib.sha256(), 0, False
        try:
            for chunk in self._brought(file):
                if self._closed:
                    raise InterruptedByUserError("interrupted", "the download was interrupted")
                if not file.hashed:
                    digest.update(chunk)
                came += len(chunk)
                self._progress(file.name, len(chunk))
                yield chunk
            complete = True
            if not file.hashed:
                self._keep(file.url, digest.hexdigest())
        except InstallationError as error:
            self._failures.append(error)
            file.in_ranges = False
            file.failure = None if error.code in {"no-ranges", "transfer"} else error
            raise
        finally:
            if not complete:
                self._progress(file.name, -came)

    def _brought(self, file: _Relayed) -> Iterator[bytes]:
        if file.in_ranges and (file.size or 0) > LARGE:
            head = self._client.head(file.url)
            if head.ranges and head.size == file.size and head.etag and not head.etag.startswith("W/"):
                return self._pieces(file, head)
        return self._client.chunks(file.url, file.size)

    def _pieces(self, file: _Relayed, head: Head) -> Iterator[bytes]:
        """Bring a file in ranges, a few of them ahead of the one that is passed on; in one where that is fast."""
        size, began = head.size or 0, monotonic()
        yield self._piece(file.url, head, range(PIECE))
        if PIECE / (monotonic() - began) > FAST:
            yield from self._client.part(file.url, range(PIECE, size), head)
            return
        spans = (range(start, min(start + PIECE, size)) for start in range(PIECE, size, PIECE))
        fetch = partial(self._piece, file.url, head)
        with ThreadPoolExecutor(FOR_EACH) as pool:
            ahead = deque(pool.submit(fetch, span) for span in islice(spans, FOR_EACH))
            try:
                while ahead:
                    piece = ahead.popleft().result()
                    ahead.extend(pool.submit(fetch, span) for span in islice(spans, 1))
                    yield piece
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _piece(self, url: str, head: Head, span: range) -> bytes:
        with self._slots:
            return b"".join(self._client.part(url, span, head))


class _Server(ThreadingHTTPServer):
    relay: Relay
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a program that goes away."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send a file in chunks, the last of which, an empty one, says that it is whole and its hash kept."""
        relay = self.server.relay
        if not (file := relay.file(self.path)):
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with closing(relay.chunks(file)) as chunks:
            try:
                first = next(chunks, b"")
            except InstallationError:
                self.send_error(HTTPStatus.GONE if file.failure else HTTPStatus.BAD_GATEWAY)
                return
            self.send_response(HTTPStatus.OK)
            self.send_header("Cache-Control", "max-age=31536000, immutable")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            with suppress(InstallationError):
                for chunk in chain([first] if first else [], chunks):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep quiet."""
