"""Redact and escape text, and format sizes and times.

This module also writes gpuinstall's blocks and generated files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any

MAX_NAMES = ContextVar("MAX_NAMES", default=6)
"""Maximum number of names in a list. ``--verbose`` lists all names."""


_LOGIN = r"(?:(?<=://)(?<!ssh://)|(?<=ssh://)(?=[^/\s]*:[^/\s]*@))[^/\s]+@"
"""Pattern for logins in URLs, except SSH users without a password."""
_DAMAGED_LOGIN = r"(?<=http:/)[^/\s]+@|(?<=https:/)[^/\s]+@|\b[\w.%+-]+:[^\s/@:]+@(?=[\w-]+\.\w|localhost\b|\[)"
"""Pattern for logins in URLs that have no scheme or only one slash."""
_PARAMETERS = r"(?<=://)[^\s?#;]+[?#;]\S+"
"""Pattern for a URL with parameters, a query, or a fragment."""
_MASKED = (
    r"(?i)([?&#;](?:sig|auth|jwt|pass|pwd|[\w.-]*(?:token|secret|signature"
    r"|passw(?:or)?d|credential|(?:api|access)[_-]?key))=)[^&#;\s]+"
)
"""Pattern for a token in the parameters, query, or fragment of a URL."""
_BEGIN = "# gpuinstall hook: gpuinstall manages the lines between these two marks"
_END = "# end of gpuinstall hook"
_BLOCK = rf"{_BEGIN}\r?\n(?:.*\n)*?{_END}(?:\r?\n|\Z)"
_GUARD_HEAD = (
    r"# Written by gpuinstall to keep the builds of \S+ \(([0-9a-f]{8})\)\. .*\n"
)


_WIDEST = 8000
"""The maximum number of characters in a printed line."""


def redact(text: str) -> str:
    """Replace the logins and tokens in all URLs with asterisks."""
    # A log has many lines, and most of them need no redaction.
    if "=" in text and "://" in text:
        text = hide_tokens(text)
    if "@" in text:
        return re.sub(rf"{_LOGIN}|{_DAMAGED_LOGIN}", "****@", text)
    return text


def hide_tokens(text: str) -> str:
    """Replace the tokens in all URLs with asterisks."""
    return re.sub(_PARAMETERS, lambda url: re.sub(_MASKED, r"\1****", url[0]), text)


def redact_document(value: Any) -> Any:
    """Redact every string in a JSON document."""
    # In the serialized document, a login could start within an escape sequence.
    if isinstance(value, dict):
        return {redact(key): redact_document(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redact_document(one) for one in value]
    return redact(value) if isinstance(value, str) else value


def remove_logins(text: str) -> str:
    """Remove the logins from all URLs."""
    if "@" in text:
        return re.sub(_LOGIN, "", text)
    return text


def split_login(address: str) -> tuple[str, str]:
    """Split a URL into the URL without its login, and ``user:password@``."""
    match = re.search(_LOGIN, address)
    return remove_logins(address), match[0] if match else ""


def has_login(text: str) -> bool:
    """Return whether a URL in the text contains credentials."""
    return remove_logins(text) != text


def is_verbose() -> bool:
    """Return whether ``--verbose`` was given, so that every name is listed."""
    return MAX_NAMES.get() > 1000


def shorten(text: str, longest: int = 200) -> str:
    """Truncate text to a number of characters."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def join_names(names: Sequence[str]) -> str:
    """Join names to a text such as ``numpy, pandas and 20 more``."""
    most = MAX_NAMES.get()
    more = len(names) - most
    # "and 1 more" is as long as a name.
    if more < 2:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {more} more"


def split_names(names: Sequence[str]) -> list[str]:
    """Join names to several texts, which are short enough to be printed."""
    return [", ".join(names[n : n + 20]) for n in range(0, len(names), 20)]


def sanitize(text: str, keep: str = "") -> str:
    r"""Redact text, and escape unprintable characters: ``\x1b``, ``\u202e``.

    Unprintable characters could move the cursor, reverse the text, or start a line.
    Characters in ``keep`` are not escaped.
    """
    text = redact(text)
    if len(text) > _WIDEST:
        text = "\n".join(map(_truncate_line, text.split("\n")))
    if text.isprintable():
        return text
    return "".join(
        mark
        if is_printable(mark) or mark in keep
        else mark.encode("unicode_escape").decode()
        for mark in text
    )


def _truncate_line(line: str) -> str:
    if len(line) <= _WIDEST:
        return line
    return f"{line[:_WIDEST]}… ({len(line)} characters)"


def is_printable(mark: str) -> bool:
    """Return whether a character is printable or a space of any width."""
    from unicodedata import category

    return mark.isprintable() or category(mark) == "Zs"


def format_size(size: int) -> str:
    """Format a number of bytes, such as ``2.9 GB``."""
    if size < 1e6:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


def format_count(count: int, thing: str) -> str:
    """Format a count with its noun, such as ``2 packages``."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def format_duration(seconds: float) -> str:
    """Format a duration, such as ``4.1 s`` or ``1 min 12 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


class BrokenBlockError(ValueError):
    """Error for a text block with only one of its two marker lines."""


def add_block(text: str, lines: Iterable[str]) -> str:
    """Prepend a block of lines to a text, between two marker lines."""
    return "".join(f"{line}\n" for line in (_BEGIN, *lines, _END)) + text


def remove_block(text: str) -> str:
    """Remove the block that ``add_block`` added. Raise BrokenBlockError."""
    text = re.sub(_BLOCK, "", text)
    if _BEGIN in text or _END in text:
        raise BrokenBlockError("one of the two markers is missing")
    return text


def format_guard(text: str, source: str, lift: str) -> str:
    """Return the text of a file that limits pip or uv to compatible builds.

    Args:
        text: The settings or constraints.
        source: The lock file or torch from which they are derived.
        lift: The instructions for removing them.
    """
    return f"# Written by gpuinstall to keep the builds of {source} ({checksum(text)}). {lift}\n{text}"


def is_guard_text(text: str) -> bool:
    """Return whether ``format_guard`` wrote a text, and nobody edited it."""
    head = re.match(_GUARD_HEAD, text)
    return head is not None and head[1] == checksum(text[head.end() :])


def matches(name: str, pattern: str) -> bool:
    """Return whether a name matches a pattern, which may have one ``*``."""
    start, star, end = pattern.partition("*")
    return name.startswith(start) and name.endswith(end) if star else name == start


def checksum(text: str) -> str:
    """Return the CRC-32 of a text, to detect edits."""
    from zlib import crc32

    return f"{crc32(text.encode()):08x}"
