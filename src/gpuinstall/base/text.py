"""Texts that people read: from outside made harmless, sizes and times in words, our block in a file of the user's."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any

MOST_NAMES = ContextVar("MOST_NAMES", default=6)
"""As many names stand in a line; of the others their number does. ``--verbose`` lifts it."""


_LOGIN = r"(?:(?<=://)(?<!ssh://)|(?<=ssh://)(?=[^/\s]*:[^/\s]*@))[^/\s]+@"
"""The user and password of an address. The mere name of SSH's user, mostly git, is no secret, and needed there."""
_DAMAGED_LOGIN = r"(?<=http:/)[^/\s]+@|(?<=https:/)[^/\s]+@|\b[\w.%+-]+:[^\s/@:]+@(?=[\w-]+\.\w|localhost\b|\[)"
"""The same if a path has taken a slash of the address, or it has no scheme."""
TOKEN = re.compile(
    r"(?i)(://[^\s?#;]+[?#;](?:[^\s]*[&#;])?(?:sig|auth|jwt|pass|pwd|[\w.-]*"
    r"(?:token|secret|signature|passw(?:or)?d|credential|(?:api|access)[_-]?key))=)"
    r"[^&#;\s]+"
)
"""A token in the parameters, query, or fragment of a URL."""
_BEGIN = "# gpuinstall hook: what stands between these two marks is ours"
_END = "# end of gpuinstall hook"
_BLOCK = rf"{_BEGIN}\r?\n(?:.*\n)*?{_END}(?:\r?\n|\Z)"
_GUARD_HEAD = r"# The builds that go with \S+ \(([0-9a-f]{8})\)\. .*\n"


_WIDEST = 8000
"""The characters of a line that are shown."""


def redacted(text: str) -> str:
    """Show that every address in ``text`` has a user and password, and not which."""
    # Nearly every text has none, and a log has many lines.
    if "=" in text and "://" in text:
        text = TOKEN.sub(r"\1****", text)
    if "@" in text:
        return re.sub(rf"{_LOGIN}|{_DAMAGED_LOGIN}", "****@", text)
    return text


def redacted_document(value: Any) -> Any:
    """Return a JSON document with every text in it ``redacted``: within JSON's text a login may begin in an escape."""
    if isinstance(value, dict):
        return {redacted(key): redacted_document(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_document(one) for one in value]
    return redacted(value) if isinstance(value, str) else value


def without_logins(text: str) -> str:
    """Take the user and password out of every address in ``text``."""
    if "@" in text:
        return re.sub(_LOGIN, "", text)
    return text


def has_login(text: str) -> bool:
    """Whether an address in a text has a user's name, a password or a token."""
    return without_logins(text) != text


def is_verbose() -> bool:
    """Return whether ``--verbose`` lists every name."""
    return MOST_NAMES.get() > 1000


def shorten(text: str) -> str:
    """Return a text from outside with at most 200 characters."""
    return text if len(text) <= 200 else f"{text[:200]}…"


def some(names: Sequence[str]) -> str:
    """Name things in one line: ``numpy, pandas and 20 more``."""
    most = MOST_NAMES.get()
    more = len(names) - most
    # "and 1 more" is no shorter than its name.
    return (
        ", ".join(names) if more < 2 else f"{', '.join(names[:most])} and {more} more"
    )


def visible(text: str, keep: str = "") -> str:
    r"""Write out what moves a cursor, turns text around or begins a line: ``\x1b``, ``\n``, ``\u202e``.

    What is printed as itself stays, and so do the characters of ``keep``. No password in an address is shown.
    """
    text = redacted(text)
    if len(text) > _WIDEST:
        text = "\n".join(map(_narrowed, text.split("\n")))
    if text.isprintable():
        return text
    return "".join(
        mark
        if is_shown(mark) or mark in keep
        else mark.encode("unicode_escape").decode()
        for mark in text
    )


def _narrowed(line: str) -> str:
    if len(line) <= _WIDEST:
        return line
    return f"{line[:_WIDEST]}… ({len(line)} characters)"


def is_shown(mark: str) -> bool:
    """Whether a character stands for itself where it is shown: it is printed, or a space of any width."""
    from unicodedata import category

    return mark.isprintable() or category(mark) == "Zs"


def readable(size: int) -> str:
    """Write a number of bytes as people do: ``2.9 GB``."""
    if size < 1e6:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


def number_of(count: int, thing: str) -> str:
    """Write how many there are of something: ``1 package``, ``2 packages``."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def duration(seconds: float) -> str:
    """Write seconds as people do: ``4.1 s``, ``1 min 12 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


class BrokenBlockError(ValueError):
    """The marks of a block do not pair: what is between them may be the user's."""


def with_block(text: str, lines: Iterable[str]) -> str:
    """Return a text with ``lines`` before it, between the marks."""
    return "".join(f"{line}\n" for line in (_BEGIN, *lines, _END)) + text


def without_block(text: str) -> str:
    """Return a text without what ``with_block`` put in; raise BrokenBlockError if it cannot be told apart."""
    text = re.sub(_BLOCK, "", text)
    if _BEGIN in text or _END in text:
        raise BrokenBlockError("one of the two marks is missing")
    return text


def guard_text(text: str, source: str, lift: str) -> str:
    """Return the text of a file that keeps pip or uv to some builds, below the line that marks it as ours.

    Args:
        text: The settings or constraints.
        source: The lock that they were made from, or the torch.
        lift: How to do without them.
    """
    return f"# The builds that go with {source} ({checksum(text)}). {lift}\n{text}"


def is_guard_text(text: str) -> bool:
    """Whether a text is as ``guard_text`` has made it, and not edited since."""
    head = re.match(_GUARD_HEAD, text)
    return head is not None and head[1] == checksum(text[head.end() :])


def checksum(text: str) -> str:
    """Return the CRC-32 of a text, by which an edit is seen."""
    return f"{zlib.crc32(text.encode()):08x}"
