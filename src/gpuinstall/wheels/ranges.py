"""A file of which any part can be read, here or on a web server by range requests, and how much of it may be."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urljoin, urlsplit

from gpuinstall.errors import InstallationError
from gpuinstall.interruption import within
from gpuinstall.patience import MORE_TIME, USUAL, Pace, Patience

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping
    from pathlib import Path

    from requests import Response

_PIECE = 256 << 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SPAN = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)


class WheelError(InstallationError):
    """A wheel that cannot be read.

    ``code`` is ``wheel-malformed`` (not the zip it should be), ``wheel-too-large`` (more of it than may be read),
    ``no-ranges`` (its server gives no parts of files), ``wrong-range`` (it gives others than asked for),
    ``foreign-redirect``, ``too-slow``, ``http-status`` or ``transfer``.
    """


class Ranges(Protocol):
    """The bytes of one file, ``size`` of them."""

    @property
    def size(self) -> int:
        """The size in bytes."""

    def stream(self, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield the bytes from ``start`` up to ``end`` in pieces; closed early, it reads no further."""


@dataclass(frozen=True)
class FileRanges:
    """A local file."""

    path: Path

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.path.stat().st_size

    def stream(self, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield the bytes from ``start`` up to ``end`` in pieces."""
        with self.path.open("rb") as file:
            file.seek(start)
            while start < end and (piece := file.read(min(_PIECE, end - start))):
                start += len(piece)
                yield piece


@dataclass(frozen=True)
class Limits:
    """What may be read of one wheel: bytes as they come, bytes once inflated, requests."""

    bytes: int = 96 << 20
    inflated: int = 1 << 30
    requests: int = 48


class MeteredRanges:
    """Counts what is read of a file, and ends where it is more than ``limits`` or other than was asked for.

    ``requests`` begins at one, for the size.
    """

    def __init__(self, ranges: Ranges, limits: Limits) -> None:
        self._ranges = ranges
        self._limits = limits
        self.size = ranges.size
        self.bytes_read, self.bytes_inflated, self.requests = 0, 0, 1

    def stream(self, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield exactly the bytes from ``start`` up to ``end``."""
        if not 0 <= start <= end <= self.size:
            raise WheelError("wheel-malformed", f"the wheel has {self.size} bytes and says that some lie behind them")
        self.requests += 1
        self._check()
        with closing(self._ranges.stream(start, end)) as pieces:
            for piece in pieces:
                self.bytes_read += len(piece)
                self._check()
                start += len(piece)
                if start > end:
                    break
                yield piece
        if start != end:
            raise WheelError("wrong-range", "the server sent more or fewer bytes than requested")

    def inflate(self, count: int) -> None:
        """Count bytes that were inflated."""
        self.bytes_inflated += count
        self._check()

    def _check(self) -> None:
        limits, used = self._limits, (self.bytes_read, self.bytes_inflated, self.requests)
        if any(
            count > most for count, most in zip(used, (limits.bytes, limits.inflated, limits.requests), strict=True)
        ):
            raise WheelError(
                "wheel-too-large",
                "the wheel would need more reading than any real one",
                evidence="{} bytes, {} inflated, {} requests".format(*used),
            )


class Ask(Protocol):
    """Sends one GET request and returns once its headers are there: streamed, no redirect followed, time limits set."""

    def __call__(self, url: str, headers: Mapping[str, str], *, login: bool) -> Response:
        """``login`` says whether credentials that belong to the host may go along."""


class HttpRanges:
    """A file at an address; its size is asked for at once.

    A redirect is followed once, to the same host or one of ``hosts``, and without credentials. ``patience`` bounds the
    time of all that is ever read here, and the pace of each part. Raise WheelError where the server gives no ranges,
    others than asked for, or takes longer.
    """

    def __init__(self, ask: Ask, url: str, *, hosts: Collection[str] = (), patience: Patience = USUAL) -> None:
        self._ask, self._url, self._hosts, self._patience = ask, url, hosts, patience
        self._login = True
        self._deadline = monotonic() + patience.standstill
        self.etag: str | None = None
        with closing(self._open(0, 1)) as response:
            self.size = _total(response)
            self.etag = response.headers.get("ETag")
            _keep_open(response)

    def stream(self, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield the bytes from ``start`` up to ``end`` in pieces; closed early, it ends the transfer."""
        if start == end:
            return
        with closing(self._open(start, end)) as response:
            if (_total(response), response.headers.get("ETag")) != (self.size, self.etag):
                raise WheelError("wrong-range", f"{_host(self._url)} changed the file while it was read")
            pace = Pace(self._patience)
            while start < end and (piece := self._read(response, min(_PIECE, end - start))):
                pace.count(len(piece))
                if pace.lags():
                    raise _too_slow()
                start += len(piece)
                yield piece
            if start == end:
                _keep_open(response)

    def _open(self, start: int, end: int) -> Response:
        response = self._send(start, end)
        while response.status_code in _REDIRECTS:
            response.close()
            self._follow(response.headers.get("Location", ""))
            response = self._send(start, end)
        try:
            _check(response, self._url, start, end)
        except WheelError:
            response.close()
            raise
        return response

    def _send(self, start: int, end: int) -> Response:
        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        try:
            return within(self._left(), lambda: self._ask(self._url, headers, login=self._login))
        except TimeoutError:
            raise _too_slow() from None
        except (OSError, ValueError) as error:  # requests reads addresses of redirects even where it follows none
            raise _broken(self._url) from error

    def _follow(self, location: str) -> None:
        refusal = WheelError("foreign-redirect", f"{_host(self._url)} redirects to another host")
        try:
            here, there = urlsplit(self._url), urlsplit(urljoin(self._url, location))
        except ValueError as error:
            raise refusal from error
        known = there.netloc == here.netloc or there.netloc in self._hosts
        if not self._login or there.scheme != here.scheme or not known:
            raise refusal
        self._url, self._login = there.geturl(), False

    def _read(self, response: Response, most: int) -> bytes:
        from urllib3.exceptions import HTTPError

        self._left()
        try:
            piece: bytes = response.raw.read1(most)
        except (HTTPError, OSError) as error:
            raise _broken(self._url) from error
        return piece

    def _left(self) -> float:
        left = self._deadline - monotonic()
        if left <= 0:
            raise _too_slow()
        return left


def _check(response: Response, url: str, start: int, end: int) -> None:
    if response.status_code == 200:
        raise WheelError("no-ranges", f"{_host(url)} does not support range requests")
    if response.status_code != 206:
        raise WheelError("http-status", f"{_host(url)} answered {response.status_code}")
    said = response.headers
    span = _SPAN.fullmatch(said.get("Content-Range", ""))
    length = said.get("Content-Length", str(end - start))
    plain = said.get("Content-Encoding", "identity") == "identity"
    if span is None or (int(span[1]), int(span[2]) + 1, length) != (start, end, str(end - start)) or not plain:
        raise WheelError("wrong-range", f"{_host(url)} sent a different range than requested")


def _keep_open(response: Response) -> None:
    """Give back the connection of an answer that has been read; without a length nobody knows whether it has."""
    if "Content-Length" in response.headers:
        response.raw.drain_conn()


def _total(response: Response) -> int:
    return int(response.headers["Content-Range"].rpartition("/")[2])


def _host(url: str) -> str:
    return urlsplit(url).hostname or "the server"


def _broken(url: str) -> WheelError:
    return WheelError("transfer", f"the download of a wheel from {_host(url)} was interrupted", hint="the same again")


def _too_slow() -> WheelError:
    return WheelError("too-slow", "reading a part of a wheel took too long", hint=MORE_TIME)
