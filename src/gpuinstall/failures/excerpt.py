"""A text of any length made short enough to search: what repeats is said once, what remains keeps its order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

LONG_TEXT = 3_000_000
LONG_LINE = 1000
BEFORE, AFTER = 4, 9
BLOCK = 1 << 16
_PART = LONG_TEXT // 3
_REMEMBERED = 200_000
_DIGITS = str.maketrans("123456789", "000000000")
_TELLING = (
    "error",
    "fail",
    "fatal",
    "exception",
    "warning",
    "cannot",
    "unable",
    "not found",
    "no such",
    "unsupported",
)


def excerpt(text: str) -> str:
    """Give a text as it is, or what :func:`excerpt_of` keeps of a long one."""
    return excerpt_of(text[start : start + BLOCK] for start in range(0, len(text), BLOCK))[0]


def excerpt_of(blocks: Iterable[str]) -> tuple[str, bool]:
    """Read a text to its end and keep, where it is long, of what does not repeat the beginning, the errors and the end.

    Say also whether that is the whole text. However long it is, a few megabytes are held at a time.
    """
    blocks, start, size = iter(blocks), [], 0
    for block in blocks:
        start.append(block)
        size += len(block)
        if size > LONG_TEXT:
            return "\n".join(_kept(_novel(_lines(chain(start, blocks))))), False
    return "".join(start), True


def pieces(lines: Iterable[str]) -> Iterator[str]:
    """Cut the lines that are too long."""
    for line in lines:
        for start in range(0, len(line) or 1, LONG_LINE):
            yield line[start : start + LONG_LINE]


def _lines(blocks: Iterable[str]) -> Iterator[list[str]]:
    """Cut each block into its lines; what it ends with belongs to the next."""
    rest = ""
    for block in blocks:
        *lines, rest = (rest + block).replace("\r", "\n").split("\n")
        if len(rest) > LONG_LINE:
            *more, rest = pieces([rest])
            lines += more
        yield list(pieces(lines))
    yield [rest]


def _novel(parts: Iterable[list[str]]) -> Iterator[list[str]]:
    """Leave out lines that stand between the same neighbours as before, numbers apart: a training log's progress."""
    seen: set[int] = set()
    window = [""]
    for part in chain(parts, ([""],)):
        window = window[-2:] + part
        shapes = "\n".join(window).translate(_DIGITS).split("\n")
        new: dict[int, str] = {}
        for around, line in zip(
            map(hash, zip(shapes, shapes[1:], shapes[2:], strict=False)), window[1:], strict=False
        ):
            if around not in seen:
                new.setdefault(around, line)
        seen.update(new)
        yield list(new.values())
        if len(seen) > _REMEMBERED:
            seen.clear()


def _kept(parts: Iterator[list[str]]) -> Iterator[str]:
    end: deque[list[str]] = deque()
    room = _PART
    while room > 0 and (part := next(parts, None)) is not None:
        yield from part
        room -= _size(part)
    yield from _telling(_all_but_the_last(parts, end))
    yield from chain.from_iterable(end)


def _all_but_the_last(parts: Iterator[list[str]], end: deque[list[str]]) -> Iterator[list[str]]:
    """Let through what comes before the end, which is left in ``end``."""
    room = _PART
    for part in parts:
        end.append(part)
        room -= _size(part)
        while room < 0:
            room += _size(end[0])
            yield end.popleft()


def _telling(parts: Iterator[list[str]]) -> Iterator[str]:
    """Keep the lines that speak of an error, with those around them."""
    room, wanted = _PART, 0
    before: deque[str] = deque(maxlen=BEFORE)
    for part in parts:
        if not wanted and not (room > 0 and _tells("\n".join(part))):
            before.extend(part[-BEFORE:])
            continue
        for line in part:
            if room > 0 and _tells(line):
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


def _tells(text: str) -> bool:
    low = text.lower()
    return any(word in low for word in _TELLING)


def _size(part: list[str]) -> int:
    return sum(map(len, part)) + len(part)
