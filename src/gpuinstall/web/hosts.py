"""Whether a host answers: found out once, within seconds, however many addresses and threads there are."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.errors import InstallationError
from gpuinstall.interruption import interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from requests import Response

FIRST_ANSWER_S = 6.0
"""How long a host may take to be found, connected to and to begin its first answer."""


class Cause(NamedTuple):
    """Why a host could not be reached, and what to do."""

    why: str
    hint: str


class UnreachableError(InstallationError):
    """A host that did not answer."""

    def __init__(self, host: str, cause: Cause) -> None:
        super().__init__("unreachable", f"{host} cannot be reached", why=cause.why, hint=cause.hint)
        self.host = host
        self.untrusted = cause is _UNTRUSTED


class HostGate:
    """The way to one host: requests wait only so long for its first answer, and once one has failed nobody tries."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._answered = False
        self._closed: Cause | None = None

    @property
    def failure(self) -> UnreachableError | None:
        """What is known of a host that did not answer."""
        return UnreachableError(self._host, self._closed) if self._closed else None

    def ask(self, send: Callable[[], Response]) -> Response:
        """Send a request; raise UnreachableError where the host does not answer, or did not before."""
        response = self._try(send if self._answered else lambda: _within(FIRST_ANSWER_S, send))
        self._answered = True
        return response

    def _try(self, send: Callable[[], Response]) -> Response:
        if self._closed is not None:
            raise UnreachableError(self._host, self._closed)
        try:
            return send()
        except OSError as error:
            self._closed = _cause(error)
            raise UnreachableError(self._host, self._closed) from error


def _within(seconds: float, send: Callable[[], Response]) -> Response:
    outcome: list[Response | Exception] = []

    def call() -> None:
        try:
            outcome.append(send())
        except Exception as error:  # noqa: BLE001  raised again by the thread that waits
            outcome.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    deadline = monotonic() + seconds
    while thread.is_alive() and monotonic() < deadline and not interrupted():
        thread.join(0.1)
    if not outcome:
        raise TimeoutError
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


_CERTIFICATES = "export SSL_CERT_FILE=/path/to/ca-certificates.crt"
_UNTRUSTED = Cause("its certificate could not be verified", _CERTIFICATES)
_BY_TEXT = {
    "CA certificate": Cause("the file of certificates to trust cannot be read", _CERTIFICATES),
    "Failed to resolve": Cause("its name is not known here", "look at the network and its name server"),
    "refused": Cause("it refused the connection", "look at the address and its port"),
    "": Cause("the connection failed", "look at the network"),
}


def _cause(error: OSError) -> Cause:
    from requests.exceptions import ProxyError, SSLError, Timeout

    if isinstance(error, SSLError):
        return _UNTRUSTED
    if isinstance(error, ProxyError):
        return Cause("the proxy did not let us through", "look at HTTPS_PROXY and NO_PROXY")
    if isinstance(error, (Timeout, TimeoutError)):
        return Cause("it did not answer within seconds", "look at the network, or at HTTPS_PROXY")
    return next(cause for text, cause in _BY_TEXT.items() if text in str(error))
