"""The GPU code in a DLL of Windows that is loaded: Microsoft's "PE Format" (learn.microsoft.com)."""

from __future__ import annotations

import struct
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PLACE_OF_HEADER = 0x3C
_BEGINNING = 1 << 12
"""How much of a file is read before its header is looked for."""
_COFF = struct.Struct("<4s2xH12xH2x")
_SECTION = struct.Struct("<8s8xII16x")
_MOST_SECTIONS = 96
_RELOCATABLE = b"__nv_rel"
"""The section of the GPU code that was linked into that of another: nobody loads it, nor the PTX that it alone has."""


def without_relocatable(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a DLL without GPU code that nobody loads; what is no DLL as it is."""
    beginning = b""
    rest = iter(pieces)
    for piece in rest:
        beginning += piece
        if len(beginning) >= _BEGINNING:
            break
    start, end = _relocatable_part(beginning)
    place = 0
    for piece in chain([beginning], rest):
        yield piece[: max(start - place, 0)] + piece[max(end - place, 0) :]
        place += len(piece)


def _relocatable_part(data: bytes) -> tuple[int, int]:
    """Return where in the file the section begins and ends; both are 0 if there is none."""
    if not data.startswith(b"MZ"):
        return 0, 0
    with suppress(struct.error):
        [header] = struct.unpack_from("<I", data, _PLACE_OF_HEADER)
        signature, count, optional_size = _COFF.unpack_from(data, header)
        if signature == b"PE\0\0":
            first = header + _COFF.size + optional_size
            for number in range(min(count, _MOST_SECTIONS)):
                row = _SECTION.unpack_from(data, first + number * _SECTION.size)
                name, size, place = row
                if name == _RELOCATABLE:
                    return place, place + size
    return 0, 0
