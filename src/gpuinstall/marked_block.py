"""Lines of ours in a configuration file of others, between two comments: taking them out gives the same bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence

_BEGIN, _END = "# gpuinstall hook: ", "# end of gpuinstall hook"
_BLOCK = re.compile(rf"(?:(?<=\n)|\A){_BEGIN}(.*)\n(?:.*\n)*?{_END}\n|\n{_BEGIN}(.*)\n(?:.*\n)*?{_END}\Z")


def with_block(text: str, at: int, note: str, lines: Sequence[str]) -> str:
    """Put ``lines`` at the start (0) or the end (-1) of a text, with a ``note`` that ``block_note`` reads again."""
    block = "\n".join([_BEGIN + note, *lines, _END])
    if at == 0:
        return f"{block}\n{text}"
    return f"{text}{block}\n" if text.endswith("\n") or not text else f"{text}\n{block}"


def without_blocks(text: str) -> str:
    """Take out what ``with_block`` put in."""
    return _BLOCK.sub("", text)


def block_note(text: str) -> str | None:
    """The note of the first block; None where there is none."""
    return next((match[1] or match[2] for match in _BLOCK.finditer(text)), None)
