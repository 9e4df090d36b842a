"""Which sources of folders the user has been shown today, in the user's state folder: they are named in short then."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError
from gpuinstall.files import read_json, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def are_shown_today(texts: Iterable[str]) -> bool:
    """Whether each of these sources, with its file, has been shown to the user today."""
    return _digests(texts) <= _digests_of_today()


def remember_shown(texts: Iterable[str]) -> None:
    """Keep that these sources have been shown today; a state folder that cannot be written is no fault."""
    digests = _digests_of_today() | _digests(texts)
    with suppress(InstallationError):
        write_atomically(_file(), json.dumps({"date": _today(), "shown": sorted(digests)}))


def _digests(texts: Iterable[str]) -> set[str]:
    return {hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest() for text in texts}


def _digests_of_today() -> set[str]:
    # Of another day nothing counts, so that the file never grows for longer than a day.
    with suppress(OSError, ValueError, TypeError, LookupError):
        document = read_json(_file())
        if document["date"] == _today():
            return {str(digest) for digest in document["shown"]}
    return set()


def _today() -> str:
    return time.strftime("%Y-%m-%d")


def _file() -> Path:
    from platformdirs import user_state_path

    return user_state_path("gpuinstall", appauthor=False) / "sources.json"
