"""Lines of ours in a configuration file of others, between two comments: taking them out gives the same bytes.

The end mark has a checksum of the lines, so that a line that somebody has put between the marks is never taken for
ours. What does not hold together is an error, never a guess: such lines are the user's.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
"""What some editors put before the first character of a file: it stays there."""

NEW = " new"
"""The end of the note if there was no such file before."""

_BEGIN, _END = "# gpuinstall hook: ", "# end of gpuinstall hook"
_BEGINNING = re.compile(rf"{_BEGIN}(.*)")
_ENDING = re.compile(rf"{_END}(?: ([0-9a-f]{{8}}))?")


class BrokenBlockError(ValueError):
    """The marks of a block do not pair, or the lines between them are not those that were written."""


class _Block(NamedTuple):
    """A block of a text: its note, and the places of its first character and of the one after its last."""

    note: str
    start: int
    stop: int


def with_block(
    text: str,
    at: int,
    note: str,
    lines: Sequence[str],
) -> str:
    """Return a text with ``lines`` at its start (0) or its end (-1), and a ``note`` that ``block_note`` reads again.

    They end as the lines of the text do.
    """
    end = "\r\n" if "\r\n" in text else "\n"
    block = end.join([_BEGIN + note, *lines, f"{_END} {_checksum(lines)}"])
    if at == 0:
        bom = BOM if text.startswith(BOM) else ""
        return f"{bom}{block}{end}{text.removeprefix(BOM)}"
    return (
        f"{text}{block}{end}"
        if text.endswith("\n") or not text.removeprefix(BOM)
        else f"{text}{end}{block}"
    )


def without_blocks(text: str) -> str:
    """Return a text without what ``with_block`` put in; raise BrokenBlockError if it cannot be told apart."""
    for block in reversed(list(_blocks(text))):
        text = text[: block.start] + text[block.stop :]
    return text


def block_note(text: str) -> str | None:
    """Return the note of the first block, None if there is none; raise BrokenBlockError as ``without_blocks``."""
    return next((block.note for block in _blocks(text)), None)


def _blocks(text: str) -> Iterator[_Block]:
    note: str | None = None
    inside: list[str] = []
    place = len(text) - len(text.removeprefix(BOM))
    start = place
    for number, line in enumerate(text[place:].split("\n"), start=1):
        bare = line.removesuffix("\r")
        if beginning := _BEGINNING.fullmatch(bare):
            if note is not None:
                raise BrokenBlockError(f"the end mark of the block before line {number} is missing")
            note, start, inside = beginning[1], place, []
        elif ending := _ENDING.fullmatch(bare):
            if note is None:
                raise BrokenBlockError(f"line {number} ends a block that does not begin")
            if ending[1] != _checksum(inside):
                raise BrokenBlockError(
                    f"the lines between the marks were changed, before line {number}"
                )
            yield _block(text, note, start, place + len(line))
            note = None
        else:
            inside.append(bare)
        place += len(line) + 1
    if note is not None:
        raise BrokenBlockError("the end mark is missing")


def _block(
    text: str,
    note: str,
    start: int,
    stop: int,
) -> _Block:
    """Return a block with the line end that came with it: the one after it, or at the end of a text the one before."""
    if stop < len(text):
        return _Block(note, start, stop + 1)
    end = "\r\n" if "\r\n" in text[start:stop] else "\n"
    return _Block(note, len(text[:start].removesuffix(end)), stop)


def _checksum(lines: Sequence[str]) -> str:
    return f"{zlib.crc32(chr(10).join(lines).encode('utf-8', 'surrogatepass')):08x}"
