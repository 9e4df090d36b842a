"""Read a library's GPU code: fatbins, and torch's architectures.

A fatbin container is a header of 16 bytes (magic, version 1, header size, length of the
rest) and entries. Each entry of a container has its kind at offset 0 (1 PTX, 2 machine
code, 8 relocatable code), header size at 4, length at 8, ISA version of PTX at 24
(minor) and 26, architecture at 28, and flags at 40. The layout was verified with wheels
for CUDA 11 to 13 on Linux and Windows. Architectures have their usual names: ``sm_90a``
for machine code, ``compute_90`` for PTX, and ``gfx942`` for AMD.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
_LENGTH = struct.Struct("<Q")
_ENTRY = struct.Struct("<H2xIQ8xHHI8xQ")
_COMPUTE = 1
_KINDS = {_COMPUTE: "compute", 2: "sm"}
_OTHER_KINDS = {4, 8, 16, 32, 64}
"""Kinds of fatbin entries that no driver runs. Kind 8 is for nvJitLink."""
_SUFFIXES = {0x200000: "f", 0x100000: "a"}
_LONGEST_HEADER = 4096
_ENOUGH = 3
_REPRESENTATIVE = 16
"""The number of containers that represent a library if the limit is reached.

In 24 of 26 large libraries, the first 16 containers have the architectures of all.
In the other two, one architecture is missing.
"""
_MOST = 64
_FAIR_PART = 20
"""The minimum share of single-architecture containers, as a divisor."""

_TOKEN = rb"(?:(?:sm|compute)_(?:[2-9]\d|[1-3]\d\d)[af]?|gfx[1-9][0-9a-f]{2,3})"
_FLAGS = re.compile(rb"%b(?: %b){0,99}\0" % (_TOKEN, _TOKEN))
"""A list of up to 100 names. Without a limit, the search is quadratic."""
_SIGNS = (b"sm_", b"gfx", b"compute_")
_SEPARATORS = b" ,;:/|="
_LONGEST = 4096
"""The maximum bytes of an architecture list. Fifty names need less."""


class FatbinCode(NamedTuple):
    """Architectures and PTX version of a fatbin container or a library."""

    architectures: tuple[str, ...] = ()
    isa: tuple[int, int] | None = None
    """The most frequent ISA version of the PTX, or None without PTX."""


class Fatbins:
    """Incremental reader of the GPU code in one library.

    Some kernels are compiled for more or fewer architectures than the rest (cuDNN,
    vllm, torch). The library's code is the first set of architectures that ``_ENOUGH``
    containers share, or else the most frequent set. A single architecture does not
    count as shared, because some libraries have one container for each architecture
    (cuTENSOR).
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._containers = read_containers(pieces)
        self._counts = Counter[tuple[str, ...]]()
        self._versions = Counter[tuple[int, int]]()
        self._common: tuple[str, ...] | None = None
        """The first set of architectures that ``_ENOUGH`` containers share."""
        self.is_done = False
        """Whether all pieces were read."""

    @property
    def is_representative(self) -> bool:
        """Whether the containers read so far represent the rest.

        Machine code for a single architecture is sorted by it in cuTENSOR 2.8.
        """
        several = (
            count
            for names, count in self._counts.items()
            if sum(name.startswith("sm_") for name in names) > 1
        )
        return sum(several) >= _REPRESENTATIVE

    def read(self, *, whole: bool) -> FatbinCode:
        """Return the GPU code in most of a library's fatbin containers.

        Args:
            whole: Whether to read all containers, instead of only until the
                architectures of most containers are known.
        """
        for code in self._containers:
            self._add(code)
            if not whole and (self._common or self._counts.total() == _MOST):
                break
        else:
            self.is_done = True
        if not self._counts:
            return FatbinCode()
        names = None if whole or self.is_done else self._common
        names = names or sort_architectures(_find_frequent_architectures(self._counts))
        isa = max(
            self._versions, key=lambda one: (self._versions[one], one), default=None
        )
        return FatbinCode(names, isa)

    def _add(self, code: FatbinCode) -> None:
        """Count a fatbin container by its architectures."""
        names = code.architectures
        self._counts[names] += 1
        if code.isa:
            self._versions[code.isa] += 1
        if len(names) > 1 and self._counts[names] == _ENOUGH:
            self._common = self._common or names


def _find_frequent_architectures(counts: Counter[tuple[str, ...]]) -> set[str]:
    """Return the architectures that most of a library is compiled for.

    Containers for a single architecture are additional code and are not part of the
    total.
    """
    by_name = Counter[str]()
    shared = 0
    for architectures, count in counts.items():
        if len(architectures) > 1:
            shared += count
        for name in architectures:
            by_name[name] += count
    of_most = {
        name for name, count in by_name.items() if shared and count * 2 >= shared
    }
    if of_most:
        return of_most
    # The library has one container for each architecture.
    [(most_common, _)] = counts.most_common(1)
    total = counts.total()
    fair = {
        name
        for name, count in by_name.items()
        if count >= _ENOUGH and count * _FAIR_PART >= total
    }
    return fair.union(most_common)


def read_containers(pieces: Iterable[bytes]) -> Iterator[FatbinCode]:
    """Yield the GPU code of each valid fatbin container in a library.

    The parser reads only the headers, and ignores invalid containers.
    """
    data = _Stream(pieces)
    while data.find(_MAGIC):
        header = data.take(_LENGTH.size)
        if header:
            [length] = _LENGTH.unpack(header)
            code = _read_entries(data, length)
            if code:
                yield code


def _read_entries(data: _Stream, left: int) -> FatbinCode | None:
    """Return the GPU code of a container, or None for invalid entries."""
    names = set()
    versions = set()
    while left > 0:
        header = data.take(_ENTRY.size)
        if header is None:
            return None
        kind, header_size, length, *isa, number, flags = _ENTRY.unpack(header)
        if kind not in {*_KINDS, *_OTHER_KINDS} or not 10 <= number <= 999:
            return None
        if not _ENTRY.size <= header_size <= _LONGEST_HEADER:
            return None
        size = header_size + length
        if size > left or not data.skip(size - _ENTRY.size):
            return None
        left -= size
        if kind in _KINDS:
            suffixes = [letter for bit, letter in _SUFFIXES.items() if flags & bit]
            suffix = suffixes[-1] if suffixes else ""
            names.add(f"{_KINDS[kind]}_{number}{suffix}")
        minor, major = isa
        if kind == _COMPUTE and major:
            versions.add((major, minor))
    if not names:
        return None
    return FatbinCode(sort_architectures(names), isa=max(versions, default=None))


def read_flags(pieces: Iterable[bytes]) -> tuple[str, ...]:
    """Return the architectures of ``torch.cuda.get_arch_list()``, if found.

    The list is a NUL-terminated string of names separated by spaces. Any byte may
    precede the list of names (torch 2.8.0 and 2.9.1). A single architecture name counts
    only if there is no list, no other single name, and no list with other separators
    that ends with this name.
    """
    single_names = set()
    for text in _overlap_pieces(pieces):
        for match in _FLAGS.finditer(text):
            flags = match[0].removesuffix(b"\0")
            names = flags.decode().split(" ")
            if len(names) > 1:
                return sort_architectures(names)
            start = match.start()
            before = text[start - 1 : start]
            # After a separator, the name is the end of another list, which is rejected below.
            if before in _SEPARATORS:
                flags = before + flags
            single_names.add(flags.decode())
    if len(single_names) != 1:
        return ()
    [name] = single_names
    if not name[0].isalpha():
        return ()
    return (name,)


def _overlap_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield each piece of a file with the end of the previous piece."""
    end = b""
    for piece in pieces:
        text = end + piece
        if any(sign in text for sign in _SIGNS):
            yield text
        end = text[-_LONGEST:]


def sort_architectures(names: Iterable[str]) -> tuple[str, ...]:
    """Sort unique architectures: machine code before PTX, oldest first."""
    return tuple(sorted(set(names), key=_order_key))


def _order_key(name: str) -> tuple[bool, int, str]:
    match = re.search(r"_(\d+)", name)
    number = int(match[1]) if match else 0
    return name.startswith("compute_"), number, name


class _Stream:
    """Buffered stream of the bytes of a library."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._data = b""
        self._position = 0

    def find(self, sign: bytes) -> bool:
        """Skip the bytes up to and including ``sign``, if found."""
        while True:
            start = self._data.find(sign, self._position)
            if start >= 0:
                self._position = start + len(sign)
                return True
            # The signature may start in the data read so far.
            nearly_all = len(self._data) - len(sign) + 1
            self._position = max(self._position, nearly_all)
            if not self._read_more():
                return False

    def take(self, count: int) -> bytes | None:
        """Return the next ``count`` bytes, or None if fewer remain."""
        while self._rest < count:
            if not self._read_more():
                return None
        start = self._position
        self._position += count
        return self._data[start : self._position]

    def skip(self, count: int) -> bool:
        """Skip ``count`` bytes, and return whether so many bytes remained."""
        while self._rest < count:
            count -= self._rest
            self._position = len(self._data)
            if not self._read_more():
                return False
        self._position += count
        return True

    @property
    def _rest(self) -> int:
        return len(self._data) - self._position

    def _read_more(self) -> bool:
        piece = next(self._pieces, None)
        if piece is None:
            return False
        self._data = self._data[self._position :] + piece
        self._position = 0
        return True
