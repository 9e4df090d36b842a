"""Lines of ours at the start of a configuration file of others, between two comments: taking them out gives the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable

_BEGIN = "# gpuinstall hook: what stands between these two marks is ours"
_END = "# end of gpuinstall hook"
_BLOCK = re.compile(rf"{_BEGIN}\r?\n(?:.*\n)*?{_END}(?:\r?\n|\Z)")


class BrokenBlockError(ValueError):
    """The marks of a block do not pair: what is between them may be the user's."""


def with_block(text: str, lines: Iterable[str]) -> str:
    """Return a text with ``lines`` before it, between the marks."""
    return "".join(f"{line}\n" for line in (_BEGIN, *lines, _END)) + text


def without_block(text: str) -> str:
    """Return a text without what ``with_block`` put in; raise BrokenBlockError if it cannot be told apart."""
    text = _BLOCK.sub("", text)
    if _BEGIN in text or _END in text:
        raise BrokenBlockError("one of the two marks is missing")
    return text
