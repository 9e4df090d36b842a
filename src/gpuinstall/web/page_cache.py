"""Pages of indexes, kept between runs with the mark by which a host says whether they still hold."""

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
        return self.folder / "pages" / f"{hashlib.sha256(url.encode()).hexdigest()}.json"
