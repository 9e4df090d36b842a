"""Which sources of folders the user has been shown today, in the user's state folder: they are named in short then."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import read_json, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def were_shown_today(texts: Iterable[str]) -> bool:
    """Return whether the user has been shown all of these sources, with their files, today; from now on they have."""
    import hashlib  # loads OpenSSL, which a plan does without

    known = _digests_of_today()
    digests = set(known)
    for text in texts:
        encoded = text.encode(errors="surrogateescape")
        digests.add(hashlib.sha256(encoded).hexdigest())
    if digests == known:
        return True
    document = {"date": _today(), "shown": sorted(digests)}
    with suppress(InstallationError):  # a state folder that cannot be written is no fault
        write_atomically(_file(), json.dumps(document))
    return False


def _digests_of_today() -> set[str]:
    # Of another day nothing counts, so that the file never grows for longer than a day.
    with suppress(OSError, ValueError, TypeError, LookupError):
        document = read_json(_file())
        if document["date"] == _today():
            return set(map(str, document["shown"]))
    return set()


def _today() -> str:
    return time.strftime("%Y-%m-%d")


def _file() -> Path:
    from platformdirs import user_state_path

    return user_state_path("gpuinstall", appauthor=False) / "sources.json"
