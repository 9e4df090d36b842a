"""The GPU code inside a library: which architectures its fatbin containers hold, and which torch's own strings name.

A container is a header of 16 bytes (magic, version 1, header size, length of what follows) and entries, each with
its kind at 0 (1 PTX, 2 machine code), header size at 4, length at 8, version at 24 (minor) and 26 (of PTX: its ISA's),
architecture at 28 and flags at 40. The layout was measured on wheels of CUDA 11 to 13, Linux and Windows.
Architectures go by the names that programs give them: ``sm_90a`` machine code, ``compute_90`` PTX, ``gfx942`` AMD's.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
_LENGTH, _ENTRY = struct.Struct("<Q"), struct.Struct("<H2xIQ8xHHI8xQ")
_ASSEMBLY = 1
_KINDS = {_ASSEMBLY: "compute", 2: "sm"}
_SUFFIXES = {0x100000: "a", 0x200000: "f"}
_LONGEST_HEADER = 4096
_ENOUGH, _MOST = 3, 64

_TOKEN = rb"(?:(?:sm|compute)_(?:[2-9]\d|[1-3]\d\d)[af]?|gfx[1-9][0-9a-f]{2,3})"
_FLAGS = re.compile(rb"%b(?: %b)*\0" % (_TOKEN, _TOKEN))
_SIGNS = (b"sm_", b"gfx", b"compute_")
_SEPARATORS = b" ,;:/|="
_LONGEST = 4096
"""In bytes; a list of fifty architectures is shorter."""


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Sort architectures, each named once: machine code before PTX, older before newer."""
    return tuple(sorted(set(names), key=_key))


class FatbinCode(NamedTuple):
    """Architectures, and the newest ISA version of their PTX, ``(8, 7)``; None where there is no PTX."""

    architectures: tuple[str, ...] = ()
    isa: tuple[int, int] | None = None


def read_fatbins(pieces: Iterable[bytes]) -> FatbinCode:
    """Say for which architectures most of a library is compiled; empty where it has no GPU code.

    Single kernels are made for more architectures or fewer than the rest (cuDNN, vllm, torch): the first set that
    ``_ENOUGH`` containers have in common is taken, else that of most of them.
    """
    seen: Counter[frozenset[str]] = Counter()
    isas = set()
    for found in read_containers(pieces):
        held = frozenset(found.architectures)
        seen[held] += 1
        isas.add(found.isa)
        if seen[held] == _ENOUGH or seen.total() == _MOST:
            break
    newest = max(filter(None, isas), default=None)
    return FatbinCode(ordered(seen.most_common(1)[0][0]), newest) if seen else FatbinCode()


def read_containers(pieces: Iterable[bytes]) -> Iterator[FatbinCode]:
    """Yield the code of each sound container of a library, as ``sm_90a`` and ``compute_90`` (PTX).

    Only headers are looked at and little is held at a time; what merely looks like a container is passed over.
    """
    data = _Pieces(pieces)
    while data.find(_MAGIC):
        header = data.take(_LENGTH.size)
        found = header and _entries(data, _LENGTH.unpack(header)[0])
        if found:
            yield found


def read_flags(pieces: Iterable[bytes]) -> tuple[str, ...]:
    """Find what ``torch.cuda.get_arch_list()`` returns: names with blanks between them, up to a NUL.

    What lies before the first name need not be a NUL (torch 2.8.0 and 2.9.1). A single name counts only where there
    is no list, no other single name, and none that ends a list in some other form. Empty where there is no answer.
    """
    single: set[bytes] = set()
    for text in _windows(pieces):
        for match in _FLAGS.finditer(text):
            names = match[0][:-1].split(b" ")
            if len(names) > 1:
                return ordered(name.decode() for name in names)
            before = text[match.start() - 1 : match.start()]
            single.add(before + names[0] if before and before in _SEPARATORS else names[0])
    return (
        ordered(name.decode() for name in single if name[:1].isalpha()) if len(single) == 1 else ()
    )


def _key(name: str) -> tuple[bool, int, str]:
    number = re.search(r"_(\d+)", name)
    return name.startswith("compute_"), int(number[1]) if number else 0, name


def _entries(data: _Pieces, left: int) -> FatbinCode | None:
    """Read the entries of a container; None where there are none, or they do not fill it exactly."""
    found, isas = set(), set()
    while left > 0:
        header = data.take(_ENTRY.size)
        if header is None:
            return None
        kind, header_size, length, minor, major, architecture, flags = _ENTRY.unpack(header)
        sound = (
            kind in _KINDS
            and _ENTRY.size <= header_size <= _LONGEST_HEADER
            and 10 <= architecture <= 999
        )
        left -= header_size + length
        if not sound or left < 0 or not data.skip(header_size - _ENTRY.size + length):
            return None
        suffix = next((letter for bit, letter in _SUFFIXES.items() if flags & bit), "")
        found.add(f"{_KINDS[kind]}_{architecture}{suffix}")
        isas |= {(major, minor)} if kind == _ASSEMBLY and major else set()
    return FatbinCode(ordered(found), max(isas, default=None)) if found else None


class _Pieces:
    """A stream of bytes to be searched, taken from and skipped; it holds one piece and what it needs of the last."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._held, self._at = b"", 0

    def find(self, sign: bytes) -> bool:
        """Go behind the next ``sign``; say whether there is one."""
        while (found := self._held.find(sign, self._at)) < 0:
            self._at = max(self._at, len(self._held) - len(sign) + 1)
            if not self._more():
                return False
        self._at = found + len(sign)
        return True

    def take(self, count: int) -> bytes | None:
        """Take a few bytes; None where there are no more so many."""
        while len(self._held) - self._at < count:
            if not self._more():
                return None
        self._at += count
        return self._held[self._at - count : self._at]

    def skip(self, count: int) -> bool:
        """Pass over bytes, however many; say whether there were so many."""
        while len(self._held) - self._at < count:
            count -= len(self._held) - self._at
            self._at = len(self._held)
            if not self._more():
                return False
        self._at += count
        return True

    def _more(self) -> bool:
        piece = next(self._pieces, None)
        if piece is None:
            return False
        self._held, self._at = self._held[self._at :] + piece, 0
        return True


def _windows(pieces: Iterable[bytes]) -> Iterable[bytes]:
    """Give each piece with the end of what came before, so that no string is cut."""
    end = b""
    for piece in pieces:
        text = end + piece
        if any(sign in text for sign in _SIGNS):
            yield text
        end = text[-_LONGEST:]
