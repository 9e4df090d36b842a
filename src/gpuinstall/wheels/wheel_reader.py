"""One wheel, read in parts: its files by name, whole or as streams, found by the directory at its end (zip64 too)."""

from __future__ import annotations

import struct
import zlib
from contextlib import closing
from email.parser import Parser
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.wheels.ranges import Limits, MeteredRanges, Ranges, WheelError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from email.message import Message

_PORTION = 8 << 20
_PIECE = 1 << 20
_SMALL = 4 << 20
_STORED, _DEFLATED = 0, 8
_HIGHEST_RATIO = 16
"""How much of the beginning of a file may inflate to; that of libraries does to eight times its size at most."""

_TAIL = 64 << 10
"""How many bytes of the end to look at: the record at the end, a comment, and zip64's two records before it."""

_END, _LOCATOR, _END64, _ENTRY, _LOCAL = b"PK\5\6", b"PK\6\7", b"PK\6\6", b"PK\1\2", b"PK\3\4"
_END_FORM, _LOCATOR_FORM, _END64_FORM = "<4x4H2IH", "<4xIQI", "<4xQ2H2I4Q"
_ENTRY_FORM, _LOCAL_FORM = "<4x4x2H4x3I3H4x4xI", "<4x2x2H4x3I2H"
_END_SIZE, _LOCATOR_SIZE, _END64_SIZE, _ENTRY_SIZE, _LOCAL_SIZE = 22, 20, 56, 46, 30
_IN_ZIP64 = 0xFFFFFFFF
_MOST_BYTES, _MOST_MEMBERS = 8 << 20, 60_000


class Member(NamedTuple):
    """One file of the archive, from its own header at ``start`` to where the next begins; sizes are in bytes."""

    name: str
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    start: int
    end: int


class WheelReader:
    """A wheel of ``size`` bytes whose directory has been read; ``bytes_read`` and ``requests`` are its cost so far."""

    def __init__(self, ranges: Ranges, limits: Limits = Limits()) -> None:  # noqa: B008  frozen
        self._ranges = MeteredRanges(ranges, limits)
        size = self._ranges.size
        self.size = size
        tail_start = max(0, size - _TAIL)
        tail = b"".join(self._ranges.stream(tail_start, size))
        extent = _find_directory(tail, size)
        before = b"".join(self._ranges.stream(extent.start, tail_start)) if extent.start < tail_start else b""
        data = (before + tail)[max(0, extent.start - tail_start) :][: extent.end - extent.start]
        self.members: Mapping[str, Member] = _parse_directory(data, extent)

    @property
    def bytes_read(self) -> int:
        """How many bytes of the file have been read."""
        return self._ranges.bytes_read

    @property
    def requests(self) -> int:
        """How many parts of the file have been asked for, its size among them."""
        return self._ranges.requests

    def metadata(self, name: str = "METADATA") -> Message:
        """Read METADATA or WHEEL; raise WheelError where the wheel has not exactly one."""
        found = [member for member in self.members if member.count("/") == 1 and member.endswith(f".dist-info/{name}")]
        if len(found) != 1:
            raise WheelError("wheel-malformed", f"the wheel has {len(found)} files {name}")
        return Parser().parsestr(self.read(found[0]).decode("utf-8", "replace"))

    def read(self, name: str) -> bytes:
        """Read a small file whole."""
        if self.members[name].size > _SMALL:
            raise WheelError("wheel-too-large", f"{name} is said to have {self.members[name].size} bytes")
        return b"".join(self.stream(name))

    def beginning(self, name: str, most: int) -> bytes:
        """Read what the first ``most`` bytes of a packed file inflate to; nothing but the connection vouches for it."""
        member, data = self._readable(name), bytearray()
        with closing(self._packed(member._replace(end=min(member.end, member.start + most)))) as packed:
            for piece in _inflated(packed, name) if member.method == _DEFLATED else packed:
                data += piece
                self._ranges.inflate(len(piece))
                if len(data) > most * _HIGHEST_RATIO:
                    break
        return bytes(data[: member.size])

    def stream(self, name: str) -> Generator[bytes, None, None]:
        """Yield the inflated bytes of a file in pieces of at most a megabyte.

        Read to its end, it is checked against the directory's size and checksum; of what is left earlier, nothing
        but the connection vouches.
        """
        member = self._readable(name)
        size, crc = 0, 0
        with closing(self._packed(member)) as packed:
            for piece in _inflated(packed, name) if member.method == _DEFLATED else packed:
                size += len(piece)
                self._ranges.inflate(len(piece))
                if size > member.size:
                    raise _damaged(name)
                crc = zlib.crc32(piece, crc)
                yield piece
        if (size, crc) != (member.size, member.crc):
            raise _damaged(name)

    def _readable(self, name: str) -> Member:
        member = self.members[name]
        if member.flags & 1 or member.method not in {_STORED, _DEFLATED}:
            raise WheelError("wheel-malformed", f"{name} is encrypted or uses an unsupported compression")
        return member

    def _packed(self, member: Member) -> Generator[bytes, None, None]:
        """Yield a member's bytes as they lie in the file, behind its own header."""
        with closing(self._portions(member.start, member.end)) as pieces:
            header = b""
            while (start := _data_offset(header, member)) is None or len(header) < start:
                piece = next(pieces, b"")
                if not piece:
                    raise _damaged(member.name)
                header += piece
            left = member.packed
            for piece in chain([header[start:]], pieces):
                yield piece[:left]
                left -= len(piece)
                if left <= 0:
                    return

    def _portions(self, start: int, end: int) -> Generator[bytes, None, None]:
        """Ask for a long part in portions, so that no server sends much that nobody wants any more."""
        for first in range(start, end, _PORTION):
            yield from self._ranges.stream(first, min(end, first + _PORTION))


def _inflated(packed: Iterable[bytes], name: str) -> Iterator[bytes]:
    engine = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for piece in packed:
            data = piece
            while data and not engine.eof:
                yield engine.decompress(data, _PIECE)
                data = engine.unconsumed_tail
        yield engine.flush()
    except zlib.error as error:
        raise _damaged(name) from error


def _damaged(name: str) -> WheelError:
    return WheelError("wheel-malformed", f"{name} in the wheel is damaged or does not match the zip directory")


class _Extent(NamedTuple):
    """Where the directory lies, and how many members it says to have."""

    start: int
    end: int
    members: int


def _find_directory(tail: bytes, size: int) -> _Extent:
    """Find the directory of a file of ``size`` bytes that ends with ``tail``; raise WheelError where it has none."""
    at = tail.rfind(_END, 0, len(tail) - _END_SIZE + len(_END))
    if at < 0:
        raise _malformed("it is not a complete zip file")
    disk, first_disk, _, members, length, start, comment = struct.unpack_from(_END_FORM, tail, at)
    if at + _END_SIZE + comment != len(tail):
        raise _malformed("it is not a complete zip file")
    before = at - _LOCATOR_SIZE
    if before >= 0 and tail.startswith(_LOCATOR, before):
        disk, at, _ = struct.unpack_from(_LOCATOR_FORM, tail, before)
        at -= size - len(tail)
        if not 0 <= at <= before - _END64_SIZE or not tail.startswith(_END64, at):
            raise _malformed("its zip64 record is misplaced")
        _, _, _, disk, first_disk, _, members, length, start = struct.unpack_from(_END64_FORM, tail, at)
    if disk or first_disk or start + length > size - len(tail) + at:
        raise _malformed("its zip directory is misplaced")
    if length > _MOST_BYTES or members > _MOST_MEMBERS:
        raise WheelError("wheel-too-large", f"the wheel says to have {members} files, in a directory of {length} bytes")
    return _Extent(start, start + length, members)


def _parse_directory(data: bytes, extent: _Extent) -> dict[str, Member]:
    """Read the members by name; raise WheelError where the directory contradicts itself."""
    found = sorted(_members(data), key=lambda member: member.start)
    ends = [member.start for member in found[1:]] + [extent.start]
    members = {member.name: member._replace(end=end) for member, end in zip(found, ends, strict=False)}
    if not len(members) == len(found) == extent.members:
        raise _malformed("its number of files is wrong, or two have the same name")
    if any(member.start + _LOCAL_SIZE + member.packed > member.end for member in members.values()):
        raise _malformed("two of its files overlap")
    return members


def _data_offset(header: bytes, member: Member) -> int | None:
    """How far behind a member's own header its bytes begin; None where ``header`` holds too little to say."""
    if len(header) < _LOCAL_SIZE:
        return None
    flags, method, *_, name_length, extra_length = struct.unpack_from(_LOCAL_FORM, header)
    end = _LOCAL_SIZE + name_length
    if len(header) < end:
        return None
    same = header[:4] == _LOCAL and (flags & 1, method) == (member.flags & 1, member.method)
    if not same or _decode(header[_LOCAL_SIZE:end]) != member.name:
        raise _malformed(f"the content at {member.name} is another file")
    return int(end + extra_length)


def _members(data: bytes) -> Iterator[Member]:
    at = 0
    while at < len(data):
        if len(data) - at < _ENTRY_SIZE or not data.startswith(_ENTRY, at):
            raise _malformed("its zip directory is truncated")
        flags, method, crc, packed, size, *lengths, offset = struct.unpack_from(_ENTRY_FORM, data, at)
        name_end = at + _ENTRY_SIZE + lengths[0]
        extra_end = name_end + lengths[1]
        name = _decode(data[at + _ENTRY_SIZE : name_end])
        sizes = _from_extra(data[name_end:extra_end], (size, packed, offset))
        at = extra_end + lengths[2]
        if at > len(data):
            raise _malformed("its zip directory is truncated")
        yield Member(name, flags, method, crc, sizes[1], sizes[0], sizes[2], 0)


def _from_extra(extra: bytes, sizes: tuple[int, int, int]) -> tuple[int, ...]:
    """Replace the sizes that zip64 keeps in an extra field, in their order."""
    if _IN_ZIP64 not in sizes:
        return sizes
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            count = sizes.count(_IN_ZIP64)
            if length < 8 * count or at + 4 + length > len(extra):
                break
            large = iter(struct.unpack_from(f"<{count}Q", extra, at + 4))
            return tuple(next(large) if size == _IN_ZIP64 else size for size in sizes)
        at += 4 + length
    raise _malformed("a zip64 size is missing")


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _malformed(why: str) -> WheelError:
    return WheelError("wheel-malformed", "the file is not a valid wheel", why=why)
