"""Text from outside (files, locks, records, servers, devices), made harmless where a person reads it."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from unicodedata import category

MOST_NAMES = ContextVar("MOST_NAMES", default=6)
"""As many names stand in a line; of the others their number does. ``--verbose`` lifts it."""


def some(names: Sequence[str]) -> str:
    """Name things in one line: ``numpy, pandas and 20 more``."""
    most = MOST_NAMES.get()
    more = len(names) - most
    return ", ".join(names) if more < 2 else f"{', '.join(names[:most])} and {more} more"


def visible(text: str, keep: str = "") -> str:
    r"""Write out what moves a cursor, turns text around or begins a line: ``\x1b``, ``\n``, ``\u202e``.

    What is printed as itself stays, and so do the characters of ``keep``.
    """
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() or mark in keep or category(mark) == "Zs" else mark.encode("unicode_escape").decode()
        for mark in text
    )
