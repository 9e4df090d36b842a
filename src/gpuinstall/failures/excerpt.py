"""A text of any length made short enough to search: what repeats is said once, what remains keeps its order."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONG_TEXT = 3_000_000
LONG_LINE = 1000
BEFORE, AFTER = 4, 9
BLOCK = 1 << 20
_PART = LONG_TEXT // 3
_REMEMBERED = 200_000
_DIGITS = str.maketrans("123456789", "000000000")
_TELLING = ("error", "fail", "fatal", "exception", "warning", "cannot", "unable", "not found", "no such", "unsupported")


def excerpt(text: str) -> str:
    """Give a text as it is, or what :func:`excerpt_of` keeps of a long one."""
    return excerpt_of(text[start : start + BLOCK] for start in range(0, len(text), BLOCK))


def excerpt_of(blocks: Iterable[str]) -> str:
    """Read a text to its end and keep, where it is long, of what does not repeat the beginning, the errors and the end.

    However long it is, a few megabytes are held at a time.
    """
    blocks, start, size = iter(blocks), [], 0
    for block in blocks:
        start.append(block)
        size += len(block)
        if size > LONG_TEXT:
            return "\n".join(_kept(_novel(_lines(chain(start, blocks)))))
    return "".join(start)


def pieces(lines: Iterable[str]) -> Iterator[str]:
    """Cut the lines that are too long."""
    for line in lines:
        for start in range(0, len(line) or 1, LONG_LINE):
            yield line[start : start + LONG_LINE]


def _lines(blocks: Iterable[str]) -> Iterator[str]:
    rest = ""
    for block in blocks:
        *lines, rest = (rest + block).replace("\r", "\n").split("\n")
        yield from pieces(lines)
        if len(rest) > LONG_LINE:
            *lines, rest = pieces([rest])
            yield from lines
    yield rest


def _novel(lines: Iterator[str]) -> Iterator[str]:
    """Leave out lines that stand between the same neighbours as before, numbers apart: a training log's progress."""
    seen: set[int] = set()
    before, line = 0, next(lines, "")
    shape = hash(line.translate(_DIGITS))
    for following in chain(lines, ("",)):
        after = hash(following.translate(_DIGITS))
        around = hash((before, shape, after))
        if around not in seen:
            yield line
            seen.add(around)
            if len(seen) > _REMEMBERED:
                seen.clear()
        before, shape, line = shape, after, following


def _kept(lines: Iterator[str]) -> Iterator[str]:
    end: deque[str] = deque()
    yield from _first(lines)
    yield from _telling(_all_but_the_last(lines, end))
    yield from end


def _first(lines: Iterator[str]) -> Iterator[str]:
    room = _PART
    while room > 0 and (line := next(lines, None)) is not None:
        yield line
        room -= len(line) + 1


def _all_but_the_last(lines: Iterator[str], end: deque[str]) -> Iterator[str]:
    """Let through what comes before the end, which is left in ``end``."""
    room = _PART
    for line in lines:
        end.append(line)
        room -= len(line) + 1
        while room < 0:
            room += len(end[0]) + 1
            yield end.popleft()


def _telling(lines: Iterator[str]) -> Iterator[str]:
    """Keep the lines that speak of an error, with those around them."""
    room, wanted = _PART, 0
    before: deque[str] = deque(maxlen=BEFORE)
    for line in lines:
        low = line.lower()
        if room > 0 and any(word in low for word in _TELLING):
            room -= sum(map(len, before))
            yield from before
            before.clear()
            wanted = AFTER
        if wanted and room > 0:
            yield line
            room -= len(line) + 1
            wanted -= 1
        else:
            before.append(line)
