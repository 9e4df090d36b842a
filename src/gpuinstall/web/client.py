"""The one client for the web: our own name, one set of certificates, time limits, dead hosts remembered."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import urlsplit

from gpuinstall import __version__
from gpuinstall.errors import InstallationError
from gpuinstall.files import own_cache_folder, read_json, write_atomically
from gpuinstall.patience import USUAL, Patience
from gpuinstall.web.answers import OFFLINE, Cause, HostGate, UnreachableError, declared, read_chunks, read_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from requests import Response, Session
    from typing_extensions import Self


@dataclass(frozen=True)
class Page:
    """A page as it came; ``url`` is where it was found after redirects, the base of its relative addresses."""

    text: str
    content_type: str
    url: str
    etag: str | None = None


@dataclass(frozen=True)
class FileHash:
    """The sha256 of what an address held; ``etag`` says whether it still lies there."""

    sha256: str
    etag: str | None


_Answer = TypeVar("_Answer", Page, FileHash)


@dataclass(frozen=True)
class AnswerCache(Generic[_Answer]):
    """Answers of one ``kind`` by the address that was asked for; none that cannot be read or written is a fault.

    Not CacheControl: it believes ``max-age``, so that a build of this minute is missed for ten, and what it reads is
    outside our limits.
    """

    folder: Path
    kind: type[_Answer]

    def known(self, url: str) -> _Answer | None:
        """Remember an answer."""
        with suppress(OSError, ValueError, TypeError):
            return self.kind(**read_json(self._file(url)))
        return None

    def keep(self, url: str, answer: _Answer) -> None:
        """Keep an answer for the next run."""
        with suppress(InstallationError):
            write_atomically(self._file(url), json.dumps(asdict(answer)))

    def _file(self, url: str) -> Path:
        return self.folder / f"{hashlib.sha256(url.encode()).hexdigest()}.json"


CONNECT_S = 3.0

_ABSENT = frozenset({403, 404, 410})
_PAGES = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_AS_IT_IS = {"Accept-Encoding": "identity"}


@dataclass(frozen=True)
class Head:
    """What is said of a file: its size in bytes, and the mark that changes when it does; None where nothing is."""

    size: int | None = None
    etag: str | None = None


class Client:
    """A session with the web, to be shared between threads.

    ``certificates`` is the path of a CA bundle; ``logins`` are "user:password" by host, as addresses carry none;
    ``cache`` is the folder for what can be had again (the user's own, unless given).
    """

    def __init__(
        self,
        certificates: str | None = None,
        *,
        logins: Mapping[str, str] | None = None,
        offline: bool = False,
        cache: Path | None = None,
        patience: Patience = USUAL,
    ) -> None:
        self.patience = patience
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

    def prepare(self) -> None:
        """Load what requests are made with, before other threads load something too and all of it takes longer."""
        if not self._offline:
            self._opened()

    def page(self, url: str) -> Page | None:
        """Fetch an index page once, None where there is none; one held from earlier is asked whether it still holds."""
        with self._lock:
            page_lock = self._page_locks.setdefault(url, threading.Lock())
        with page_lock:
            if url not in self._read:
                self._read[url] = self._page(url)
            return self._read[url]

    def head(self, url: str) -> Head:
        """Ask what a file is without fetching it."""
        response = self._ask("HEAD", url, _AS_IT_IS)
        response.close()
        if response.status_code >= 400:
            return Head()
        return Head(declared(response), response.headers.get("ETag"))

    def ask_part(self, url: str, headers: Mapping[str, str], *, login: bool) -> Response:
        """Ask for a part of a file as ``headers`` say; nothing of it is read yet, and no redirect followed.

        ``login`` says whether the host's credentials go along.
        """
        return self._ask("GET", url, headers, login=login, redirects=False)

    def unreachable(self, url: str) -> UnreachableError | None:
        """What is known of the host of an address, where it did not answer."""
        gate = self._gates.get(urlsplit(url).netloc)
        return gate.failure if gate else None

    def chunks(self, url: str, size: int | None) -> Iterator[bytes]:
        """Stream a file of ``size`` bytes, where that is known.

        Raise InstallationError where its length is not what was declared, or the network fails.
        """
        with self._ask("GET", url, _AS_IT_IS) as response:
            _check(response, url)
            length = declared(response)
            _check_length(url, size, length)
            came = 0
            for chunk in read_chunks(response, url, size or length, self.patience):
                came += len(chunk)
                yield chunk
        _check_length(url, size or length, came)

    def _page(self, url: str) -> Page | None:
        remembered = self._pages.known(url)
        if self._offline and remembered is not None:
            return remembered
        headers = {"Accept": _PAGES} | ({"If-None-Match": remembered.etag} if remembered and remembered.etag else {})
        with self._ask("GET", url, headers) as response:
            text = read_page(response, url, self.patience).decode("utf-8", "replace")
        if response.status_code == 304:
            return remembered
        if response.status_code in _ABSENT:
            return None
        _check(response, url)
        fields = response.headers
        page = Page(text, fields.get("Content-Type", ""), response.url, fields.get("ETag"))
        if page.etag and "no-store" not in fields.get("Cache-Control", ""):
            self._pages.keep(url, page)
        return page

    def _ask(
        self, method: str, url: str, headers: Mapping[str, str], *, login: bool = True, redirects: bool = True
    ) -> Response:
        host = urlsplit(url).netloc
        if self._offline:
            raise UnreachableError(host, OFFLINE)
        session = self._opened()
        with self._lock:
            gate = self._gates.setdefault(host, HostGate(host, self.patience))
        user, colon, password = self._logins.get(host if login else "", "").partition(":")
        send = partial(
            session.request,
            method,
            url,
            headers=headers,
            # Who logs in as nobody does so whatever a netrc file says.
            auth=(user, password) if user or colon else None if login else lambda request: request,
            timeout=(CONNECT_S, self.patience.silence),
            verify=self._certificates or True,
            stream=True,
            allow_redirects=redirects,
        )
        return gate.ask(lambda: _sent(send))

    def _opened(self) -> Session:
        """Import requests in one thread alone: where several do, CPython may find a deadlock between their imports."""
        with self._lock:
            import requests
            from requests.adapters import HTTPAdapter

            if self._session is None:
                self._session = requests.Session()
                self._session.headers["User-Agent"] = f"gpuinstall/{__version__}"
                for scheme in ("http://", "https://"):
                    self._session.mount(scheme, HTTPAdapter(pool_maxsize=32))
            return self._session


def _sent(send: Callable[[], Response]) -> Response:
    """Send; once more where the host had closed a connection that was kept open."""
    from requests.exceptions import ConnectionError as ConnectionFailed

    try:
        return send()
    except ConnectionFailed as error:
        if "Connection aborted" not in str(error):
            raise
        return send()


def _check(response: Response, url: str) -> None:
    if response.status_code >= 500:
        cause = Cause(f"it answered {response.status_code}", "Try again later")
        raise UnreachableError(urlsplit(url).netloc, cause)
    if response.status_code >= 400:
        hint = "Add the index's user name and password to its URL" if response.status_code == 401 else None
        raise InstallationError("http-status", f"{url} answered {response.status_code}", hint=hint)


def _check_length(url: str, wanted: int | None, length: int | None) -> None:
    if wanted is not None and length is not None and wanted != length:
        message = f"{url} has {length} bytes, but its server declared {wanted}"
        raise InstallationError("length", message, hint="the same again")
