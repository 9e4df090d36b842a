"""Read the dynamic tables of an ELF library, or of its beginning.

The layout follows the System V ABI for 64-bit little-endian machines. Sizes and offsets
are checked against the file. The section headers, which tools such as patchelf update,
locate the tables. A library without sections or with invalid sizes is not read.

pyelftools takes 8 s for the 75,000 symbols of libtorch_cpu, instead of 0.1 s.
Furthermore, pyelftools trusts the sizes in a file, and cannot read the beginning of a
file.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from contextlib import suppress
from itertools import chain
from mmap import mmap
from typing import NamedTuple

from gpuinstall.base.values import Value

_Data = bytes | mmap

_IDENTITY = b"\x7fELF\x02\x01"
"""The ELF header of 64-bit little-endian files, which GPU wheels have."""
X86_64 = 62

# The type, the machine, the offsets of segments and sections, then the size and number of each.
_HEADER = struct.Struct("<16xHH12xQQ6xHHHH2x")
# The kind, the offset, the size, and the index of the section with its names.
_SECTION = struct.Struct("<4xI16xQQI20x")
_ENTRY = struct.Struct("<QQ")
_SYMBOL = struct.Struct("<IBBH16x")
_NAME_OFFSET = struct.Struct("<I20x")
"""The first field of a symbol: the offset of its name."""

# Kinds of files.
_PROGRAM = 2
_LIBRARY = 3
# Kinds of sections.
_DYNAMIC = 6
_DYNAMIC_SYMBOLS = 11
# Kinds of entries in the dynamic section.
_END = 0
_NEEDED = 1
_SONAME = 14
_RPATH = 15
_RUNPATH = 29
# Kinds of symbols.
_TYPES = frozenset({0, 1, 2, 3, 4, 6, 10})
_OF_SECTION = 3
_BINDINGS = frozenset({0, 1, 2, 10})
_WEAK = 2

_MAX_SECTIONS = 512
_MAX_ENTRIES = 4096
_MAX_SYMBOLS = 1 << 19
"""The maximum number of symbols. libtorch_cpu has about 130,000."""
_MAX_STRINGS = 64 << 20
_LONGEST_BEGINNING = 4 << 20
_FEWEST = 16
"""The minimum number of valid symbols in a symbol table."""
_SHORTEST_TRIED = 256
"""The maximum number of candidates for the start of a symbol table."""

_NAME = re.compile(rb"[!-~]{1,65535}\0")
_TEXT = bytes({0, *range(ord("!"), ord("~") + 1)})
_GLIBC = re.compile(rb"\0GLIBC_([0-9]+(?:\.[0-9]+){1,3})(?=\0)")
_NEED = re.compile(
    rb"(?<=\0)(?:lib|ld-)[\w.+-]{1,200}\.so(?:\.[\w.]{1,60})?(?=\0)", re.ASCII
)


class Elf(Value):
    """The dynamic tables of an ELF library."""

    machine: int
    needs: tuple[str, ...]
    """The libraries that an ELF library links to.

    If only the beginning of the file was read, these are all library names in the
    string table, including the library's own.
    """
    paths: tuple[str, ...]
    """The RPATH and RUNPATH folders, if the whole file was read."""
    soname: str | None
    table: bytes
    """The rows of the symbol table."""
    strings: bytes
    """The string table with the names of the symbols."""
    whole: bool
    """Whether the whole file was read instead of only its beginning."""

    def undefined_symbols(self) -> set[bytes]:
        """Return the symbols that other libraries must define."""
        names = set()
        for offset, info, _, section in _SYMBOL.iter_unpack(self.table):
            is_weak = info >> 4 == _WEAK
            if offset and section == 0 and not is_weak:
                names.add(_read_string(self.strings, offset))
        return names

    def defined_symbols(self) -> set[bytes]:
        """Return the symbols that the library exports."""
        names = set()
        for offset, _, _, section in _SYMBOL.iter_unpack(self.table):
            if offset and section:
                names.add(_read_string(self.strings, offset))
        return names

    def required_glibc(self) -> tuple[int, ...]:
        """Return the highest glibc version that a library requires."""
        texts: list[bytes] = _GLIBC.findall(self.strings)
        versions = [tuple(map(int, text.split(b"."))) for text in texts]
        return max(versions, default=())


def read_elf(data: _Data, *, whole: bool) -> Elf | None:
    """Read the dynamic tables of a library, or return None if invalid.

    Args:
        data: The library, or its beginning.
        whole: Whether ``data`` is the whole file.
    """
    if data[: len(_IDENTITY)] != _IDENTITY:
        return None
    with suppress(struct.error, ValueError, OverflowError, LookupError):
        kind, machine, segments, sections, *sizes = _HEADER.unpack_from(data)
        if kind not in {_PROGRAM, _LIBRARY}:
            return None
        segment_size, segment_count, size, count = sizes
        if not whole:
            end = segments + segment_count * segment_size
            return _read_beginning(data[:_LONGEST_BEGINNING], machine, end)
        if size == _SECTION.size and count <= _MAX_SECTIONS:
            end = sections + count * size
            return _read_sections(data, machine, data[sections:end])
    return None


class _Section(NamedTuple):
    kind: int
    start: int
    size: int
    link: int
    """The index of the section with the names of the sections."""

    def read(self, data: _Data, most: int) -> bytes:
        """Return the section's bytes; raise ValueError if it is truncated."""
        end = self.start + min(self.size, most)
        part = data[self.start : end]
        if len(part) != self.size:
            raise ValueError("a section extends past the end of the file")
        return part


def _read_sections(
    data: _Data,
    machine: int,
    headers: bytes,
) -> Elf | None:
    rows = _SECTION.iter_unpack(headers)
    sections = [_Section(*row) for row in rows]
    # The order is reversed, so that the first section of each kind is kept.
    by_kind = {section.kind: section for section in reversed(sections)}
    symbols = by_kind[_DYNAMIC_SYMBOLS]
    table = symbols.read(data, _MAX_SYMBOLS * _SYMBOL.size)
    strings = sections[symbols.link].read(data, _MAX_STRINGS)
    if not _is_complete(table, strings):
        return None
    texts = defaultdict[int, list[str]](list)
    entries = by_kind[_DYNAMIC].read(data, _MAX_ENTRIES * _ENTRY.size)
    for kind, value in _ENTRY.iter_unpack(entries):
        if kind == _END:
            break
        if kind in {_NEEDED, _SONAME, _RPATH, _RUNPATH}:
            text = _read_string(strings, value)
            texts[kind].append(text.decode())
    paths = ":".join([*texts[_RPATH], *texts[_RUNPATH]])
    return Elf(
        machine,
        needs=tuple(texts[_NEEDED]),
        paths=tuple(filter(None, paths.split(":"))),
        soname=next(iter(texts[_SONAME]), None),
        table=table,
        strings=strings,
        whole=True,
    )


def _read_beginning(
    data: bytes,
    machine: int,
    start: int,
) -> Elf | None:
    """Find a symbol table: a row of zeros, then valid symbols and names."""
    zeros = data.find(bytes(_SYMBOL.size), start)
    while zeros >= 0:
        end = zeros + _SYMBOL.size
        while data[end : end + 1] == b"\0":
            end += 1
        last = end - _SYMBOL.size
        # The table is aligned to eight bytes. Other zeros may precede its first row.
        aligned = range((zeros + 7) & ~7, last + 1, 8)
        for first in aligned[-_SHORTEST_TRIED:]:
            elf = _read_table(data, machine, first)
            if elf:
                return elf
        zeros = data.find(bytes(_SYMBOL.size), end)
    return None


def _read_table(
    data: bytes,
    machine: int,
    first: int,
) -> Elf | None:
    """Read a symbol table and its names; return None if it is incomplete.

    Args:
        data: The beginning of a library.
        machine: The ELF machine number.
        first: The offset of the zero row.
    """
    end = first + _SYMBOL.size
    furthest = 0
    while end + _SYMBOL.size <= len(data):
        symbol = _SYMBOL.unpack_from(data, end)
        if not _is_symbol(symbol):
            break
        furthest = max(furthest, symbol[0])
        end += _SYMBOL.size
    count = (end - first) // _SYMBOL.size
    if not _FEWEST < count <= _MAX_SYMBOLS:
        return None
    if data[end : end + 1] != b"\0":
        return None
    # The names of symbols, then of versions and libraries, end at the next table.
    end_of_names = data.find(b"\0\0", end + furthest)
    if end_of_names < 0:
        return None
    table = data[first:end]
    strings = data[end : end_of_names + 1]
    # The section headers, which would confirm the table, are not read.
    if not (_is_complete(table, strings) and _has_valid_names(table, strings)):
        return None
    # Remove duplicates but keep the order.
    needs = dict.fromkeys(_NEED.findall(strings))
    return Elf(
        machine,
        needs=tuple(need.decode() for need in needs),
        paths=(),
        soname=None,
        table=table,
        strings=strings,
        whole=False,
    )


def _is_symbol(row: tuple[int, ...]) -> bool:
    """Return whether the fields of a table row are valid for a symbol."""
    name, info, other, section = row
    kind = info & 15
    is_known = kind in _TYPES and info >> 4 in _BINDINGS
    if not is_known or other > 3 or name >= _MAX_STRINGS:
        return False
    if name == 0 and kind != _OF_SECTION:
        return False
    # Absolute and common symbols have reserved section numbers.
    return section < 0xFF00 or section in {0xFFF1, 0xFFF2}


def _is_complete(table: bytes, strings: bytes) -> bool:
    """Return whether the string table contains the name of every symbol."""
    offsets = chain.from_iterable(_NAME_OFFSET.iter_unpack(table))
    is_whole = strings.startswith(b"\0") and strings.endswith(b"\0")
    return is_whole and max(offsets, default=0) < len(strings)


def _has_valid_names(table: bytes, strings: bytes) -> bool:
    """Return whether every symbol has a name or is the empty one."""
    offsets = set(chain.from_iterable(_NAME_OFFSET.iter_unpack(table))) - {0}
    # Checking all 120,000 names of libtorch_cpu at once takes a tenth of the time.
    if not strings.translate(None, _TEXT):
        return all(map(strings.__getitem__, offsets))
    return all(_NAME.match(strings, offset) for offset in offsets)


def _read_string(strings: bytes, offset: int) -> bytes:
    return strings[offset : strings.index(b"\0", offset)]
