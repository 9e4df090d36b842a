"""HTTP client with shared TLS settings and per-host failure caching."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import own_cache_folder, read_json, write_atomically
from gpuinstall.base.interruption import interrupted, within
from gpuinstall.base.patience import MORE_TIME, RETRIES, USUAL, Pace, Patience
from gpuinstall.base.text import readable, without_logins
from gpuinstall.base.values import Value, asdict
from gpuinstall.base.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from requests import PreparedRequest, Response, Session
    from typing_extensions import Self

HINT_OF_LOGIN = (
    "Add the index's user name and password to its URL"
    ", or set UV_INDEX_<NAME>_USERNAME and UV_INDEX_<NAME>_PASSWORD for an index with a name"
)
_ABSENT = frozenset({403, 404, 410})
"""The statuses of a page that is not there: PyTorch's index, a store of files, answers 403 for one."""

_PAGES = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"

_AS_IT_IS = {"Accept-Encoding": "identity"}
"""For files: a length and a hash are of the bytes themselves, not of what they were packed into on the way."""

AGAIN_S = 0.2
"""How soon a busy host is asked again at the earliest."""

PAGE_BYTES = 50_000_000
"""What a page may have, as docs/trust.md promises."""

FILE_BYTES = 20_000_000_000
"""What a file may have, whatever its server declares."""


_CHUNK = 1 << 20


class Page(Value):
    """A page as it came."""

    text: str
    content_type: str
    url: str
    """Where it was found after redirects, the base of its relative addresses."""
    etag: str | None = None


class FileHash(Value):
    """The sha256 of what an address held."""

    sha256: str
    etag: str | None
    """It tells whether the address still holds it."""


_Answer = TypeVar("_Answer", Page, FileHash)


class AnswerCache(Value, Generic[_Answer]):
    """Answers by the address that was asked for.

    Not CacheControl: it believes ``max-age``, so that a build of this minute is missed for ten, and
    what it reads is outside our limits. An answer that cannot be read or written is no fault.
    """

    folder: Path
    kind: type[_Answer]

    def known(self, url: str) -> _Answer | None:
        """Return the answer of an earlier run."""
        with suppress(OSError, ValueError, TypeError):
            return self.kind(**read_json(self._file(url)))
        return None

    def keep(self, url: str, answer: _Answer) -> None:
        """Keep an answer for the next run."""
        with suppress(InstallationError):
            text = json.dumps(asdict(answer))
            write_atomically(self._file(url), text, is_cached=True)

    def _file(self, url: str) -> Path:
        return self.folder / f"{hashlib.sha256(url.encode()).hexdigest()}.json"


class Head(Value):
    """What a server says of a file; None: nothing."""

    size: int | None = None
    """In bytes."""
    etag: str | None = None
    """It changes when the file does."""


class Cause(NamedTuple):
    """Why a host could not be reached, and what to do."""

    why: str
    hint: str


OFFLINE = Cause(
    "this run is offline",
    "Run it again without --offline, GPUINSTALL_OFFLINE or UV_OFFLINE\n"
    "Make the lock where there is a network: sync --offline installs it if uv's cache has the files",
)
_UNTRUSTED = Cause(
    "its certificate could not be verified",
    "Set SSL_CERT_FILE to a file with the company's authority",
)
_GARBLED = Cause("its redirect is not a URL", "Check the URL")
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


class Client:
    """A session with the web, to be shared between threads.

    Args:
        certificates: The path of a CA bundle.
        logins: "user:password" by scheme, host, and port, as addresses carry none.
        offline: Whether only what is cached may be had.
        cache: The folder for what can be had again; None: the user's own.
        patience: How long to wait.
        quick_hosts: Hosts that must give their first answer within seconds.
    """

    def __init__(
        self,
        certificates: str | None = None,
        *,
        logins: Mapping[str, str] | None = None,
        offline: bool = False,
        cache: Path | None = None,
        patience: Patience = USUAL,
        quick_hosts: Collection[str] = (),
    ) -> None:
        self.patience = patience
        self.received = 0
        """Bytes of files that were downloaded."""
        self._quick_hosts = quick_hosts
        self._certificates = certificates
        self._logins = logins or {}
        self._offline = offline
        self._pages = AnswerCache((cache or own_cache_folder()) / "pages", Page)
        self._session: Session | None = None
        self._lock = threading.Lock()
        self._gates: dict[str, HostGate] = {}
        self._page_locks: dict[str, threading.Lock] = {}
        self._read: dict[str, Page | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.close()

    def page(self, url: str) -> Page | None:
        """Return an index page, fetched once; None if there is none.

        One from an earlier run is taken if the server says that it still holds.
        """
        with self._lock:
            page_lock = self._page_locks.setdefault(url, threading.Lock())
        with page_lock:
            if url not in self._read:
                self._read[url] = self._page(url)
            return self._read[url]

    def head(self, url: str) -> Head:
        """Ask what a file is without fetching it."""
        response = self._head(url)
        if response.status_code >= 400:
            return Head()
        return Head(declared(response), response.headers.get("ETag"))

    def is_gone(self, url: str) -> bool:
        """Whether the server of a file says that it has it no longer."""
        # 403 says nothing: the address that GitHub leads to is for GET alone.
        return self._head(url).status_code in {404, 410}

    def _head(self, url: str) -> Response:
        with self._ask("HEAD", url, _AS_IT_IS) as response:
            # It has no body; only when that is read does its connection serve another.
            response.raw.drain_conn()
            return response

    def ask_part(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        login: bool,
    ) -> Response:
        """Ask for the part of a file that headers name; nothing of it is read yet, and no redirect followed.

        Args:
            url: The address of the file.
            headers: They name the part.
            login: Whether the host's credentials go along.
        """
        return self._ask("GET", url, headers, login=login, redirects=False)

    def unreachable(self, url: str) -> UnreachableError | None:
        """Return what is known of the host of an address, if it did not answer."""
        gate = self._gates.get(urlsplit(url).netloc)
        return gate.failure if gate else None

    def chunks(self, url: str, size: int | None) -> Iterator[bytes]:
        """Yield the bytes of a file.

        Args:
            url: The address of the file.
            size: How many they are, if that is known.

        Raises:
            InstallationError: if their number is not what was declared, or the network fails.
        """
        with self._ask("GET", url, _AS_IT_IS) as response:
            _check(response, url)
            came = 0
            for chunk in read_chunks(
                response, url, size or declared(response), self.patience
            ):
                came += len(chunk)
                with self._lock:
                    self.received += len(chunk)
                yield chunk
        # An answer that declares no length of its own ends wherever its connection does.
        if size is not None and came != size:
            message = f"{url} has {came} bytes, but its server declared {size}"
            raise InstallationError("length", message, hint="Run it again")

    def _page(self, url: str) -> Page | None:
        cached = self._pages.known(url)
        if self._offline and cached is not None:
            return cached
        headers = {"Accept": _PAGES}
        if cached and cached.etag:
            headers["If-None-Match"] = cached.etag
        with self._ask("GET", url, headers) as response:
            chunks = read_chunks(
                response, url, PAGE_BYTES, self.patience, self.patience.page
            )
            text = b"".join(chunks).decode("utf-8", "replace")
        if response.status_code == 304:
            return cached
        if response.status_code in _ABSENT:
            return None
        _check(response, url)
        fields = response.headers
        page = Page(
            text, fields.get("Content-Type", ""), response.url, fields.get("ETag")
        )
        # Without a tag it serves only a run that is offline.
        if "no-store" not in fields.get("Cache-Control", ""):
            self._pages.keep(url, page)
        return page

    def _ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        login: bool = True,
        redirects: bool = True,
    ) -> Response:
        parts = urlsplit(url)
        host = parts.netloc
        server = f"{parts.scheme}://{host}"
        if self._offline:
            raise UnreachableError(host, OFFLINE)
        session = self._opened()
        with self._lock:
            is_quick = host in self._quick_hosts
            gate = self._gates.setdefault(
                host, HostGate(host, self.patience, is_quick=is_quick)
            )
        auth: tuple[str, str] | Callable[[PreparedRequest], PreparedRequest] | None = (
            None
        )
        if not login:
            auth = _no_credentials
        elif server in self._logins:
            user, _, password = self._logins[server].partition(":")
            auth = (user, password)
        send = partial(
            session.request,
            method,
            url,
            headers=headers,
            auth=auth,
            timeout=(self.patience.connection, self.patience.silence),
            # None would leave it to requests, which reads variables of its own.
            verify=self._certificates or True,
            stream=True,
            allow_redirects=redirects,
        )
        return gate.ask(send)

    def _opened(self) -> Session:
        # Imported in one thread alone: if several do, CPython may find a deadlock between them.
        with self._lock:
            import requests
            from requests.adapters import HTTPAdapter
            from urllib3.util import Retry

            if self._session is None:
                self._session = requests.Session()
                self._session.headers["User-Agent"] = f"gpuinstall/{__version__}"
                again = Retry(
                    RETRIES,
                    status_forcelist={500, 502, 504},
                    backoff_factor=0.2,
                    raise_on_status=False,
                    respect_retry_after_header=False,
                )
                for scheme in ("http://", "https://"):
                    adapter = HTTPAdapter(pool_maxsize=32, max_retries=again)
                    self._session.mount(scheme, adapter)
            return self._session


def _no_credentials(request: PreparedRequest) -> PreparedRequest:
    """Add none: with ``auth=None`` those of a netrc file would be sent."""
    return request


def _check(response: Response, url: str) -> None:
    status = response.status_code
    # A server that is down counts as one that does not answer: other sources may serve.
    if status >= 500:
        cause = Cause(f"it answered {status}", "Try again later")
        raise UnreachableError(urlsplit(url).netloc, cause)
    if status >= 400:
        hint = HINT_OF_LOGIN if status == 401 else None
        raise InstallationError(
            "http-status",
            f"{url} answered {status}",
            hint=hint,
        )


class HostGate:
    """Time limits of one host. After a failure it receives no request."""

    def __init__(self, host: str, patience: Patience, *, is_quick: bool) -> None:
        self._host = host
        self._patience = patience
        self._seconds = patience.first_answer if is_quick else patience.answer
        self._until: float | None = None
        self.failure: UnreachableError | None = None
        """Why the host did not answer."""

    def ask(self, send: Callable[[], Response]) -> Response:
        """Send a request.

        Raises:
            UnreachableError: The host does not answer, or has failed to answer an earlier request.
        """
        while True:
            if self.failure:
                raise self.failure
            try:
                response = within(self._seconds, send)
            except UnicodeError as error:
                self.failure = UnreachableError(self._host, _GARBLED)
                raise self.failure from error
            except OSError as error:
                self.failure = UnreachableError(self._host, _cause(error))
                raise self.failure from error
            self._seconds = self._patience.answer
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


def read_chunks(
    response: Response,
    url: str,
    limit: int | None,
    patience: Patience,
    seconds: float | None = None,
) -> Iterator[bytes]:
    """Yield a body as it comes.

    Args:
        response: The answer, of which nothing is read yet.
        url: What was asked for, for messages.
        limit: The most bytes; None: what a file may have.
        patience: How slow it may be.
        seconds: The most time; None: any.

    Raises:
        InstallationError: for more.
    """
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    most = min(limit or FILE_BYTES, FILE_BYTES)
    pace = Pace(patience)
    done = Event()
    faults = _watch(response, pace, patience, seconds, done)
    read = 0
    try:
        # Not read(), which waits until a whole piece has come: a slow one would be seen too late.
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            read += len(chunk)
            if read > most:
                raise InstallationError(
                    "too-large",
                    f"{url} sent more than {readable(most)}",
                    hint="Set GPUINSTALL_TORCH_INDEX or UV_DEFAULT_INDEX to the URL of another index",
                )
            pace.count(len(chunk))
            yield chunk
    except ReadTimeoutError:
        faults.append(f"sent nothing for {patience.silence:.0f} s")
    except HTTPError as error:
        if not faults:
            message = f"the download of {url} was interrupted"
            raise InstallationError("transfer", message, hint="Run it again") from error
    finally:
        done.set()
    # A body without a length ends without an error when the connection is shut down.
    if faults:
        raise InstallationError("too-slow", f"{url} {faults[0]}", hint=MORE_TIME)


def _watch(
    response: Response,
    pace: Pace,
    patience: Patience,
    seconds: float | None,
    done: Event,
) -> list[str]:
    """Shut a connection down that comes too slowly or takes too long: reads themselves end by silence alone.

    Args:
        response: What comes.
        pace: Counts what has come.
        patience: How slow it may be.
        seconds: The most time; None: any.
        done: Is set once the reading has ended.

    Returns:
        The reason, once there is one.
    """
    window = patience.window
    start = monotonic()
    faults: list[str] = []

    def look() -> None:
        while not faults:
            if done.wait(min(1.0, window / 8)):
                return
            if pace.lags():
                least = readable(int(patience.floor * window))
                faults.append(f"sent less than {least} in {window:.0f} s")
            elif seconds and monotonic() - start > seconds:
                faults.append(f"was not done after {seconds:.0f} s")
        # It may have been closed meanwhile.
        with suppress(OSError, RuntimeError, ValueError):
            response.raw.shutdown()

    Thread(target=look, daemon=True).start()
    return faults


def declared(response: Response) -> int | None:
    """Return the length that a server declares for bytes that it sends as they are."""
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
    for name, address in os.environ.items():
        if address and re.fullmatch("(?i)(https?|all)_proxy", name):
            return f"Check the proxy: {name} is {without_logins(address)}"
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
