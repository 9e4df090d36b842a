"""The libraries that a DLL of Windows is linked to, out of its beginning: Microsoft's "PE Format" (learn.microsoft.com).

The import table and its names lie in ``.rdata``, behind the code and before what is large, the GPU code.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_OF_FILE = 64 << 20
"""How much of a file is read for its table: that of ONNX Runtime for CUDA, of 380 MB, ends at 22 MB."""

_PLACE_OF_HEADER = 0x3C
_SIGNATURE = b"PE\0\0"
_COFF = struct.Struct("<4sHHIIIHH")
_64_BIT = 0x20B
_DIRECTORIES = 112
"""Where in the optional header of a 64-bit file the data directories begin."""
_SECTION = struct.Struct("<8sIIII16x")
_MOST_SECTIONS = 96
_MOST_LIBRARIES = 1000


class _Table(NamedTuple):
    """A data directory with a row for each library."""

    number: int
    """Which of the directories it is."""
    row: struct.Struct
    """Its first number is the address of the library's name."""


_IMPORTS = _Table(1, struct.Struct("<12xI4x"))
_DELAYED = _Table(13, struct.Struct("<4xI24x"))


class _Section(NamedTuple):
    address: int
    """In memory."""
    size: int
    place: int
    """In the file."""


class _Header(NamedTuple):
    sections: tuple[_Section, ...]
    tables: tuple[tuple[int, _Table], ...]
    """The tables with the addresses where they begin."""

    def place(self, address: int) -> int:
        """Return where in the file something lies; raise ValueError if it lies nowhere."""
        section = self.section(address)
        return address - section.address + section.place

    def section(self, address: int) -> _Section:
        """Return the section of an address; raise ValueError if it is in none."""
        for section in self.sections:
            if section.address <= address < section.address + section.size:
                return section
        raise ValueError("no section has this address")


def linked_libraries(pieces: Iterable[bytes]) -> tuple[str, ...] | None:
    """Return the libraries that a 64-bit file is linked to, those that it loads later among them.

    Args:
        pieces: The file; no more of it is read than is needed.

    Returns:
        None if it is no such file, or its table lies beyond what is read.
    """
    data = bytearray()
    header = None
    end = 1 << 12
    for piece in pieces:
        data += piece
        if len(data) < end:
            continue
        if header is None:
            header = _read_header(bytes(data))
            if header is None:
                return None
            with suppress(ValueError):
                parts = [header.section(address) for address, _ in header.tables]
                end = max((part.place + part.size for part in parts), default=0)
        if len(data) >= end:
            break
        if end > MOST_OF_FILE:
            return None
    if header is None:
        header = _read_header(bytes(data))
    with suppress(ValueError, struct.error):
        if header:
            names = dict.fromkeys(_names(bytes(data), header))
            return tuple(names)
    return None


def _read_header(data: bytes) -> _Header | None:
    with suppress(struct.error):
        [start] = struct.unpack_from("<I", data, _PLACE_OF_HEADER)
        signature, _, count, _, _, _, size, _ = _COFF.unpack_from(data, start)
        header = start + _COFF.size
        [magic] = struct.unpack_from("<H", data, header)
        if data[:2] != b"MZ" or signature != _SIGNATURE or magic != _64_BIT:
            return None
        sections = []
        for number in range(min(count, _MOST_SECTIONS)):
            place = header + size + number * _SECTION.size
            _, _, address, in_file, offset = _SECTION.unpack_from(data, place)
            sections.append(_Section(address, in_file, offset))
        tables = []
        for table in (_IMPORTS, _DELAYED):
            place = header + _DIRECTORIES + table.number * 8
            [address] = struct.unpack_from("<I", data, place)
            if address and place < header + size:
                tables.append((address, table))
        return _Header(tuple(sections), tuple(tables))
    return None


def _names(data: bytes, header: _Header) -> Iterator[str]:
    for address, table in header.tables:
        start = header.place(address)
        for number in range(_MOST_LIBRARIES):
            [name] = table.row.unpack_from(data, start + number * table.row.size)
            if not name:
                break
            place = header.place(name)
            text = data[place : data.index(b"\0", place, place + 260)]
            yield text.decode("ascii")
