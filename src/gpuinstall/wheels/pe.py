"""What a DLL of Windows takes from other libraries, out of its beginning: Microsoft's "PE Format" (learn.microsoft.com).

The import table and its names lie in ``.rdata``, behind the code and before what is large, the GPU code.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_OF_FILE = 64 << 20
"""How much of a file is read for its table: that of ONNX Runtime for CUDA, of 380 MB, ends at 22 MB."""

_PLACE_OF_HEADER = 0x3C
_BEGINNING = 1 << 12
"""How much of a file is read before its header is looked for."""
_DOS_SIGNATURE = b"MZ"
_SIGNATURE = b"PE\0\0"
_COFF = struct.Struct("<4sHHIIIHH")
_64_BIT = 0x20B
_DIRECTORIES = 112
"""Where in the optional header of a 64-bit file the data directories begin."""
_SECTION = struct.Struct("<8sIIII16x")
_MOST_SECTIONS = 96
_RELOCATABLE = b"__nv_rel"
"""The section of the GPU code that was linked into that of another: nobody loads it, nor the PTX that it alone has."""
_MOST_LIBRARIES = 1000
_MOST_NAMES = 16 << 20
"""How many bytes of names and of their addresses are read: rows may all lead to the same ones."""
_LONGEST_NAME = 4096
_BY_NUMBER = 1 << 63
"""The bit of a function that has a number and no name."""


class _Table(NamedTuple):
    """A data directory with a row for each library."""

    number: int
    """Which of the directories it is."""
    row: struct.Struct
    """Its numbers are the address of the library's name and that of its functions, in one order or the other."""
    has_name_first: bool


_IMPORTS = _Table(1, struct.Struct("<I8xI4x"), has_name_first=False)
_DELAYED = _Table(13, struct.Struct("<4xI8xI12x"), has_name_first=True)


class _Section(NamedTuple):
    name: bytes
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
            offset = address - section.address
            if 0 <= offset < section.size:
                return section
        raise ValueError("no section has this address")

    def end_of_tables(self) -> int:
        """Return where in the file the sections with the tables end; raise ValueError if a table is in none."""
        end = 0
        for address, _ in self.tables:
            section = self.section(address)
            end = max(end, section.place + section.size)
        return end


def imported_functions(pieces: Iterable[bytes]) -> dict[str, frozenset[bytes]] | None:
    """Return the functions that a 64-bit file takes by name from each library, those that it loads later among them.

    Args:
        pieces: The file; no more of it is read than is needed.

    Returns:
        None if it is no such file, or its table lies beyond what is read.
    """
    data = bytearray()
    header = None
    end = _BEGINNING
    for piece in pieces:
        data += piece
        if len(data) < end:
            continue
        if header is None:
            header = _read_header(bytes(data))
            if header is None:
                return None
            with suppress(ValueError):
                end = header.end_of_tables()
        if len(data) >= end:
            break
        if end > MOST_OF_FILE:
            return None
    # A file that is shorter than the beginning has not been looked at.
    header = header or _read_header(bytes(data))
    if header is None:
        return None
    with suppress(ValueError, struct.error):
        functions: dict[str, frozenset[bytes]] = {}
        for library, names in _libraries(bytes(data), header):
            functions[library] = functions.get(library, frozenset()) | names
        return functions
    return None


def without_relocatable(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a DLL without GPU code that nobody loads; what is no DLL as it is."""
    beginning = b""
    rest = iter(pieces)
    for piece in rest:
        beginning += piece
        if len(beginning) >= _BEGINNING:
            break
    header = _read_header(beginning)
    start = end = 0
    for section in header.sections if header else ():
        if section.name == _RELOCATABLE:
            start = section.place
            end = section.place + section.size
    place = 0
    for piece in chain([beginning], rest):
        yield piece[: max(start - place, 0)] + piece[max(end - place, 0) :]
        place += len(piece)


def _read_header(data: bytes) -> _Header | None:
    if not data.startswith(_DOS_SIGNATURE):
        return None
    with suppress(struct.error):
        [start] = struct.unpack_from("<I", data, _PLACE_OF_HEADER)
        signature, _, count, _, _, _, size, _ = _COFF.unpack_from(data, start)
        optional = start + _COFF.size
        [magic] = struct.unpack_from("<H", data, optional)
        if signature != _SIGNATURE or magic != _64_BIT:
            return None
        end = optional + size
        sections = _read_sections(data, end, count)
        tables = _read_tables(data, optional, end)
        return _Header(
            sections=tuple(sections),
            tables=tuple(tables),
        )
    return None


def _read_sections(
    data: bytes,
    start: int,
    count: int,
) -> Iterator[_Section]:
    for number in range(min(count, _MOST_SECTIONS)):
        row = start + number * _SECTION.size
        name, _, address, size, place = _SECTION.unpack_from(data, row)
        yield _Section(name, address, size, place)


def _read_tables(
    data: bytes,
    start: int,
    end: int,
) -> Iterator[tuple[int, _Table]]:
    """Yield the tables that an optional header names, with their addresses."""
    for table in (_IMPORTS, _DELAYED):
        place = start + _DIRECTORIES + table.number * 8
        [address] = struct.unpack_from("<I", data, place)
        if address and place < end:
            yield address, table


def _libraries(data: bytes, header: _Header) -> Iterator[tuple[str, frozenset[bytes]]]:
    remaining = _MOST_NAMES
    for address, table in header.tables:
        start = header.place(address)
        for number in range(_MOST_LIBRARIES):
            addresses = table.row.unpack_from(data, start + number * table.row.size)
            if not any(addresses):
                break
            name, functions = addresses if table.has_name_first else reversed(addresses)
            library = _text(data, header.place(name)).decode("ascii")
            names = set()
            for function in _functions(data, header, functions):
                remaining -= len(function) + 8
                if remaining < 0:
                    raise ValueError("it has too many names")
                names.add(function)
            yield library, frozenset(names - {b""})


def _functions(data: bytes, header: _Header, address: int) -> Iterator[bytes]:
    """Yield the name of each function; an empty one for a number."""
    place = header.place(address)
    while True:
        [function] = struct.unpack_from("<Q", data, place)
        if not function:
            break
        # Two bytes before the name say where the library has it.
        yield b"" if function & _BY_NUMBER else _text(data, header.place(function) + 2)
        place += 8


def _text(data: bytes, start: int) -> bytes:
    end = data.index(b"\0", start, start + _LONGEST_NAME)
    return data[start:end]
