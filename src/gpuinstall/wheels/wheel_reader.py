"""One wheel, read in parts: its files by name, whole or as streams."""

from __future__ import annotations

import zlib
from contextlib import closing
from email.parser import Parser
from itertools import chain
from typing import TYPE_CHECKING

from gpuinstall.wheels.ranges import Limits, MeteredRanges, Ranges, WheelError
from gpuinstall.wheels.zip_directory import TAIL, data_offset, find_directory, parse_directory

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from email.message import Message

    from gpuinstall.wheels.zip_directory import Member

_PORTION = 8 << 20
_PIECE = 1 << 20
_SMALL = 4 << 20
_STORED, _DEFLATED = 0, 8


class WheelReader:
    """A wheel of ``size`` bytes whose directory has been read; ``bytes_read`` and ``requests`` are its cost so far."""

    def __init__(self, ranges: Ranges, limits: Limits = Limits()) -> None:  # noqa: B008  frozen
        self._ranges = MeteredRanges(ranges, limits)
        size = self._ranges.size
        self.size = size
        tail_start = max(0, size - TAIL)
        tail = b"".join(self._ranges.stream(tail_start, size))
        extent = find_directory(tail, size)
        before = b"".join(self._ranges.stream(extent.start, tail_start)) if extent.start < tail_start else b""
        data = (before + tail)[max(0, extent.start - tail_start) :][: extent.end - extent.start]
        self.members: Mapping[str, Member] = parse_directory(data, extent)

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

    def stream(self, name: str) -> Generator[bytes, None, None]:
        """Yield the inflated bytes of a file in pieces of at most a megabyte.

        Read to its end, it is checked against the directory's size and checksum; of what is left earlier, nothing
        but the connection vouches.
        """
        member = self.members[name]
        if member.flags & 1 or member.method not in {_STORED, _DEFLATED}:
            raise WheelError("wheel-malformed", f"{name} is encrypted, or packed in a way that wheels are not")
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

    def _packed(self, member: Member) -> Generator[bytes, None, None]:
        """Yield a member's bytes as they lie in the file, behind its own header."""
        with closing(self._portions(member.start, member.end)) as pieces:
            header = b""
            while (start := data_offset(header, member)) is None or len(header) < start:
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
    return WheelError("wheel-malformed", f"{name} in the wheel is damaged, or not what its directory says")
