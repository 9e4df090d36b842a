"""The GPU code inside a library: which architectures its fatbin containers hold, else its PTX as text, and which torch's
own strings name.

A container is a header of 16 bytes (magic, version 1, header size, length of what follows) and entries, each with
its kind at 0 (1 PTX, 2 machine code, 8 what is still to be linked), header size at 4, length at 8, version at 24
(minor) and 26 (of PTX: its ISA's), architecture at 28 and flags at 40. Measured on wheels of CUDA 11 to 13, Linux and
Windows.
Architectures go by the names that programs give them: ``sm_90a`` machine code, ``compute_90`` PTX, ``gfx942`` AMD's.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
_LENGTH = struct.Struct("<Q")
_ENTRY = struct.Struct("<H2xIQ10xHI8xQ")
_COMPUTE = 1
_KINDS = {_COMPUTE: "compute", 2: "sm"}
_OTHER_KINDS = {4, 8, 16, 32, 64}
"""Those that no driver runs: 8 is code for nvJitLink (fairseq2n 0.8.1)."""
_SUFFIXES = {0x200000: "f", 0x100000: "a"}
_LONGEST_HEADER = 4096
_ENOUGH = 3
_MOST = 64
_FAIR_PART = 20
"""Of so many containers one has to be for an architecture, if each container has one."""

_TARGET = b".target sm_"
_PTX = re.compile(
    rb"//\s+\.version (\d{1,2})\.\d\s+\.target sm_(\d{2,3}[af]?)(?=[,\s])",
    re.ASCII,
)
"""How PTX begins as text, which programs in Rust have instead of containers (hessboost-runtime-cuda 0.4.3).

Compilers end their comment before it; what a generator of kernels tries a driver with stands alone (nvfuser 0.2.35).
"""
_LONGEST_BEGINNING = 64

_TOKEN = rb"(?:(?:sm|compute)_(?:[2-9]\d|[1-3]\d\d)[af]?|gfx[1-9][0-9a-f]{2,3})"
_FLAGS = re.compile(rb"%b(?: %b){0,99}\0" % (_TOKEN, _TOKEN))
"""No list is as long: a run without an end would be read once more from each of its names."""
_SIGNS = (b"sm_", b"gfx", b"compute_")
_SEPARATORS = b" ,;:/|="
_LONGEST = 4096
"""In bytes; a list of fifty architectures is shorter."""


class FatbinCode(NamedTuple):
    """The code of a container, or of most of a library."""

    architectures: tuple[str, ...] = ()
    isa: int | None = None
    """The major ISA version of most of its PTX; None without PTX."""
    is_whole: bool = True
    """Whether all of it was read: only then it has no other architectures."""


def read_fatbins(pieces: Iterable[bytes], *, whole: bool = False) -> FatbinCode:
    """Return what most of a library is compiled for; empty if it has no GPU code.

    Single kernels are made for more architectures or fewer than the rest (cuDNN, vllm, torch): the first set that
    ``_ENOUGH`` containers have in common is taken, else that of most of them. A set of one does not count as such:
    some libraries have a container for each architecture, one after the other (cuTENSOR).

    Args:
        pieces: The library.
        whole: Whether to read to its end, and return every architecture that more than single kernels are made for.
    """
    found = _Tally()
    texts = _Tally()
    for code in read_containers(_watched(pieces, texts)):
        found.add(code)
        is_enough = found.common or found.counts.total() == _MOST
        if is_enough and not whole:
            return found.code(is_whole=False)
    return (found if found.counts else texts).code(is_whole=True)


class _Tally:
    """How many containers have which code."""

    def __init__(self) -> None:
        self.counts = Counter[tuple[str, ...]]()
        self.common: tuple[str, ...] | None = None
        """The first set that enough of them have in common."""
        self._versions = Counter[int]()

    def add(self, code: FatbinCode) -> None:
        """Count a container."""
        names = code.architectures
        self.counts[names] += 1
        if code.isa:
            self._versions[code.isa] += 1
        if len(names) > 1 and self.counts[names] == _ENOUGH:
            self.common = self.common or names

    def code(self, *, is_whole: bool) -> FatbinCode:
        """Return the code of most of them; ``is_whole`` tells whether all of the library was read."""
        if not self.counts:
            return FatbinCode()
        names = None if is_whole else self.common
        isa = max(
            self._versions, key=lambda one: (self._versions[one], one), default=None
        )
        names = names or ordered(_frequent(self.counts))
        return FatbinCode(names, isa=isa, is_whole=is_whole)


def _watched(pieces: Iterable[bytes], texts: _Tally) -> Iterator[bytes]:
    """Yield the pieces, and count the PTX that lies in them as text."""
    end = b""
    for piece in pieces:
        text = end + piece
        last = 0
        for match in _PTX.finditer(text) if _TARGET in text else ():
            version, chip = match.groups()
            texts.add(FatbinCode((f"compute_{chip.decode()}",), int(version)))
            last = match.end()
        # What begins at the end of a piece, and nothing twice.
        end = text[max(last, len(text) - _LONGEST_BEGINNING) :]
        yield piece


def _frequent(counts: Counter[tuple[str, ...]]) -> set[str]:
    """Return the architectures that most of a library is compiled for.

    Kernels for one architecture stand beside those for the others: they make these no rarer.
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
    # A container for each architecture.
    [(most_common, _)] = counts.most_common(1)
    total = counts.total()
    fair = {
        name
        for name, count in by_name.items()
        if count >= _ENOUGH and count * _FAIR_PART >= total
    }
    return fair.union(most_common)


def read_containers(pieces: Iterable[bytes]) -> Iterator[FatbinCode]:
    """Yield the code of each sound container of a library.

    Only headers are looked at and little is kept at a time; what merely looks like a container is passed over.
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
    """Return the code of a container; None if its entries do not fill it exactly."""
    names = set()
    versions = set()
    while left > 0:
        header = data.take(_ENTRY.size)
        if header is None:
            return None
        kind, header_size, length, major, number, flags = _ENTRY.unpack(header)
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
        if kind == _COMPUTE and major:
            versions.add(major)
    if not names:
        return None
    return FatbinCode(ordered(names), isa=max(versions, default=None))


def read_flags(pieces: Iterable[bytes]) -> tuple[str, ...]:
    """Return what ``torch.cuda.get_arch_list()`` returns: names with blanks between them, up to a NUL.

    What lies before the first name need not be a NUL (torch 2.8.0 and 2.9.1). A single name counts only if there
    is no list, no other single name, and none that ends a list in some other form. Empty if there is no answer.
    """
    single_names = set()
    for text in _windows(pieces):
        for match in _FLAGS.finditer(text):
            flags = match[0].removesuffix(b"\0")
            names = flags.decode().split(" ")
            if len(names) > 1:
                return ordered(names)
            start = match.start()
            before = text[start - 1 : start]
            # The end of a list in another form keeps its separator, and so is no name.
            if before in _SEPARATORS:
                flags = before + flags
            single_names.add(flags.decode())
    if len(single_names) != 1:
        return ()
    [name] = single_names
    if not name[0].isalpha():
        return ()
    return (name,)


def _windows(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield each piece with the end of what came before, so that no string is cut."""
    end = b""
    for piece in pieces:
        text = end + piece
        if any(sign in text for sign in _SIGNS):
            yield text
        end = text[-_LONGEST:]


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Return architectures, each once: machine code before PTX, older before newer."""
    return tuple(sorted(set(names), key=_order_key))


def _order_key(name: str) -> tuple[bool, int, str]:
    match = re.search(r"_(\d+)", name)
    number = int(match[1]) if match else 0
    return name.startswith("compute_"), number, name


class _Stream:
    """A stream of bytes to search, take from and skip; it keeps one piece and what it needs of the last."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._data = b""
        self._position = 0

    def find(self, sign: bytes) -> bool:
        """Go behind the next ``sign``; return whether there is one."""
        while True:
            start = self._data.find(sign, self._position)
            if start >= 0:
                self._position = start + len(sign)
                return True
            # The piece may end with the beginning of the sign.
            nearly_all = len(self._data) - len(sign) + 1
            self._position = max(self._position, nearly_all)
            if not self._read_more():
                return False

    def take(self, count: int) -> bytes | None:
        """Return the next few bytes; None if there are no more so many."""
        while self._rest < count:
            if not self._read_more():
                return None
        start = self._position
        self._position += count
        return self._data[start : self._position]

    def skip(self, count: int) -> bool:
        """Pass over bytes, however many; return whether there were so many."""
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
