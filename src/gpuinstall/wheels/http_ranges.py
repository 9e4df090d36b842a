"""Parts of a file on a web server, by range requests: nothing that was not asked for is read, nor waited for."""

from __future__ import annotations

import re
from contextlib import closing
from time import monotonic
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urljoin, urlsplit

from gpuinstall.interruption import within
from gpuinstall.patience import MORE_TIME, USUAL, Pace, Patience
from gpuinstall.wheels.ranges import WheelError

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping

    from requests import Response

_PIECE = 256 << 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SPAN = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)


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

    def __init__(
        self, ask: Ask, url: str, *, hosts: Collection[str] = (), patience: Patience = USUAL
    ) -> None:
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
                raise WheelError(
                    "wrong-range", f"{_host(self._url)} changed the file while it was read"
                )
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
        except (
            OSError,
            ValueError,
        ) as error:  # requests reads addresses of redirects even where it follows none
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
    if (
        span is None
        or (int(span[1]), int(span[2]) + 1, length) != (start, end, str(end - start))
        or not plain
    ):
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
    return WheelError(
        "transfer",
        f"the download of a wheel from {_host(url)} was interrupted",
        hint="the same again",
    )


def _too_slow() -> WheelError:
    return WheelError("too-slow", "reading a part of a wheel took too long", hint=MORE_TIME)
