"""A text of any length made short enough to search: what repeats is said once, what remains keeps its order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

_Batches = Iterator[list[str]]
"""The lines of a text, some thousand at a time."""

LONG_TEXT = 3_000_000
"""Characters."""
LONG_LINE = 1000
"""Characters."""
BEFORE = 4
"""Lines that belong to one below them."""
AFTER = 9
"""Lines that belong to one above them, with that one."""
BLOCK = 1 << 16
"""Characters that are read at once."""
_THIRD = LONG_TEXT // 3
"""Characters of the beginning, of the errors and of the end each."""
_REMEMBERED = 200_000
"""Lines."""
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
    """Return a text as it is, or what :func:`excerpt_of` keeps of a long one."""
    blocks = (text[start : start + BLOCK] for start in range(0, len(text), BLOCK))
    return excerpt_of(blocks)[0]


def excerpt_of(blocks: Iterable[str]) -> tuple[str, bool]:
    """Read a text to its end and return it, and whether it is whole.

    Of a long one the beginning, the errors and the end are kept, without what repeats. However long it is, a few
    megabytes are held at a time.
    """
    blocks = iter(blocks)
    start = []
    size = 0
    for block in blocks:
        start.append(block)
        size += len(block)
        if size > LONG_TEXT:
            batches = _new_lines(_lines(chain(start, blocks)))
            return "\n".join(_shortened(batches)), False
    return "".join(start), True


def pieces(lines: Iterable[str]) -> Iterator[str]:
    """Cut the lines that are too long."""
    for line in lines:
        for start in range(0, len(line) or 1, LONG_LINE):
            yield line[start : start + LONG_LINE]


def _lines(blocks: Iterable[str]) -> _Batches:
    """Cut each block into its lines; what it ends with belongs to the next."""
    rest = ""
    for block in blocks:
        text = (rest + block).replace("\r", "\n")
        *lines, rest = text.split("\n")
        if len(rest) > LONG_LINE:
            *more, rest = pieces([rest])
            lines += more
        yield list(pieces(lines))
    yield [rest]


def _new_lines(batches: Iterable[list[str]]) -> _Batches:
    """Leave out lines that stand between the same neighbours as before, numbers apart: a training log's progress.

    A line is known by its shape, digits as 0, and those of its two neighbours. A batch brings the line after the last
    one of the batch before, so that this one is judged only now.
    """
    seen = set[int]()
    window = [""]
    for batch in chain(batches, ([""],)):
        window = window[-2:] + batch
        text = "\n".join(window).translate(_DIGITS)
        shapes = text.split("\n")
        keys = map(hash, zip(shapes, shapes[1:], shapes[2:], strict=False))
        new: dict[int, str] = {}
        for key, line in zip(keys, window[1:], strict=False):
            if key not in seen:
                new.setdefault(key, line)
        seen.update(new)
        yield list(new.values())
        # Rather forget all than grow: a repeat then costs one line.
        if len(seen) > _REMEMBERED:
            seen.clear()


def _shortened(batches: _Batches) -> Iterator[str]:
    """Yield the beginning, the errors of what follows and the end."""
    room = _THIRD
    for batch in batches:
        yield from batch
        room -= _size(batch)
        if room <= 0:
            break
    end: deque[list[str]] = deque()
    yield from _errors(_all_but_the_last(batches, end))
    yield from chain.from_iterable(end)


def _all_but_the_last(
    batches: _Batches,
    end: deque[list[str]],
) -> _Batches:
    """Let through what comes before the end, which is left in ``end``."""
    room = _THIRD
    for batch in batches:
        end.append(batch)
        room -= _size(batch)
        while room < 0:
            first = end.popleft()
            room += _size(first)
            yield first


def _errors(batches: _Batches) -> Iterator[str]:
    """Yield the lines that speak of an error, with those around them."""
    room = _THIRD
    following = 0
    before: deque[str] = deque(maxlen=BEFORE)
    for batch in batches:
        # Most batches speak of none: one is searched as a whole first.
        has_error = room > 0 and _tells("\n".join(batch))
        if not following and not has_error:
            before.extend(batch[-BEFORE:])
            continue
        for line in batch:
            if room > 0 and _tells(line):
                room -= sum(map(len, before))
                yield from before
                before.clear()
                following = AFTER
            if following and room > 0:
                yield line
                room -= len(line) + 1
                following -= 1
            else:
                before.append(line)


def _tells(text: str) -> bool:
    low = text.lower()
    return any(word in low for word in _TELLING)


def _size(batch: list[str]) -> int:
    return sum(map(len, batch)) + len(batch)
