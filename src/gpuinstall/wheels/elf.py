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
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.values import dataclass

if TYPE_CHECKING:
    from mmap import mmap

    _Data = bytes | mmap

_IDENTITY = b"\x7fELF\x02\x01"
"""64-bit, little-endian: every platform that wheels with GPU code are made for."""
X86_64 = 62

_HEADER = struct.Struct("<16xHHI8xQ12xHHH6x")
_SEGMENT = struct.Struct("<I4xQQ8xQ16x")
_ENTRY = struct.Struct("<QQ")
_SYMBOL = struct.Struct("<IBBH16x")
_WORD = struct.Struct("<I")

# Kinds of files.
_PROGRAM = 2
_LIBRARY = 3
# Kinds of segments.
_LOAD = 1
_DYNAMIC = 2
# Kinds of entries in the dynamic segment.
_END = 0
_NEEDED = 1
_HASH = 4
_STRINGS = 5
_SYMBOLS = 6
_STRINGS_SIZE = 10
_SONAME = 14
_RPATH = 15
_RUNPATH = 29
_GNU_HASH = 0x6FFFFEF5
# Kinds of symbols.
_TYPES = frozenset({0, 1, 2, 3, 4, 6, 10})
_SECTION = 3
_BINDINGS = frozenset({0, 1, 2, 10})
_WEAK = 2

_MOST_SEGMENTS = 128
_MOST_ENTRIES = 4096
_MOST_SYMBOLS = 1 << 19
"""libtorch_cpu has some 130,000 symbols, the most of any library in a wheel that was read."""
_MOST_STRINGS = 64 << 20
_LONGEST_BEGINNING = 4 << 20
_FEWEST = 16
"""How many sound rows make a table of symbols that nothing points to."""
_SHORTEST_TRIED = 256
"""How many zero rows to look at as the beginning of such a table."""

_NAME = re.compile(rb"[!-~]{1,65535}\0")
_TEXT = bytes({0, *range(ord("!"), ord("~") + 1)})
_NEED = re.compile(
    rb"(?<=\0)(?:lib|ld-)[\w.+-]{1,200}\.so(?:\.[\w.]{1,60})?(?=\0)", re.ASCII
)


@dataclass(frozen=True)
class Elf:
    """The dynamic tables of a library."""

    machine: int
    needs: tuple[str, ...]
    """The libraries that the loader looks for; its own name may be among them if only the beginning was read."""
    paths: tuple[str, ...]
    """The folders that the loader is told to look in; unknown if only the beginning was read."""
    soname: str | None
    table: bytes
    """The rows of the symbols."""
    strings: bytes
    """The names of the symbols."""
    whole: bool
    """Whether more than the beginning of the file was read."""

    def undefined(self) -> set[bytes]:
        """Return the symbols that another library must have; those that may be missing (weak) do not count."""
        names = set()
        for offset, info, _, section in _SYMBOL.iter_unpack(self.table):
            is_weak = info >> 4 == _WEAK
            if offset and section == 0 and not is_weak:
                names.add(_text_at(self.strings, offset))
        return names

    def defined(self) -> set[bytes]:
        """Return the symbols that it has for others."""
        names = set()
        for offset, _, _, section in _SYMBOL.iter_unpack(self.table):
            if offset and section:
                names.add(_text_at(self.strings, offset))
        return names

    def newest(self, family: str) -> tuple[int, ...] | None:
        """Return the highest version of a family that it requires of another library: ``GLIBC``, ``GLIBCXX``."""
        pattern = rb"\0%b_([0-9]+(?:\.[0-9]+){1,3})(?=\0)" % family.encode()
        texts: list[bytes] = re.findall(pattern, self.strings)
        versions = [tuple(map(int, text.split(b"."))) for text in texts]
        return max(versions, default=None)


def read_elf(data: _Data, *, whole: bool) -> Elf | None:
    """Return a library, or what its beginning tells if that is not ``whole``; None if it has no sound tables."""
    if data[: len(_IDENTITY)] != _IDENTITY:
        return None
    with suppress(struct.error, ValueError, OverflowError, KeyError):
        kind, machine, _, start, _, size, count = _HEADER.unpack_from(data)
        if kind not in {_PROGRAM, _LIBRARY}:
            return None
        if size != _SEGMENT.size or count > _MOST_SEGMENTS:
            return None
        end = start + count * size
        if whole:
            return _read_linked(data, machine, data[start:end])
        return _read_beginning(data[:_LONGEST_BEGINNING], machine, end)
    return None


class _Segment(NamedTuple):
    kind: int
    start: int
    address: int
    size: int


class _File(NamedTuple):
    """A file, of which a part is found by the address that it is loaded to."""

    data: _Data
    loaded: list[_Segment]

    def place(self, address: int) -> int:
        """Return where in the file an address lies; raise ValueError if nothing is loaded to it."""
        for segment in self.loaded:
            offset = address - segment.address
            place = segment.start + offset
            is_loaded = 0 <= offset < segment.size
            if is_loaded and place < len(self.data):
                return place
        raise ValueError("an address outside the file")

    def part(self, address: int, size: int) -> bytes:
        """Return so many bytes from an address on; raise ValueError if there are fewer."""
        start = self.place(address)
        part = self.data[start : start + size]
        if len(part) != size:
            raise ValueError("the file is cut")
        return part


def _read_linked(
    data: _Data,
    machine: int,
    headers: bytes,
) -> Elf | None:
    segments = [_Segment(*row) for row in _SEGMENT.iter_unpack(headers)]
    loaded = [segment for segment in segments if segment.kind == _LOAD]
    dynamic = [segment for segment in segments if segment.kind == _DYNAMIC]
    file = _File(data, loaded)
    if not dynamic:
        return None
    entries = list(_entries(data, dynamic[0]))
    # Of several entries of a kind, the first counts.
    values = dict(reversed(entries))
    if values[_STRINGS_SIZE] >= _MOST_STRINGS:
        return None
    strings = file.part(values[_STRINGS], values[_STRINGS_SIZE])
    count = _count(file, values)
    table = file.part(values[_SYMBOLS], count * _SYMBOL.size)
    if not _is_sound(table, strings):
        return None
    texts = defaultdict[int, list[str]](list)
    for kind, value in entries:
        if kind in {_NEEDED, _SONAME, _RPATH, _RUNPATH}:
            text = _text_at(strings, value)
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


def _entries(data: _Data, dynamic: _Segment) -> Iterator[tuple[int, int]]:
    """Yield the kinds and values of the entries of a dynamic segment."""
    count = min(dynamic.size // _ENTRY.size, _MOST_ENTRIES)
    for number in range(count):
        place = dynamic.start + number * _ENTRY.size
        kind, value = _ENTRY.unpack_from(data, place)
        if kind == _END:
            return
        yield kind, value


def _count(file: _File, values: Mapping[int, int]) -> int:
    """Return how many symbols there are: one kind of hash table tells it, of the other the end of the last chain."""
    if _HASH in values:
        # The second word, behind the number of buckets.
        place = file.place(values[_HASH]) + _WORD.size
        count: int = _WORD.unpack_from(file.data, place)[0]
    else:
        place = file.place(values[_GNU_HASH])
        count = _count_chained(file.data, place)
    if count > _MOST_SYMBOLS:
        raise ValueError("more symbols than any library has")
    return count


def _count_chained(data: _Data, place: int) -> int:
    buckets, first, words = struct.unpack_from("<III", data, place)
    if buckets > _MOST_SYMBOLS:
        raise ValueError("more buckets than any library has")
    start = place + 16 + 8 * words
    lasts = struct.unpack_from(f"<{buckets}I", data, start)
    last: int = max(lasts, default=0)
    # A library that has nothing for others has no chain.
    if last < max(first, 1):
        return int(first)
    chains = start + 4 * (buckets - first)
    while last <= _MOST_SYMBOLS:
        [word] = _WORD.unpack_from(data, chains + 4 * last)
        last += 1
        if word & 1:
            break
    return last


def _read_beginning(
    data: bytes,
    machine: int,
    start: int,
) -> Elf | None:
    """Find the table of symbols by its shape: a row of zeros, then sound rows, then the names that these point to."""
    zeros = data.find(bytes(_SYMBOL.size), start)
    while zeros >= 0:
        end = zeros + _SYMBOL.size
        while data[end : end + 1] == b"\0":
            end += 1
        last = end - _SYMBOL.size
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
    """Return the table of symbols that begins at a row of zeros, and their names behind it; None if a part is lacking."""
    end = first + _SYMBOL.size
    furthest = 0
    while end + _SYMBOL.size <= len(data):
        symbol = _SYMBOL.unpack_from(data, end)
        if not _is_row(symbol):
            break
        furthest = max(furthest, symbol[0])
        end += _SYMBOL.size
    count = (end - first) // _SYMBOL.size
    if not _FEWEST < count <= _MOST_SYMBOLS:
        return None
    if data[end : end + 1] != b"\0":
        return None
    # The names of versions and libraries stand among or behind those of the symbols, up to the next table.
    end_of_names = data.find(b"\0\0", end + furthest)
    if end_of_names < 0:
        return None
    table = data[first:end]
    strings = data[end : end_of_names + 1]
    if not _is_sound(table, strings):
        return None
    # Each once, in their order.
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


def _is_row(row: tuple[int, ...]) -> bool:
    """Whether a row may be one of a table of symbols."""
    name, info, other, section = row
    kind = info & 15
    if kind not in _TYPES or info >> 4 not in _BINDINGS:
        return False
    if other > 3 or name >= _MOST_STRINGS:
        return False
    if name == 0 and kind != _SECTION:
        return False
    # From the first reserved number on there are only those of symbols without a place in the file.
    return section < 0xFF00 or section in {0xFFF1, 0xFFF2}


def _is_sound(table: bytes, strings: bytes) -> bool:
    """Whether the names begin with none and end, and every symbol has one of text in them."""
    if not strings.startswith(b"\0") or not strings.endswith(b"\0"):
        return False
    offsets = {row[0] for row in _SYMBOL.iter_unpack(table)}
    offsets.discard(0)
    if max(offsets, default=0) >= len(strings):
        return False
    # libtorch_cpu's 120,000 names at once, in a tenth of the time.
    if not strings.translate(None, _TEXT):
        return all(map(strings.__getitem__, offsets))
    return all(_NAME.match(strings, offset) for offset in offsets)


def _text_at(strings: bytes, offset: int) -> bytes:
    return strings[offset : strings.index(b"\0", offset)]
