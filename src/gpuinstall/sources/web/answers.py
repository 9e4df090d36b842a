"""What hosts answer: whether they do, found out once and in seconds; and bodies, within limits."""

from __future__ import annotations

import os
import re
import threading
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, sleep, time
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

PROXIES = (
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "HTTP_PROXY",
    "http_proxy",
)
_CHUNK = 1 << 20
_OTHER = "The index is faulty. Use another: --torch-index, or UV_DEFAULT_INDEX"


class Cause(NamedTuple):
    """Why a host could not be reached, and what to do."""

    why: str
    hint: str


OFFLINE = Cause("this run is offline", "Run it again without --offline")


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
            seconds = self._patience.window
            if not self._answered:
                seconds = min(FIRST_ANSWER_S, seconds)
            response = self._try(partial(within, seconds, send))
            self._answered = True
            wait = _retry_after(response)
            if wait is None or not self._may_wait(wait):
                return response
            response.close()
            until = monotonic() + max(wait, AGAIN_S)
            while monotonic() < until and not interrupted():
                sleep(min(0.1, max(0.0, until - monotonic())))

    def _may_wait(self, seconds: float) -> bool:
        """Whether a host that asks for time still has it: a window in all, for all requests."""
        if self._until is None:
            self._until = monotonic() + self._patience.window
        return monotonic() + seconds <= self._until

    def _try(self, send: Callable[[], Response]) -> Response:
        if self._closed is not None:
            raise UnreachableError(self._host, self._closed)
        try:
            return send()
        except OSError as error:
            self._closed = _cause(error)
            raise UnreachableError(self._host, self._closed) from error


def read_page(
    response: Response,
    url: str,
    patience: Patience,
) -> bytes:
    """Return a page; raise InstallationError if it is too large, or takes too long."""
    chunks = read_chunks(response, url, PAGE_BYTES, patience, patience.page)
    return b"".join(chunks)


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
    most = min(limit or FILE_BYTES, FILE_BYTES)
    pace = Pace(patience)
    read = 0
    with _transfer(url, patience), _watched(response, url, pace, patience, seconds):
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            read += len(chunk)
            if read > most:
                message = f"{url} sent more than {readable(most)}"
                raise InstallationError(
                    "too-large",
                    message,
                    hint=_OTHER,
                )
            pace.count(len(chunk))
            yield chunk


def declared(response: Response) -> int | None:
    """Return the length that a server declares of what it sends as it is."""
    length = response.headers.get("Content-Length", "")
    if not length.isdecimal() or len(length) >= 20:
        return None
    return int(length)


def _retry_after(response: Response) -> float | None:
    """Return the seconds that a busy host asks for; None if it is not busy, or does not say."""
    header = response.headers.get("Retry-After", "")
    if response.status_code not in {429, 503} or not header:
        return None
    if header.isdecimal():
        return float(header[:6])
    from email.utils import parsedate_to_datetime  # which takes long to load

    with suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(header).timestamp() - time())
    return None


_CERTIFICATES = "export SSL_CERT_FILE=/path/to/ca-certificates.crt"
_UNTRUSTED = Cause("its certificate could not be verified", _CERTIFICATES)
_BY_TEXT = {
    "CA certificate": Cause("the CA certificates cannot be read", _CERTIFICATES),
    "Failed to resolve": Cause(
        "its host name could not be resolved",
        "Check the network connection and DNS",
    ),
    "refused": Cause("connection refused", "Check the URL and its port"),
    "": Cause("the connection failed", "Check the network connection"),
}


def ways_to_network() -> str:
    """Return what to do if no host answers: check the proxy that is set, or set one."""
    for name in PROXIES:
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
    # The last is for any text.
    return next(cause for sign, cause in _BY_TEXT.items() if sign in text)


@contextmanager
def _watched(
    response: Response,
    url: str,
    pace: Pace,
    patience: Patience,
    seconds: float | None,
) -> Iterator[None]:
    """Shut the connection down if it comes too slowly or takes too long.

    Reads themselves end by silence alone.
    """
    done = threading.Event()
    start = monotonic()
    reasons: list[str] = []

    def watch() -> None:
        while not done.wait(min(1.0, patience.silence / 4)):
            if pace.lags():
                least = readable(int(patience.floor * patience.window))
                reasons.append(f"sent less than {least} in {patience.window:.0f} s")
            elif seconds is not None and monotonic() - start > seconds:
                reasons.append(f"was not done after {seconds:.0f} s")
            else:
                continue
            with suppress(OSError, RuntimeError, ValueError):
                response.raw.shutdown()
            return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except Exception as error:
        if reasons:
            raise _too_slow(url, reasons[0]) from error
        raise
    finally:
        done.set()
    # A body without a length ends when the connection is shut down.
    if reasons:
        raise _too_slow(url, reasons[0])


@contextmanager
def _transfer(url: str, patience: Patience) -> Iterator[None]:
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    try:
        yield
    except ReadTimeoutError as error:
        raise _too_slow(url, f"sent nothing for {patience.silence:.0f} s") from error
    except HTTPError as error:
        message = f"the download of {url} was interrupted"
        raise InstallationError(
            "transfer",
            message,
            hint="Run it again",
        ) from error


def _too_slow(url: str, rate: str) -> InstallationError:
    return InstallationError(
        "too-slow",
        f"{url} {rate}",
        hint=MORE_TIME,
    )
