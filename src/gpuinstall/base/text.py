"""Text from outside (files, locks, records, servers, devices), made harmless where a person reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextvars import ContextVar
from unicodedata import category

MOST_NAMES = ContextVar("MOST_NAMES", default=6)
"""As many names stand in a line; of the others their number does. ``--verbose`` lifts it."""


_LOGIN = r"(?:(?<=://)(?<!ssh://)|(?<=ssh://)(?=[^/\s]*:[^/\s]*@))[^/\s]+@"
"""The user and password of an address. The mere name of SSH's user, mostly git, is no secret, and needed there."""
_DAMAGED_LOGIN = (
    r"(?<=http:/)[^/\s]+@|(?<=https:/)[^/\s]+@|\b[\w.%+-]+:[^\s/@:]+@(?=[\w-]+\.\w|localhost\b|\[)"
)
"""The same if a path has taken a slash of the address, or it has no scheme."""


def redacted(text: str) -> str:
    """Show that every address in ``text`` has a user and password, and not which."""
    return re.sub(rf"{_LOGIN}|{_DAMAGED_LOGIN}", "****@", text) if "@" in text else text


def without_logins(text: str) -> str:
    """Take the user and password out of every address in ``text``."""
    return re.sub(_LOGIN, "", text)


def some(names: Sequence[str]) -> str:
    """Name things in one line: ``numpy, pandas and 20 more``."""
    most = MOST_NAMES.get()
    more = len(names) - most
    return ", ".join(names) if more < 2 else f"{', '.join(names[:most])} and {more} more"


def visible(text: str, keep: str = "") -> str:
    r"""Write out what moves a cursor, turns text around or begins a line: ``\x1b``, ``\n``, ``\u202e``.

    What is printed as itself stays, and so do the characters of ``keep``. No password in an address is shown.
    """
    text = redacted(text)
    if text.isprintable():
        return text
    return "".join(
        mark
        if mark.isprintable() or mark in keep or category(mark) == "Zs"
        else mark.encode("unicode_escape").decode()
        for mark in text
    )
