"""What is kept between runs: pages of indexes, and the hashes of files whose index gives none."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

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
class FileHash:
    """The sha256 of what an address held; ``etag`` says whether it still lies there."""

    sha256: str
    etag: str | None


_Answer = TypeVar("_Answer", Page, FileHash)


@dataclass(frozen=True)
class AnswerCache(Generic[_Answer]):
    """Answers of one ``kind`` by the address that was asked for; none that cannot be read or written is a fault."""

    folder: Path
    kind: type[_Answer]

    def known(self, url: str) -> _Answer | None:
        """Remember an answer."""
        with suppress(OSError, ValueError, TypeError):
            return self.kind(**json.loads(self._file(url).read_text(encoding="utf-8")))
        return None

    def keep(self, url: str, answer: _Answer) -> None:
        """Keep an answer for the next run."""
        with suppress(InstallationError):
            write_atomically(self._file(url), json.dumps(asdict(answer)))

    def _file(self, url: str) -> Path:
        return self.folder / f"{hashlib.sha256(url.encode()).hexdigest()}.json"
