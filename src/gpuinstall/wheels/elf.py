"""The tables by which one native library is linked to others, read of an ELF file or of its beginning.

The layout is that of the System V ABI for 64-bit little-endian machines. Nothing in the file is believed before it is
checked against the bytes that are there, no chain of a hash table is followed from one symbol to the next, and what
contradicts itself has no answer.

pyelftools, which does the same for every kind of file, takes 8 s for the 75,000 symbols of libtorch_cpu (this: 0.1 s),
believes the sizes in a file, and reads no file of which only the beginning is there.
"""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from mmap import mmap

    Loaded = list[tuple[int, int, int]]
    """Parts of the file by the address that they are loaded to, where they begin, and their sizes."""

_IDENTITY = b"\x7fELF\x02\x01"
"""64-bit, little-endian: every platform that wheels with GPU code are made for."""
X86_64 = 62

_HEADER, _SEGMENT = struct.Struct("<16xHHI8xQ12xHHH6x"), struct.Struct("<I4xQQ8xQ16x")
_ENTRY, _SYMBOL, _WORD = struct.Struct("<QQ"), struct.Struct("<IBBH16x"), struct.Struct("<I")
_LIBRARY, _LOAD, _DYNAMIC = 3, 1, 2
_NEEDED, _HASH, _STRINGS, _SYMBOLS, _STRINGS_SIZE, _SONAME, _RPATH, _RUNPATH = (
    1,
    4,
    5,
    6,
    10,
    14,
    15,
    29,
)
_GNU_HASH = 0x6FFFFEF5
_TYPES, _BINDINGS, _WEAK = frozenset({0, 1, 2, 3, 4, 6, 10}), frozenset({0, 1, 2, 10}), 2

_MOST_SEGMENTS, _MOST_ENTRIES, _MOST_SYMBOLS = 128, 4096, 1 << 19
"""libtorch_cpu has some 130,000 symbols, the most of any library in a wheel that was read."""
_MOST_STRINGS = 64 << 20
_LONGEST_BEGINNING = 4 << 20
_FEWEST = 16
"""How many sound rows make a table of symbols that nothing points to."""
_SHORTEST_TRIED = 256
"""How many zero rows to look at as the beginning of such a table."""

_NAME = re.compile(rb"[!-~]{1,65535}\0")
_TEXT = bytes({0, *range(ord("!"), ord("~") + 1)})
_NEED = re.compile(rb"(?<=\0)(?:lib|ld-)[\w.+-]{1,200}\.so(?:\.[\w.]{1,60})?(?=\0)", re.ASCII)


@dataclass(frozen=True)
class Elf:
    """The dynamic tables of a library.

    ``needs`` are the libraries that the loader looks for, ``paths`` the folders that it is told to look in, ``table``
    the rows of the symbols, ``strings`` their names. Where only the beginning of the file was read, ``whole`` is False,
    ``paths`` are not known and ``needs`` may hold the library's own name.
    """

    machine: int
    needs: tuple[str, ...]
    paths: tuple[str, ...]
    soname: str | None
    table: bytes
    strings: bytes
    whole: bool

    def undefined(self) -> set[bytes]:
        """The symbols that another library must have; those that may be missing (weak) do not count."""
        return self._names(lambda info, section: section == 0 and info >> 4 != _WEAK)

    def defined(self) -> set[bytes]:
        """The symbols that it has for others."""
        return self._names(lambda _, section: section != 0)

    def newest(self, family: str) -> tuple[int, ...] | None:
        """The highest version of a family that it asks of another library: ``GLIBC``, ``GLIBCXX``."""
        versions = re.findall(
            rb"\0%b_([0-9]+(?:\.[0-9]+){1,3})(?=\0)" % family.encode(), self.strings
        )
        return max((tuple(map(int, version.split(b"."))) for version in versions), default=None)

    def _names(self, wanted: Callable[[int, int], bool]) -> set[bytes]:
        rows = _SYMBOL.iter_unpack(self.table)
        return {
            self._string(offset)
            for offset, info, _, section in rows
            if offset and wanted(info, section)
        }

    def _string(self, offset: int) -> bytes:
        return self.strings[offset : self.strings.index(b"\0", offset)]


def read_elf(data: bytes | mmap, *, whole: bool) -> Elf | None:
    """Read a library, or its beginning where it is not ``whole``; None where it has no sound tables."""
    if data[: len(_IDENTITY)] != _IDENTITY:
        return None
    with suppress(struct.error, ValueError, OverflowError):
        kind, machine, _, at, _, size, count = _HEADER.unpack_from(data)
        if kind in {2, _LIBRARY} and size == _SEGMENT.size and count <= _MOST_SEGMENTS:
            end = at + count * size
            return (
                _read_linked(data, machine, at, count)
                if whole
                else _read_beginning(data, machine, end)
            )
    return None


def _read_linked(data: bytes | mmap, machine: int, at: int, count: int) -> Elf | None:
    segments = [_SEGMENT.unpack_from(data, at + number * _SEGMENT.size) for number in range(count)]
    loaded = [(address, start, size) for kind, start, address, size in segments if kind == _LOAD]
    dynamic = next(((start, size) for kind, start, _, size in segments if kind == _DYNAMIC), None)
    if dynamic is None:
        return None
    entries = list(_entries(data, *dynamic))
    values = dict(reversed(entries))
    places = [
        _place(values[tag], loaded, len(data)) for tag in (_STRINGS, _SYMBOLS) if tag in values
    ]
    if len(places) != 2 or values.get(_STRINGS_SIZE, _MOST_STRINGS) >= _MOST_STRINGS:
        return None
    start, first = places
    strings = data[start : start + values[_STRINGS_SIZE]]
    rows = _count(data, values, loaded)
    table = data[first : first + rows * _SYMBOL.size]
    if (
        len(strings) != values[_STRINGS_SIZE]
        or len(table) != rows * _SYMBOL.size
        or not _is_sound(table, strings)
    ):
        return None

    def texts(*tags: int) -> tuple[str, ...]:
        offsets = [value for tag, value in entries if tag in tags]
        return tuple(strings[offset : strings.index(b"\0", offset)].decode() for offset in offsets)

    paths = tuple(path for text in texts(_RPATH, _RUNPATH) for path in text.split(":") if path)
    return Elf(
        machine, texts(_NEEDED), paths, next(iter(texts(_SONAME)), None), table, strings, True
    )


def _entries(data: bytes | mmap, start: int, size: int) -> Iterator[tuple[int, int]]:
    for number in range(min(size // _ENTRY.size, _MOST_ENTRIES)):
        tag, value = _ENTRY.unpack_from(data, start + number * _ENTRY.size)
        if tag == 0:
            return
        yield tag, value


def _place(address: int, loaded: Loaded, size: int) -> int:
    """Where in the file of ``size`` bytes an address lies; raise ValueError where nothing is loaded to it."""
    for first, start, length in loaded:
        if 0 <= address - first < length and address - first + start < size:
            return address - first + start
    raise ValueError("an address outside the file")


def _count(data: bytes | mmap, values: dict[int, int], loaded: Loaded) -> int:
    """How many symbols there are: one kind of hash table says it, of the other the end of the last chain."""
    if _HASH in values:
        _, count = struct.unpack_from("<II", data, _place(values[_HASH], loaded, len(data)))
    else:
        at = _place(values[_GNU_HASH], loaded, len(data)) if _GNU_HASH in values else len(data)
        buckets, first, words = struct.unpack_from("<III", data, at)
        start = at + 16 + 8 * words
        if buckets > _MOST_SYMBOLS:
            raise ValueError("more symbols than any library has")
        last = max(struct.unpack_from(f"<{buckets}I", data, start), default=0)
        count, at = max(last, first), start + 4 * (buckets - first)
        ended = last < max(first, 1)  # a library that has nothing for others has no chain
        while not ended and count <= _MOST_SYMBOLS:
            ended = bool(_WORD.unpack_from(data, at + 4 * count)[0] & 1)
            count += 1
    if count > _MOST_SYMBOLS:
        raise ValueError("more symbols than any library has")
    return int(count)


def _read_beginning(data: bytes | mmap, machine: int, start: int) -> Elf | None:
    """Find the table of symbols by its shape: a row of zeros, then sound rows, then the names that these point to."""
    data = data[:_LONGEST_BEGINNING]
    at = start
    while (zeros := data.find(bytes(_SYMBOL.size), at)) >= 0:
        end = zeros + _SYMBOL.size
        while data[end : end + 1] == b"\0":
            end += 1
        aligned = range((zeros + 7) & ~7, end - _SYMBOL.size + 1, 8)
        for first in aligned[-_SHORTEST_TRIED:]:
            if elf := _named(data, machine, first):
                return elf
        at = end
    return None


def _named(data: bytes, machine: int, first: int) -> Elf | None:
    """The tables of symbols and of their names behind it, where both are there in full."""
    at = first + _SYMBOL.size
    while at + _SYMBOL.size <= len(data) and _is_row(*_SYMBOL.unpack_from(data, at)):
        at += _SYMBOL.size
    count = (at - first) // _SYMBOL.size
    if not _FEWEST < count <= _MOST_SYMBOLS or data[at : at + 1] != b"\0":
        return None
    table = data[first:at]
    furthest = at + max(row[0] for row in _SYMBOL.iter_unpack(table))
    # The names of versions and libraries stand among or behind those of the symbols, up to the next table.
    end = data.find(b"\0\0", furthest)
    strings = data[at : end + 1] if end >= 0 else b""
    if not strings or not _is_sound(table, strings):
        return None
    needs = dict.fromkeys(match[0].decode() for match in _NEED.finditer(strings))
    return Elf(machine, tuple(needs), (), None, table, strings, False)


def _is_row(name: int, info: int, other: int, section: int) -> bool:
    sound = info & 15 in _TYPES and info >> 4 in _BINDINGS and other <= 3 and name < _MOST_STRINGS
    return (
        sound and (name > 0 or info & 15 == 3) and (section < 0xFF00 or section in {0xFFF1, 0xFFF2})
    )


def _is_sound(table: bytes, strings: bytes) -> bool:
    """Say whether the names begin with none and end, and every symbol has one of text in them."""
    if strings[:1] != b"\0" or strings[-1:] != b"\0":
        return False
    offsets = {row[0] for row in _SYMBOL.iter_unpack(table)} - {0}
    if max(offsets, default=0) >= len(strings):
        return False
    if not strings.translate(
        None, _TEXT
    ):  # libtorch_cpu's 120,000 names at once, in a tenth of the time
        return all(strings[offset] for offset in offsets)
    return all(_NAME.match(strings, offset) for offset in offsets)
