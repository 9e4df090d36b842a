"""What is kept between runs: pages of indexes, and the wheels whose index gives no hash."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError
from gpuinstall.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.reporter import Meter
    from gpuinstall.web.client import Client, Head

_ATTEMPTS = 3
_DAY_S = 86400


@dataclass(frozen=True)
class Page:
    """A page as it came; ``url`` is where it was found after redirects, the base of its relative addresses."""

    text: str
    content_type: str
    url: str
    etag: str | None = None


@dataclass(frozen=True)
class PageCache:
    """Pages by the address that was asked for; a cache that cannot be read or written is no fault."""

    folder: Path

    def known(self, url: str) -> Page | None:
        """Remember a page."""
        with suppress(OSError, ValueError, TypeError):
            return Page(**json.loads(self._file(url).read_text(encoding="utf-8")))
        return None

    def keep(self, url: str, page: Page) -> None:
        """Keep a page for the next run."""
        with suppress(InstallationError):
            write_atomically(self._file(url), json.dumps(asdict(page)))

    def _file(self, url: str) -> Path:
        return self.folder / "pages" / f"{_digest(url)}.json"


@dataclass(frozen=True)
class CachedWheel:
    """What was once fetched from an address; ``etag`` says whether it still lies there."""

    sha256: str
    name: str
    etag: str | None


@dataclass(frozen=True)
class WheelCache:
    """Wheels by sha256, and what each address held when it was last fetched."""

    folder: Path

    def path(self, sha256: str, name: str) -> Path:
        """Where a wheel lies in the cache, whether or not it is there."""
        return self.folder / "wheels" / sha256 / name

    def known(self, url: str) -> CachedWheel | None:
        """Remember an address; None where its wheel was never fetched or has gone."""
        with suppress(OSError, ValueError, TypeError):
            known = CachedWheel(**json.loads(self._record(url).read_text(encoding="utf-8")))
            if self.path(known.sha256, known.name).is_file():
                return known
        return None

    def current(self, url: str, head: Head) -> CachedWheel | None:
        """Remember an address if what it holds today is what was fetched."""
        known = self.known(url)
        return known if known and known.etag and known.etag == head.etag else None

    def fetch(self, url: str, name: str, head: Head, client: Client, meter: Meter) -> str:
        """Stream a wheel into the cache, unless another transfer of this run already has; return its sha256."""
        if known := self.current(url, head):
            return known.sha256
        coming = self.folder / "coming" / f"{os.getpid()}-{_digest(url)}"
        sha256 = client.download(url, coming, None, meter, size=head.size)
        path = self.path(sha256, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        coming.replace(path)
        write_atomically(self._record(url), json.dumps(asdict(CachedWheel(sha256, name, head.etag))))
        return sha256

    def bring(self, url: str, name: str, sha256: str, client: Client, meter: Meter, *, size: int | None) -> Path:
        """Stream a file whose hash is known into the cache, where it is not there already; again where it broke off."""
        path, came = self.path(sha256, name), 0

        def count(size: int) -> None:
            nonlocal came
            came += size
            meter(size)

        for attempts_left in reversed(range(_ATTEMPTS)):
            if path.is_file():
                break
            try:
                client.download(url, path, sha256, count, size=size)
            except InstallationError as error:
                if error.code != "transfer" or not attempts_left:
                    raise
                count(-came)
        return path

    def sweep(self) -> None:
        """Remove what transfers that were killed more than a day ago left behind."""
        with suppress(OSError):
            for leftover in (self.folder / "coming").iterdir():
                if time.time() - leftover.stat().st_mtime > _DAY_S:
                    leftover.unlink()

    def _record(self, url: str) -> Path:
        return self.folder / "addresses" / f"{_digest(url)}.json"


def _digest(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()
