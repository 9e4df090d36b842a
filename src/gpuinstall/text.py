"""Text from outside (files, locks, records, servers, devices), made harmless where a person reads it."""

from __future__ import annotations

from unicodedata import category


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
