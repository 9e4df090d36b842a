"""What hosts answer: whether they do, found out once and in seconds; and bodies, within limits."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from threading import Event, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.interruption import interrupted, within
from gpuinstall.base.patience import MORE_TIME, Pace, Patience
from gpuinstall.base.units import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from requests import Response


FIRST_ANSWER_S = 6.0
"""How long a host may take to be found, connected to and to begin its first answer."""

AGAIN_S = 0.2
"""How soon a busy host is asked again at the earliest."""

PAGE_BYTES = 50_000_000
FILE_BYTES = 20_000_000_000
"""What a file may have, whatever its server declares."""

_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy")
_CHUNK = 1 << 20


class Cause(NamedTuple):
    """Why a host could not be reached, and what to do."""

    why: str
    hint: str


OFFLINE = Cause("this run is offline", "Run it again without --offline")
_UNTRUSTED = Cause(
    "its certificate could not be verified",
    "export SSL_CERT_FILE=/path/to/ca-certificates.crt",
)
_BY_TEXT = {
    "CA certificate": _UNTRUSTED._replace(why="the CA certificates cannot be read"),
    "Failed to resolve": Cause(
        "its host name could not be resolved",
        "Check the network connection and DNS",
    ),
    "refused": Cause("connection refused", "Check the URL and its port"),
    "": Cause("the connection failed", "Check the network connection"),
}
"""By what the text of an error has; the last is for any text."""


class UnreachableError(InstallationError):
    """A host that did not answer."""

    def __init__(self, host: str, cause: Cause) -> None:
        super().__init__(
            "unreachable",
            f"{host} cannot be reached",
            why=cause.why,
            hint=cause.hint,
        )
        self.host = host
        self.untrusted = cause is _UNTRUSTED


class HostGate:
    """The way to one host: requests wait so long for a first answer, and none after a failure."""

    def __init__(self, host: str, patience: Patience) -> None:
        self._host = host
        self._patience = patience
        self._until: float | None = None
        self._answered = False
        self._closed: Cause | None = None

    @property
    def failure(self) -> UnreachableError | None:
        """What is known of a host that did not answer."""
        if self._closed is None:
            return None
        return UnreachableError(self._host, self._closed)

    def ask(self, send: Callable[[], Response]) -> Response:
        """Send a request; raise UnreachableError if the host does not answer, or did not before."""
        while True:
            if self.failure:
                raise self.failure
            seconds = self._patience.window
            if not self._answered:
                seconds = min(FIRST_ANSWER_S, seconds)
            try:
                response = within(seconds, send)
            except OSError as error:
                self._closed = _cause(error)
                raise UnreachableError(self._host, self._closed) from error
            self._answered = True
            wait = _retry_after(response)
            if wait is None or not self._may_wait(wait):
                return response
            response.close()
            until = monotonic() + max(wait, AGAIN_S)
            while monotonic() < until and not interrupted():
                sleep(0.1)

    def _may_wait(self, seconds: float) -> bool:
        """Whether a host that asks for time still has it: a window in all, for all requests."""
        if self._until is None:
            self._until = monotonic() + self._patience.window
        return monotonic() + seconds <= self._until


def read_page(response: Response, url: str, patience: Patience) -> bytes:
    """Return a page; raise InstallationError if it is too large, or takes too long."""
    return b"".join(read_chunks(response, url, PAGE_BYTES, patience, patience.page))


def read_chunks(
    response: Response,
    url: str,
    limit: int | None,
    patience: Patience,
    seconds: float | None = None,
) -> Iterator[bytes]:
    """Yield a body as it comes.

    Args:
        limit: The most bytes; None: what a file may have.
        seconds: The most time; None: any.

    Raises:
        InstallationError: for more.
    """
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    most = min(limit or FILE_BYTES, FILE_BYTES)
    watch = _Watch(response, patience, seconds)
    watch.start()
    read = 0
    try:
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            read += len(chunk)
            if read > most:
                raise InstallationError(
                    "too-large",
                    f"{url} sent more than {readable(most)}",
                    hint="The index is faulty. Use another: --torch-index, or UV_DEFAULT_INDEX",
                )
            watch.pace.count(len(chunk))
            yield chunk
    except ReadTimeoutError:
        watch.reason = watch.reason or f"sent nothing for {patience.silence:.0f} s"
    except HTTPError as error:
        if not watch.reason:
            message = f"the download of {url} was interrupted"
            raise InstallationError("transfer", message, hint="Run it again") from error
    finally:
        watch.done.set()
    # A body without a length ends without an error when the connection is shut down.
    if watch.reason:
        raise InstallationError("too-slow", f"{url} {watch.reason}", hint=MORE_TIME)


class _Watch(Thread):
    """Shuts a connection down that comes too slowly or takes too long: reads themselves end by silence alone."""

    def __init__(self, response: Response, patience: Patience, seconds: float | None) -> None:
        super().__init__(daemon=True)
        self.done = Event()
        self.pace = Pace(patience)
        self.reason = ""
        self._response = response
        self._patience = patience
        self._seconds = seconds
        self._start = monotonic()

    def run(self) -> None:
        """Look now and then until the body has come."""
        window = self._patience.window
        while not self.reason:
            if self.done.wait(min(1.0, window / 8)):
                return
            if self.pace.lags():
                least = readable(int(self._patience.floor * window))
                self.reason = f"sent less than {least} in {window:.0f} s"
            elif self._seconds and monotonic() - self._start > self._seconds:
                self.reason = f"was not done after {self._seconds:.0f} s"
        with suppress(OSError, RuntimeError, ValueError):
            self._response.raw.shutdown()


def declared(response: Response) -> int | None:
    """Return the length that a server declares of what it sends as it is."""
    length = response.headers.get("Content-Length", "")
    if not length.isdecimal() or len(length) >= 20:
        return None
    return int(length)


def _retry_after(response: Response) -> float | None:
    """Return the seconds that a busy host asks for; None if it is not busy, or does not say."""
    from urllib3.exceptions import HTTPError
    from urllib3.util import Retry

    if response.status_code in {429, 503}:
        with suppress(HTTPError, ValueError, OverflowError):
            return Retry().get_retry_after(response.raw)
    return None


def ways_to_network() -> str:
    """Return what to do if no host answers: check the proxy that is set, or set one."""
    for name in _PROXIES:
        if os.environ.get(name):
            address = re.sub("//[^/@]*@", "//", os.environ[name])
            return f"Check the proxy: {name} is {address}"
    return "Behind a proxy, set HTTPS_PROXY; for a mirror, UV_DEFAULT_INDEX"


def _cause(error: OSError) -> Cause:
    from requests.exceptions import ProxyError, SSLError, Timeout

    text = str(error)
    match error:
        case SSLError():
            return _UNTRUSTED
        case ProxyError() if "Tunnel connection failed" in text:
            return Cause("the proxy refused the request", ways_to_network())
        case ProxyError():
            return Cause("the proxy cannot be reached", ways_to_network())
        case Timeout() | TimeoutError():
            hint = "Check the network connection, or HTTPS_PROXY"
            return Cause("it did not answer in time", hint)
    return next(cause for sign, cause in _BY_TEXT.items() if sign in text)
