"""HTTP client with shared TLS settings and per-host failure caching."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from functools import partial
from os.path import isfile
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from gpuinstall.base.advice import make_change
from gpuinstall.base.cache import HostCache, JsonCache
from gpuinstall.base.errors import InstallationError, UnreachableError
from gpuinstall.base.files import own_cache_folder, read_document
from gpuinstall.base.interruption import call_with_timeout
from gpuinstall.base.location import LINKS_FRAGMENT, file_path
from gpuinstall.base.requirement import is_file_url
from gpuinstall.base.text import format_size, remove_logins
from gpuinstall.base.timeouts import MORE_TIME, RETRIES, USUAL, Timeouts
from gpuinstall.base.values import Struct, Value, field
from gpuinstall.base.version import __version__
from gpuinstall.sources.credentials import find_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from requests import PreparedRequest, Response, Session
    from typing_extensions import Self

LOGIN_HINT = (
    "Add the index's user name and password to its URL"
    ", or set UV_INDEX_<NAME>_USERNAME and UV_INDEX_<NAME>_PASSWORD for an index with a name"
)
_ABSENT = frozenset({403, 404, 410})
"""HTTP statuses of a missing page. PyTorch's index responds with 403."""

_PAGES = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"

_UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Headers for files. Lengths and hashes apply to uncompressed bytes."""

PAGE_BYTES = 50_000_000
"""The size limit of a page, documented in docs/trust.md."""

FILE_BYTES = 20_000_000_000
"""The size limit of a file, even if the server declares a larger size."""


_CHUNK = 1 << 20

ALL_PACKAGES = ":all:"
"""uv's word for all packages."""

RECENT_S = 600
"""Maximum age in seconds of an index page that is used without a request."""


class Page(Value):
    """Page of a package index, or the fact that an index has no such page."""

    text: str
    content_type: str
    url: str
    """The final URL after redirects, which is the base of relative URLs."""
    etag: str | None = None
    exists: bool = True


class FileHash(Value):
    """SHA-256 digest of the file at a URL."""

    sha256: str
    etag: str | None = None
    """The entity tag, which changes with the file."""


class Head(Value):
    """Response headers of a file. None means that a header is missing."""

    size: int | None = None
    """The size in bytes."""
    etag: str | None = None


LOCK_ONLINE = (
    "On a machine with a network, run gpuinstall lock and gpuinstall lock download wheels; "
    "copy the requirements, pylock.*.toml, and wheels; run gpuinstall sync --offline --wheels wheels"
)
OFFLINE = "this run is offline, and the cache lacks a page or file of this host"
OFFLINE_HINT = (
    make_change(without=("--offline",)),
    "Unset GPUINSTALL_OFFLINE and UV_OFFLINE if they are set",
    LOCK_ONLINE,
)
_UNTRUSTED = (
    "its certificate could not be verified",
    "Set SSL_CERT_FILE to a file with your company's CA certificate",
)
_CAUSES = {
    "No such file": ("the CA certificates cannot be read", _UNTRUSTED[1]),
    "Failed to resolve": (
        "its host name could not be resolved",
        "Check the network connection and DNS",
    ),
    "refused": ("connection refused", "Check the URL and its port"),
    "": ("the connection failed", "Check the network connection"),
}
"""Causes and hints by a part of the error. The last one matches any error."""


class Client(Struct, dict=True, eq=False):
    """Thread-safe HTTP client."""

    certificates: str | None = None
    """The path of a CA bundle.

    None: certifi's certificates, and the system's store.
    """
    logins: Mapping[str, str] = {}
    """``user:password`` by prefix of URLs, which contain no logins."""
    offline: bool = False
    """Whether to use only the cache."""
    proxies: Mapping[str, str] = {}
    """The variables of proxies that the environment lacks."""
    insecure_hosts: Collection[str] = ()
    """Hosts whose certificates are not verified."""
    cache: Path = field(default_factory=own_cache_folder)
    """The folder of cached pages."""
    timeouts: Timeouts = USUAL
    quick_hosts: Collection[str] = ()
    """Hosts that have alternatives.

    Their first response has a shorter time limit, and they are tried again without a
    pause.
    """
    current: tuple[str, ...] = ()
    """Prefixes of pages that are revalidated."""
    ignored: Mapping[str, Collection[int]] = {}
    """Status codes of missing pages, by URL of the index."""
    renewed: frozenset[str] = frozenset()
    """Packages with pages to revalidate, or ``ALL_PACKAGES``."""
    received: int = 0
    """The number of downloaded bytes of files."""

    def __post_init__(self) -> None:
        self.hashes = JsonCache(self.cache / "hashes", FileHash)
        """The hashes of downloaded files."""
        self._pages = JsonCache(self.cache / "pages", Page)
        self._silent_hosts = HostCache(self.cache / "unreachable")
        self._untried = set(self.quick_hosts)
        """The quick hosts that have not responded."""
        self._session: Session | None = None
        self._lock = threading.Lock()
        self._failures: dict[str, UnreachableError] = {}
        self._page_locks: dict[str, threading.Lock] = {}
        self._read: dict[str, Page] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.close()

    def page(self, url: str, *, allow_recent: bool = False) -> Page | None:
        """Return an index page, or None if it does not exist.

        Each page is requested once per run. A cached page is revalidated unless it is
        recent. uv has the same limit for pages of the default index.

        Args:
            url: The URL of the page.
            allow_recent: Whether a recent page is used even if pages of its index are
                revalidated.
        """
        if is_file_url(url):
            return _read_local_page(url)
        with self._lock:
            page_lock = self._page_locks.setdefault(url, threading.Lock())
        with page_lock:
            if url not in self._read:
                is_renewed = self._is_renewed(url) and not allow_recent
                page = self._pages.get(url, 0 if is_renewed else RECENT_S)
                if page is None or not page.exists:
                    page = self._fetch_page(url, self._pages.get(url))
                self._read[url] = page
            page = self._read[url]
            return page if page.exists else None

    def optional_page(self, url: str) -> Page | None:
        """Return an index page that may be old, without a long wait."""
        read = partial(self.page, url, allow_recent=True)
        try:
            # The request continues, so that a later one does not start again.
            return call_with_timeout(self.timeouts.first_response, read)
        except (UnreachableError, TimeoutError):
            page = self._pages.get(url)
            return page if page and page.exists else None

    def _is_renewed(self, url: str) -> bool:
        name = url.rstrip("/").rpartition("/")[2]
        if not self.renewed.isdisjoint({name, ALL_PACKAGES}):
            return True
        return url.startswith(self.current)

    def cached_text(self, place: str, mark: str) -> str | None:
        """Return a cached text if it has the same mark, such as a hash."""
        kept = self._pages.get(place)
        return kept.text if kept and kept.etag == mark else None

    def cache_text(self, place: str, mark: str, text: str) -> None:
        """Cache a text that never changes, such as METADATA with a hash."""
        self._pages.put(place, Page(text, "", place, mark))

    def head(self, url: str) -> Head:
        """Request the headers of a file."""
        response = self._request_head(url)
        if response.status_code >= 400:
            return Head()
        return Head(content_length(response), response.headers.get("ETag"))

    def is_gone(self, url: str) -> bool:
        """Return whether a file no longer exists on its server."""
        # Other errors do not count: GitHub redirects HEAD to a URL that returns 403.
        return self._request_head(url).status_code in {404, 410}

    def _request_head(self, url: str) -> Response:
        with self._request("HEAD", url, _UNCOMPRESSED) as response:
            # Read the empty body, so that the connection can be reused.
            response.raw.drain_conn()
            return response

    def request_range(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        login: bool,
    ) -> Response:
        """Request a range of a file, without following redirects.

        Args:
            url: The URL of the file.
            headers: The headers with the range.
            login: Whether to send the host's credentials.

        Returns:
            The response, whose body is not read yet.
        """
        return self._request("GET", url, headers, login=login, redirects=False)

    def unreachable(self, url: str) -> UnreachableError | None:
        """Return the first failure of a URL's host, if any."""
        return self._failures.get(urlsplit(url).netloc)

    def find_silence(self, page: str) -> UnreachableError | None:
        """Request a page, and return the failure of its host, if any.

        In an offline run, no host fails.
        """
        with suppress(InstallationError):
            self.page(page)
        silence = self.unreachable(page)
        return None if silence and silence.why == OFFLINE else silence

    def was_unreachable(self, url: str) -> bool:
        """Return whether a URL's host was unreachable in the last minutes."""
        return self._silent_hosts.has(urlsplit(url).netloc)

    def chunks(self, url: str, size: int | None) -> Iterator[bytes]:
        """Yield the bytes of a file.

        Args:
            url: The URL of the file.
            size: The expected number of bytes. None: unknown.

        Raises:
            InstallationError: The size differs, or the network fails.
        """
        with self._request("GET", url, _UNCOMPRESSED) as response:
            _check_status(response, url)
            received = 0
            limit = size or content_length(response) or FILE_BYTES
            for chunk in read_chunks(response, url, limit, self.timeouts.total):
                received += len(chunk)
                with self._lock:
                    self.received += len(chunk)
                yield chunk
        # Without a Content-Length, a broken connection raises no error.
        if size is not None and received != size:
            message = f"expected {size} bytes from {url}, got {received}"
            raise InstallationError("length", message, hint="Run it again")

    def _fetch_page(self, url: str, cached: Page | None) -> Page:
        if self.offline and cached is not None:
            return cached
        headers = {"Accept": _PAGES}
        if cached and cached.etag:
            headers["If-None-Match"] = cached.etag
        with self._request("GET", url, headers) as response:
            chunks = read_chunks(response, url, PAGE_BYTES, self.timeouts.page)
            text = b"".join(chunks).decode("utf-8", "replace")
        if cached and response.status_code == 304:
            self._pages.touch(url)
            return cached
        fields = response.headers
        absent = set(_ABSENT)
        for index, codes in self.ignored.items():
            if url.startswith(f"{index}/"):
                absent.update(codes)
        if response.status_code in absent:
            page = Page("", "", url, exists=False)
        else:
            _check_status(response, url)
            page = Page(
                text, fields.get("Content-Type", ""), response.url, fields.get("ETag")
            )
        # A page without an entity tag is used only offline.
        if "no-store" not in fields.get("Cache-Control", ""):
            self._pages.put(url, page)
        return page

    def _request(
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
        if self.offline:
            raise self._failures.setdefault(
                host, UnreachableError(host, OFFLINE, OFFLINE_HINT)
            )
        session = self._open_session()
        auth: tuple[str, str] | Callable[[PreparedRequest], PreparedRequest] | None = (
            None
        )
        if not login:
            auth = _omit_credentials
        elif prefix := find_prefix(url, self.logins):
            user, _, password = self.logins[prefix].partition(":")
            auth = (user, password)
        is_verified = {host, parts.hostname}.isdisjoint(self.insecure_hosts)
        send = partial(
            session.request,
            method,
            url,
            headers=headers,
            auth=auth,
            timeout=(self.timeouts.connection, self.timeouts.silence),
            # With None, requests would read its own environment variables.
            verify=is_verified and (self.certificates or True),
            stream=True,
            allow_redirects=redirects,
        )
        return self._send(host, send)

    def _send(self, host: str, send: Callable[[], Response]) -> Response:
        """Send a request to a host, unless an earlier request failed.

        Raises:
            UnreachableError: The host does not respond, now or in an earlier request.
        """
        if host in self._failures:
            raise self._failures[host]
        seconds = self.timeouts.answer
        if host in self._untried:
            seconds = self.timeouts.first_response
        try:
            response = call_with_timeout(seconds, send)
        except (OSError, UnicodeError) as error:
            failure = UnreachableError(host, *_find_cause(error))
            self._silent_hosts.add(host)
            raise self._failures.setdefault(host, failure) from error
        self._untried.discard(host)
        return response

    def _open_session(self) -> Session:
        # Concurrent imports can deadlock in CPython.
        with self._lock:
            import requests
            from urllib3 import disable_warnings

            from gpuinstall.sources.adapter import (
                CertificateRetry,
                SharedContextAdapter,
            )

            if self._session is None:
                session = requests.Session()
                # urllib3 warns of each request to a host that the user lists.
                disable_warnings()
                session.headers["User-Agent"] = f"gpuinstall/{__version__}"
                retry = CertificateRetry(
                    RETRIES,
                    status_forcelist={500, 502, 504},
                    backoff_factor=0.2,
                    raise_on_status=False,
                )
                create = partial(
                    SharedContextAdapter,
                    self.proxies.get("NO_PROXY", ""),
                    pool_maxsize=32,
                )
                adapter = create(max_retries=retry)
                # A host with alternatives is tried again once, without a pause.
                quick = create(max_retries=retry.new(connect=1))
                for scheme in ("http", "https"):
                    if proxy := self.proxies.get(f"{scheme.upper()}_PROXY"):
                        session.proxies[scheme] = proxy
                    session.mount(f"{scheme}://", adapter)
                    for host in self.quick_hosts:
                        session.mount(f"{scheme}://{host}/", quick)
                self._session = session
            return self._session


def find_page(client: Client, package: str, indexes: Iterable[str]) -> Page | None:
    """Return a package's page from the first index that has one."""
    pages = (
        client.page(index if index.endswith(LINKS_FRAGMENT) else f"{index}/{package}/")
        for index in indexes
    )
    return next(filter(None, pages), None)


def find_index(client: Client, package: str, indexes: Iterable[str]) -> str | None:
    """Return the first index that lists a package, or None.

    Skips an index if its page cannot be read.
    """
    for index in indexes:
        with suppress(InstallationError):
            if find_page(client, package, [index]):
                return index
    return None


def _read_local_page(url: str) -> Page | None:
    """Return the index page in a local folder, or None if there is none.

    A folder of find-links needs no page.
    """
    file = file_path(url) / "index.html"
    with suppress(OSError, UnicodeDecodeError):
        if url.endswith(LINKS_FRAGMENT) and not isfile(file):
            names = sorted(path.name for path in file.parent.iterdir())
            text = "".join(f'<a href="{quote(one)}">{one}</a>\n' for one in names)
        else:
            text = read_document(file, None)
        return Page(text, "text/html", file.as_uri())
    return None


def _omit_credentials(request: PreparedRequest) -> PreparedRequest:
    """Send no login. Otherwise, requests would read a netrc file."""
    return request


def _check_status(response: Response, url: str) -> None:
    status = response.status_code
    # Treat a server error as an unreachable host, because other sources may respond.
    if status >= 500:
        why = f"it returned HTTP status {status}"
        raise UnreachableError(urlsplit(url).netloc, why, "Try again later")
    if status >= 400:
        hint = LOGIN_HINT if status == 401 else None
        raise InstallationError(
            "http-status",
            f"{url} returned HTTP status {status}",
            hint=hint,
        )


def read_chunks(
    response: Response, url: str, limit: int, seconds: float
) -> Iterator[bytes]:
    """Yield the body of an HTTP response in chunks.

    Args:
        response: The response, whose body is not read yet.
        url: The requested URL, for messages.
        limit: The maximum number of bytes.
        seconds: The time limit.

    Raises:
        InstallationError: A limit was exceeded, or the connection broke.
    """
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    most = min(limit, FILE_BYTES)
    deadline = monotonic() + seconds
    read = 0
    try:
        # read() would wait for a full chunk and detect a slow server too late.
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            read += len(chunk)
            if read > most:
                raise InstallationError(
                    "too-large",
                    f"the response from {url} is larger than {format_size(most)}",
                    hint="Set GPUINSTALL_TORCH_INDEX or UV_DEFAULT_INDEX to the URL of another index",
                )
            if monotonic() > deadline:
                raise InstallationError(
                    "too-slow",
                    f"{url} did not finish within {seconds:.0f} s",
                    hint=MORE_TIME,
                )
            yield chunk
    except ReadTimeoutError as error:
        message = f"{url} stopped sending data"
        raise InstallationError("too-slow", message, hint=MORE_TIME) from error
    except HTTPError as error:
        message = f"the download of {url} was interrupted"
        raise InstallationError("transfer", message, hint="Run it again") from error


def content_length(response: Response) -> int | None:
    """Return the Content-Length of a response, or None if it is invalid."""
    length = response.headers.get("Content-Length", "")
    return int(length) if re.fullmatch("[0-9]{1,19}", length) else None


def network_hint() -> str:
    """Return the hint for a network on which no host is reachable."""
    for name, address in os.environ.items():
        if address and re.fullmatch("(?i)(https?|all)_proxy", name):
            return f"Check the proxy: {name} is {remove_logins(address)}"
    return "Check the network connection, or set HTTPS_PROXY if you use a proxy"


def _find_cause(error: Exception) -> tuple[str, str]:
    from requests.exceptions import ProxyError, SSLError, Timeout

    text = str(error)
    match error:
        case UnicodeError():
            return "it redirected to an invalid URL", "Check the URL"
        case SSLError():
            return _UNTRUSTED
        case ProxyError() if "Tunnel connection failed" in text:
            return "the proxy refused the request", network_hint()
        case ProxyError():
            return "the proxy cannot be reached", network_hint()
        case Timeout() | TimeoutError():
            return (
                "the request timed out",
                "Check the network connection, or HTTPS_PROXY",
            )
    return next(cause for sign, cause in _CAUSES.items() if sign in text)
