"""What is kept between runs: pages of indexes, and the hashes of files whose index gives none."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError
from gpuinstall.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.web.client import Head


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
class FileHash:
    """The sha256 of what an address held; ``etag`` says whether it still lies there."""

    sha256: str
    etag: str | None


@dataclass(frozen=True)
class HashCache:
    """The hashes of files whose index gives none, by their addresses: the files themselves are not kept."""

    folder: Path

    def known(self, url: str) -> FileHash | None:
        """Remember what an address held when it was last fetched."""
        with suppress(OSError, ValueError, TypeError):
            return FileHash(**json.loads(self._file(url).read_text(encoding="utf-8")))
        return None

    def current(self, url: str, head: Head) -> FileHash | None:
        """Remember an address if what it holds today is what was fetched."""
        known = self.known(url)
        return known if known and known.etag and known.etag == head.etag else None

    def keep(self, url: str, sha256: str, head: Head) -> None:
        """Keep the hash of what ``head`` was said of."""
        with suppress(InstallationError):
            write_atomically(self._file(url), json.dumps(asdict(FileHash(sha256, head.etag))))

    def _file(self, url: str) -> Path:
        return self.folder / "hashes" / f"{_digest(url)}.json"


def _digest(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()
