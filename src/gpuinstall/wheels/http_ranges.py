"""Read parts of a file on a web server by HTTP range requests."""

from __future__ import annotations

import re
from contextlib import closing
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from gpuinstall.base.timeouts import MORE_TIME, USUAL, Timeouts
from gpuinstall.wheels.ranges import TAIL, Pieces, WheelError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from requests import Response

    Ask = Callable[..., Response]
    """A function that sends a GET request and returns the response stream.

    ``login`` is whether credentials for the host may be sent.
    """

_PIECE = 256 << 10
_WITHOUT_SUFFIX = frozenset({400, 416, 501})
"""HTTP statuses of servers that do not support ranges without a start."""
_PART = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class HttpRanges:
    """File at a URL. The constructor requests its end, and thereby its size.

    One redirect to the same host or one of ``hosts`` is followed without credentials.
    With None, all hosts are allowed.
    ``timeouts`` limits the total time of all reads.

    Raises:
        WheelError: The server sends no ranges or wrong ranges, or is too slow.
    """

    def __init__(
        self,
        ask: Ask,
        url: str,
        *,
        hosts: Collection[str] | None = (),
        timeouts: Timeouts = USUAL,
    ) -> None:
        self._ask = ask
        self._url = url
        self._hosts = hosts
        self._login = True
        self._deadline = monotonic() + timeouts.wheel
        self._tail = b""
        response = self._request(f"-{TAIL}")
        has_tail = response.status_code not in _WITHOUT_SUFFIX
        if not has_tail:
            response.close()
            response = self._request("0-0")
        with closing(response):
            *span, self.size = self._find_part(response)
            start = max(0, self.size - TAIL)
            if span != ([start, self.size] if has_tail else [0, 1]):
                raise _wrong_range(self._url)
            self._etag = response.headers.get("ETag")
            if has_tail:
                self._tail = self._read(response, self.size - start)
            _keep_connection(response)

    def stream(self, start: int, end: int) -> Pieces:
        """Yield a part of the file's bytes. ``close`` ends the transfer."""
        first = self.size - len(self._tail)
        if start >= first:
            yield self._tail[start - first : end - first]
            return
        if start == end:
            return
        with closing(self._request(f"{start}-{end - 1}")) as response:
            *span, size = self._find_part(response)
            if span != [start, end]:
                raise _wrong_range(self._url)
            if (size, response.headers.get("ETag")) != (self.size, self._etag):
                message = f"the file on {_host(self._url)} changed while it was read"
                raise WheelError("wrong-range", message)
            while start < end:
                # With pieces of a fixed size, bytes_read is reproducible.
                piece = self._read(response, min(_PIECE, end - start))
                if not piece:
                    break
                start += len(piece)
                yield piece
            if start == end:
                _keep_connection(response)

    def _request(self, span: str) -> Response:
        """Request a part of the file, and follow a redirect."""
        response = self._send(span)
        while response.status_code in _REDIRECTS:
            response.close()
            self._follow_redirect(response.headers.get("Location", ""))
            response = self._send(span)
        return response

    def _find_part(self, response: Response) -> tuple[int, int, int]:
        """Return the start and end of a response, and the size of the file.

        Raises:
            WheelError: The response is not a part of the file.
        """
        if response.status_code == 200:
            message = f"{_host(self._url)} does not support range requests"
            raise WheelError("no-ranges", message)
        if response.status_code != 206:
            message = f"{_host(self._url)} returned HTTP status {response.status_code}"
            raise WheelError("http-status", message)
        headers = response.headers
        part = _PART.fullmatch(headers.get("Content-Range", ""))
        if part and headers.get("Content-Encoding", "identity") == "identity":
            first, last, size = map(int, part.groups())
            length = str(last + 1 - first)
            if headers.get("Content-Length", length) == length:
                return first, last + 1, size
        raise _wrong_range(self._url)

    def _send(self, span: str) -> Response:
        # A range of a compressed response would not be a range of the file.
        headers = {
            "Range": f"bytes={span}",
            "Accept-Encoding": "identity",
        }
        self._check_time()
        try:
            return self._ask(self._url, headers, login=self._login)
        # requests parses redirect URLs even if it does not follow them.
        except (OSError, ValueError) as error:
            raise self._transfer_error(error) from error

    def _follow_redirect(self, location: str) -> None:
        """Follow a redirect, or raise WheelError if it is not allowed."""
        try:
            here = urlsplit(self._url)
            there = urlsplit(urljoin(self._url, location))
            is_known = self._hosts is None or there.netloc in {
                here.netloc,
                *self._hosts,
            }
            # If _login is False, a redirect has already been followed.
            is_allowed = is_known and there.scheme == here.scheme and self._login
        except ValueError:
            is_allowed = False
        if not is_allowed:
            message = f"{_host(self._url)} redirects to another host"
            raise WheelError("foreign-redirect", message)
        self._url = there.geturl()
        # Never send credentials to the target of a redirect.
        self._login = False

    def _read(self, response: Response, most: int) -> bytes:
        """Read ``most`` bytes of a response, or fewer at its end."""
        from urllib3.exceptions import HTTPError

        data = bytearray()
        while len(data) < most:
            self._check_time()
            try:
                part: bytes = response.raw.read1(most - len(data))
            except (HTTPError, OSError) as error:
                raise self._transfer_error(error) from error
            if not part:
                break
            data += part
        return bytes(data)

    def _check_time(self) -> None:
        """Raise WheelError after the deadline."""
        if monotonic() > self._deadline:
            raise WheelError(
                "too-slow", "reading a part of a wheel took too long", hint=MORE_TIME
            )

    def _transfer_error(self, error: Exception) -> WheelError:
        is_slow = "timed out" in str(error)
        return WheelError(
            "transfer",
            f"the download of a wheel from {_host(self._url)} was interrupted",
            why="it timed out" if is_slow else None,
            hint="Run it again",
        )


def _wrong_range(url: str) -> WheelError:
    message = f"{_host(url)} sent a different range than requested"
    return WheelError("wrong-range", message)


def _keep_connection(response: Response) -> None:
    """Read a short rest of a response, so that its connection is reused."""
    if "Content-Length" in response.headers:
        response.raw.drain_conn()


def _host(url: str) -> str:
    return urlsplit(url).hostname or "the server"
